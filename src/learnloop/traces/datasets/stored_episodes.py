"""Reads logged episodes from a store page by page; what a tool was given and gave back is not read at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, select

from learnloop.core.clock import now
from learnloop.core.records import Decision, Episode, Reward, Span, SpanStatus
from learnloop.store import Store, schema
from learnloop.store.mapping import record_columns, to_record
from learnloop.store.queries.waiting import waiting_decisions, waiting_episodes
from learnloop.traces.datasets.logged_episodes import EpisodeLog, LoggedEpisode

_PAGE = 250
"""Episodes that are read at once."""


def stored_episodes(
    store: Store, log: EpisodeLog, agent_id: str | None, progress: Callable[[int], None] | None
) -> Iterator[LoggedEpisode | str]:
    """Yields each episode of the store, or why it is left out.

    Args:
        store: where they lie.
        log: what they are gathered with.
        agent_id: whose; None: all.
        progress: told of the number of episodes read.
    """
    mine = {} if agent_id is None else {"agent_id": agent_id}
    for page in _pages(store, Episode, mine):
        ids = [episode.episode_id for episode in page]
        for episode in page:
            log.add_episode(episode)
        _add_spans(store, log, page)
        of_page = schema.decisions.c.episode_id.in_(ids)
        decisions = [to_record(Decision, row) for row in _rows(store, select(*record_columns(Decision)).where(of_page))]
        _add_decisions(store, log, decisions, ids)
        log.awaited = store.read(waiting_episodes, now(), ids)
        yield from _told(log, len(page), progress)
    for lone in _pages(store, Decision, {**mine, "episode_id": None}):
        _add_decisions(store, log, lone, ())
        log.awaited = store.read(waiting_decisions, now(), [decision.decision_id for decision in lone])
        yield from _told(log, len(lone), progress)


def _pages(store: Store, kind: type[Any], where: dict[str, Any]) -> Iterator[list[Any]]:
    key = kind.__struct_fields__[0]
    after: str | None = None
    while page := store.select(kind, where=where, after=after, limit=_PAGE):
        yield page
        after = getattr(page[-1], key)


def _told(log: EpisodeLog, number: int, progress: Callable[[int], None] | None) -> Iterator[LoggedEpisode | str]:
    yield from log.take_all()
    if progress is not None:
        progress(number)


def _add_spans(store: Store, log: EpisodeLog, episodes: Sequence[Episode]) -> None:
    table = schema.spans.c
    columns = (table.span_id, table.episode_id, table.parent_id, table.operation, table.name, table.status)
    of_page = table.episode_id.in_([episode.episode_id for episode in episodes])
    for row in _rows(store, select(*columns, table.started_at, table.ended_at).where(of_page)):
        log.add_span(_span(row, {}))
    nameless = [episode.episode_id for episode in episodes if episode.task_id is None]
    if nameless:
        # Their goal is what the run was given: the input of its root.
        roots = table.episode_id.in_(nameless) & table.parent_id.is_(None) & (table.operation != "execute_tool")
        query = select(*columns, table.started_at, table.ended_at, table.attributes).where(roots)
        for row in _rows(store, query):
            log.add_span(_span(row[:-1], row[-1]))


def _span(row: Sequence[Any], attributes: dict[str, Any]) -> Span:
    span_id, episode_id, parent_id, operation, name, status, started_at, ended_at = row
    return Span(
        span_id=span_id,
        trace_id=episode_id,
        episode_id=episode_id,
        parent_id=parent_id,
        operation=operation,
        name=name,
        status=SpanStatus(status),
        started_at=started_at,
        ended_at=ended_at,
        attributes=attributes,
    )


def _add_decisions(store: Store, log: EpisodeLog, decisions: Sequence[Decision], episode_ids: Collection[str]) -> None:
    """Takes decisions, and the rewards of them and of episodes, in the order in which they came."""
    for decision in decisions:
        log.add_decision(decision)
    table = schema.rewards.c
    conditions: list[ColumnElement[bool]] = []
    if episode_ids:
        conditions.append(table.episode_id.in_(episode_ids))
    ids = [decision.decision_id for decision in decisions]
    for start in range(0, len(ids), _PAGE):
        conditions.append(table.decision_id.in_(ids[start : start + _PAGE]) & table.episode_id.is_(None))
    for condition in conditions:
        query = select(*record_columns(Reward), table.sequence).where(condition).order_by(table.sequence)
        for row in _rows(store, query):
            log.add_reward(to_record(Reward, row[:-1]), row[-1])


def _rows(store: Store, query: Select[Any]) -> Sequence[Any]:
    return store.read(lambda connection: connection.execute(query).all())
