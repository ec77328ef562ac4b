"""Reads episodes back: pages, details, files."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from sqlalchemy import select, tuple_

from learnloop.core.clock import from_micros, to_micros
from learnloop.core.errors import StoreError, UsageError
from learnloop.core.records import Decision, Episode, Reward, Span
from learnloop.decisions import RewardParts
from learnloop.loop.whole_files import whole_file
from learnloop.loop.workspace import Workspace
from learnloop.store import schema
from learnloop.store.mapping import record_columns, to_record
from learnloop.traces import export_records

MAX_PAGE = 1_000
"""Episodes on one page."""


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
    """Returns a page of episodes, those that started last first, narrowed by what is not None.

    Args:
        workspace: whose episodes.
        agent: only this agent's.
        task: only tries at this task.
        status: only these.
        limit: the most to return, 1 to ``MAX_PAGE``.
        after: the cursor of the page before.

    Raises:
        UsageError: the limit is out of range, or the cursor is none.
    """
    if not 0 < limit <= MAX_PAGE:
        raise UsageError(f"limit is {limit}; allowed are 1 to {MAX_PAGE:,}")
    filters = {"agent_id": agent, "task_id": task, "status": status}
    where = {column: value for column, value in filters.items() if value is not None}
    found = _newest_episodes(workspace, where, None if after is None else _read_cursor(after), limit + 1)
    episodes = found[:limit]
    parts = {episode.episode_id: RewardParts({}, {}) for episode in episodes}
    for reward in workspace.store.iterate(Reward, where={"episode_id": list(parts), "decision_id": None}):
        parts[reward.episode_id or ""].take(reward)
    rows = [_row(episode, parts[episode.episode_id]) for episode in episodes]
    return EpisodePage(rows=rows, next_cursor=_cursor(episodes[-1]) if len(found) > limit else None)


def show_episode(workspace: Workspace, episode_id: str) -> EpisodeDetail:
    """Returns an episode with its spans, its decisions, and the rewards of both.

    Raises:
        NotFoundError: there is no such episode.
    """
    where = {"episode_id": episode_id}
    store = workspace.store
    episode = store.get(Episode, episode_id)
    decisions = list(store.iterate(Decision, where=where))
    rewards = {reward.reward_id: reward for reward in store.iterate(Reward, where=where)}
    own = [decision.decision_id for decision in decisions]
    rewards |= {reward.reward_id: reward for reward in store.iterate(Reward, where={"decision_id": own})}
    return EpisodeDetail(
        episode=episode,
        spans=list(store.iterate(Span, where=where)),
        decisions=decisions,
        rewards=sorted(rewards.values(), key=lambda reward: (reward.created_at, reward.reward_id)),
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

    A link is followed; a pipe or a device is written to, never replaced.

    Raises:
        StoreError: the file cannot be written.
    """
    if str(file) == "-":
        return export_records(workspace.store, sys.stdout.buffer, agent_id=agent_id)
    try:
        with whole_file(file) as target:
            return export_records(workspace.store, target, agent_id=agent_id)
    except OSError as error:
        raise StoreError(f"{file} cannot be written: {error.strerror}") from error


def _newest_episodes(
    workspace: Workspace, where: Mapping[str, str], before: tuple[datetime, str] | None, limit: int
) -> list[Episode]:
    """Returns the episodes that started last; their ids do not sort by time where they were imported."""
    columns = schema.episodes.c
    place = (columns.started_at, columns.episode_id)
    query = select(*record_columns(Episode)).where(*(columns[name] == value for name, value in where.items()))
    if before is not None:
        query = query.where(tuple_(*place) < before)
    query = query.order_by(*(column.desc() for column in place)).limit(limit)
    return workspace.store.read(lambda connection: [to_record(Episode, row) for row in connection.execute(query)])


def _cursor(episode: Episode) -> str:
    """Returns the text by which the page after ``episode`` is asked for."""
    return base64.urlsafe_b64encode(f"{to_micros(episode.started_at)} {episode.episode_id}".encode()).decode()


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        micros, _, episode_id = base64.b64decode(cursor, altchars=b"-_", validate=True).decode().partition(" ")
        return from_micros(int(micros)), episode_id
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{cursor!r} is no cursor; give the one that the page before ended with") from error


def _row(episode: Episode, parts: RewardParts) -> EpisodeRow:
    ended = episode.ended_at
    return EpisodeRow(
        episode=episode,
        reward=sum(parts.episode.values()) if parts.episode else None,
        duration_seconds=None if ended is None else (ended - episode.started_at).total_seconds(),
    )
