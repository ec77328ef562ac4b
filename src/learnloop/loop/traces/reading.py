"""Reads episodes back: pages, details, files."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from learnloop.core.checks import check_range
from learnloop.core.clock import from_micros, now, to_micros
from learnloop.core.errors import NotFoundError, UsageError, one_of
from learnloop.core.records import Decision, Episode, EpisodeStatus, Json, Reward, Span
from learnloop.core.rewards import RewardState, state_of
from learnloop.loop.traces.exporting import export_as
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.store.full_text import Term, found_spans
from learnloop.store.queries.episodes import EpisodeQuery, FoundEpisode, episode_ids_like, newest_episodes
from learnloop.store.queries.spans import SpanOutline, span_outlines, span_usage
from learnloop.store.queries.waiting import waiting_episodes
from learnloop.traces.conversation.steps import MODEL_OPERATIONS, Step, steps_of
from learnloop.traces.search import Snippet, catch_up, parse_query, snippet

MAX_PAGE = 1_000
"""Episodes on one page."""


class EpisodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """An episode in a list."""

    episode: Episode
    reward: float | None
    """What it was worth by its own rewards, see ``core/rewards.py``; None: not known."""
    reward_state: RewardState
    """Whether that is known, may still come (``pending``) or is missing."""
    duration_seconds: float | None
    """None while it runs, and where its times are not known."""
    snippet: Snippet | None = None
    """Where what was searched for was found first."""


class EpisodeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which episodes are meant; what is None narrows nothing."""

    source: str | None = None
    """``loop``, or the format that they were imported from."""
    since: datetime | None = None
    """Those that started then or later."""
    until: datetime | None = None
    """Those that started before."""
    reward_below: float | None = None
    """Those whose reward is known and smaller."""
    reward_above: float | None = None
    """Those whose reward is known and larger."""
    search: str | None = None
    """Those with a span that holds all of these words, ``"phrases"`` and beginnings``*``; see traces/search.py."""


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


AnySpan = TypeVar("AnySpan", Span, SpanOutline)


def list_episodes(
    workspace: WorkspaceCore,
    *,
    agent: str | None = None,
    task: str | None = None,
    status: str | None = None,
    narrowed: EpisodeFilter = EpisodeFilter(),  # noqa: B008 - immutable
    limit: int = 50,
    after: str | None = None,
) -> EpisodePage:
    """Returns a page of episodes, those that started last first, narrowed by what is not None.

    Args:
        workspace: whose episodes.
        agent: only this agent's.
        task: only tries at this task.
        status: only these.
        narrowed: by what else.
        limit: the most to return, 1 to ``MAX_PAGE``.
        after: the cursor of the page before.

    Raises:
        UsageError: the limit is out of range, or the cursor is none.
    """
    check_range("limit", limit, 1, MAX_PAGE)
    terms = None if narrowed.search is None else parse_query(narrowed.search)
    if terms == []:  # no word was asked for, so none is found
        return EpisodePage(rows=[], next_cursor=None)
    if terms:
        catch_up(workspace.store)
    asked = EpisodeQuery(
        agent_id=agent,
        task_id=task,
        status=status,
        source=narrowed.source,
        since=narrowed.since,
        until=narrowed.until,
        reward_below=narrowed.reward_below,
        reward_above=narrowed.reward_above,
    )
    place = None if after is None else _read_cursor(after)
    found = workspace.store.read(newest_episodes, asked, terms, place, limit + 1)
    rows = _with_waiting(workspace, _rows(workspace, found[:limit], terms))
    return EpisodePage(rows=rows, next_cursor=_cursor(rows[-1].episode) if len(found) > limit else None)


def resolve_episode(workspace: WorkspaceCore, text: str) -> str:
    """Returns the id of the episode whose id is ``text``, or alone begins with it.

    Raises:
        NotFoundError: no id begins with it.
        UsageError: several do.
    """
    found = workspace.store.read(episode_ids_like, text, 4) if text else []
    if text in found or len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"the ids {one_of(found)} and maybe others begin with {text!r}; give more of it")
    raise NotFoundError(f"there is no Episode whose episode_id is {text!r} or begins with it")


