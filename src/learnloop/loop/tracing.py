"""Reads episodes back: pages, details, files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from learnloop.core.errors import StoreError
from learnloop.core.records import Decision, Episode, Reward, Span
from learnloop.decisions import RewardParts
from learnloop.loop.workspace import Workspace
from learnloop.traces import export_records


class EpisodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """An episode in a list."""

    episode: Episode
    reward: float | None
    """The sum of its own reward parts; None: not known."""
    duration_seconds: float | None
    """None while it runs."""


class EpisodePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some episodes, and where the next ones begin."""

    rows: list[EpisodeRow]
    next_cursor: str | None


class EpisodeDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An episode with all that was recorded in it."""

    episode: Episode
    spans: list[Span]
    decisions: list[Decision]
    rewards: list[Reward]


def list_episodes(
    workspace: Workspace,
    *,
    agent: str | None = None,
    task: str | None = None,
    status: str | None = None,
    limit: int = 50,
    after: str | None = None,
) -> EpisodePage:
    """Returns a page of episodes, the newest first, narrowed by what is not None."""
    filters = {"agent_id": agent, "task_id": task, "status": status}
    where = {column: value for column, value in filters.items() if value is not None}
    found = workspace.store.select(Episode, where=where, after=after, limit=limit + 1, descending=True)
    episodes = found[:limit]
    parts = {episode.episode_id: RewardParts({}, {}) for episode in episodes}
    for reward in workspace.store.iterate(Reward, where={"episode_id": list(parts), "decision_id": None}):
        parts[reward.episode_id or ""].take(reward)
    rows = [_row(episode, parts[episode.episode_id]) for episode in episodes]
    return EpisodePage(rows=rows, next_cursor=episodes[-1].episode_id if len(found) > limit else None)


def show_episode(workspace: Workspace, episode_id: str) -> EpisodeDetail:
    """Returns an episode with its spans, decisions and rewards.

    Raises:
        NotFoundError: there is no such episode.
    """
    where = {"episode_id": episode_id}
    store = workspace.store
    return EpisodeDetail(
        episode=store.get(Episode, episode_id),
        spans=list(store.iterate(Span, where=where)),
        decisions=list(store.iterate(Decision, where=where)),
        rewards=list(store.iterate(Reward, where=where)),
    )


def span_tree(spans: Sequence[Span]) -> Iterator[tuple[int, Span]]:
    """Yields spans below their parents, earlier ones first, each with its depth; one without its parent is a root."""
    known = {span.span_id for span in spans}
    children: dict[str | None, list[Span]] = {}
    for span in sorted(spans, key=lambda span: (span.started_at, span.span_id)):
        children.setdefault(span.parent_id if span.parent_id in known else None, []).append(span)
    waiting = [(0, span) for span in reversed(children.get(None, []))]
    while waiting:
        depth, span = waiting.pop()
        yield depth, span
        waiting.extend((depth + 1, child) for child in reversed(children.get(span.span_id, [])))


def export_to(workspace: Workspace, file: Path, *, agent_id: str | None = None) -> int:
    """Writes the store's records to ``file`` (``-``: standard output), which appears whole or not at all.

    Raises:
        StoreError: the file cannot be written.
    """
    if str(file) == "-":
        return export_records(workspace.store, sys.stdout.buffer, agent_id=agent_id)
    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("wb") as target:
            count = export_records(workspace.store, target, agent_id=agent_id)
            target.flush()
            os.fsync(target.fileno())
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StoreError(f"{file} cannot be written: {error.strerror}") from error
    return count


def _row(episode: Episode, parts: RewardParts) -> EpisodeRow:
    ended = episode.ended_at
    return EpisodeRow(
        episode=episode,
        reward=sum(parts.episode.values()) if parts.episode else None,
        duration_seconds=None if ended is None else (ended - episode.started_at).total_seconds(),
    )