def trace_skeleton(workspace: WorkspaceCore, episode_id: str) -> list[SpanOutline]:
    """Returns the spans of an episode without their attributes, in the order in which they started.

    Raises:
        NotFoundError: there is no such episode.
    """
    workspace.store.get(Episode, episode_id)
    return workspace.store.read(span_outlines, episode_id)


def token_usage(workspace: WorkspaceCore, episode_id: str) -> dict[str, Json]:
    """Returns what is known of the tokens of an episode's calls of models, by the id of the span."""
    return workspace.store.read(span_usage, episode_id, MODEL_OPERATIONS)


def show_steps(workspace: WorkspaceCore, episode_id: str) -> list[Step]:
    """Returns the steps of an episode; see ``traces/conversation/steps.py``.

    Raises:
        NotFoundError: there is no such episode.
    """
    workspace.store.get(Episode, episode_id)
    return steps_of(workspace.store.iterate(Span, where={"episode_id": episode_id}))


def show_episode(workspace: WorkspaceCore, episode_id: str) -> EpisodeDetail:
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


def span_tree(spans: Sequence[AnySpan]) -> Iterator[tuple[int, AnySpan]]:
    """Yields spans below their parents, earlier ones first, each with its depth; one without its parent is a root."""
    known = {span.span_id for span in spans}
    children: dict[str | None, list[AnySpan]] = {}
    for span in sorted(spans, key=lambda span: (span.started_at, span.span_id)):
        children.setdefault(span.parent_id if span.parent_id in known else None, []).append(span)
    waiting = [(0, span) for span in reversed(children.get(None, []))]
    while waiting:
        depth, span = waiting.pop()
        yield depth, span
        waiting.extend((depth + 1, child) for child in reversed(children.get(span.span_id, [])))


def export_to(workspace: WorkspaceCore, file: Path, *, agent_id: str | None = None) -> int:
    """Writes the store's records to ``file`` (``-``: standard output), which appears whole or not at all.

    A link is followed; a pipe or a device is written to, never replaced.

    Raises:
        StoreError: the file cannot be written.
    """
    return export_as(workspace, file, "learnloop", agent=agent_id).number


def _rows(workspace: WorkspaceCore, found: Sequence[FoundEpisode], terms: Sequence[Term] | None) -> list[EpisodeRow]:
    """Returns episodes as they are listed, with snippets where something was searched for."""
    spans = workspace.store.read(found_spans, [each.search_id for each in found]) if terms else {}
    snippets = {number: snippet(span, terms) for number, span in spans.items()} if terms else {}
    return [_row(each.episode, each.reward, snippets.get(each.search_id)) for each in found]


def _with_waiting(workspace: WorkspaceCore, rows: list[EpisodeRow]) -> list[EpisodeRow]:
    """Returns the rows, those without a reward as pending where one of their decisions still waits for it."""
    missing = [row.episode.episode_id for row in rows if row.reward_state is RewardState.MISSING]
    waiting = workspace.store.read(waiting_episodes, now(), missing)
    return [
        msgspec.structs.replace(row, reward_state=state_of(row.reward, is_awaited=True))
        if row.episode.episode_id in waiting
        else row
        for row in rows
    ]


def _cursor(episode: Episode) -> str:
    """Returns the text by which the page after ``episode`` is asked for."""
    return base64.urlsafe_b64encode(f"{to_micros(episode.started_at)} {episode.episode_id}".encode()).decode()


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        micros, _, episode_id = base64.b64decode(cursor, altchars=b"-_", validate=True).decode().partition(" ")
        return from_micros(int(micros)), episode_id
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{cursor!r} is no cursor; give the one that the page before ended with") from error


def _row(episode: Episode, reward: float | None, found: Snippet | None) -> EpisodeRow:
    ended = None if episode.metadata.get("time_unknown") is True else episode.ended_at
    return EpisodeRow(
        episode=episode,
        reward=reward,
        reward_state=state_of(reward, is_awaited=episode.status is EpisodeStatus.RUNNING),
        duration_seconds=None if ended is None else (ended - episode.started_at).total_seconds(),
        snippet=found,
    )
