"""Episodes: which are meant, how they stand, and what they were worth."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Float, and_, case, cast, func, literal, select, true, tuple_

from learnloop.core.records import Episode, EpisodeStatus, Json
from learnloop.store import schema
from learnloop.store.full_text import Term, matches
from learnloop.store.mapping import to_record
from learnloop.store.queries.records import equals, is_one_of, query_of
from learnloop.store.queries.rewards import reward_of_episode, rewards_of_episodes

_SPREAD = 1e-9
"""Outcomes that differ by no more are the same: sums of the same parts in another order."""
_LAST = "\U0010ffff"
"""Behind all other characters."""


class EpisodeQuery(NamedTuple):
    """Which episodes are meant; what is None narrows nothing."""

    ids: Collection[str] | None = None
    agent_id: str | None = None
    task_id: str | None = None
    status: str | None = None
    source: str | None = None
    since: datetime | None = None
    """Started then or later."""
    until: datetime | None = None
    """Started before."""
    ended_before: datetime | None = None
    """Ended before; those that run stay out."""
    reward_below: float | None = None
    """Those whose reward is known and smaller."""
    reward_above: float | None = None
    """Those whose reward is known and larger."""
    without_reward: bool = False
    """Whether only those are meant whose reward is not known."""


class FoundEpisode(NamedTuple):
    """An episode in a list."""

    episode: Episode
    reward: float | None
    """None: not known."""
    search_id: int
    """The number of the first span that holds what was searched for; 0: nothing was."""


class EpisodeOutline(NamedTuple):
    """What figures are made of."""

    episode_id: str
    status: str
    started_at: datetime
    ended_at: datetime | None
    metadata: Json
    reward: float | None
    """None: not known."""


class AttemptGroups(NamedTuple):
    """Groups of attempts that are alike; a group is one agent's attempts at one task."""

    size: int
    """How many attempts each of them has."""
    is_mixed: bool
    """Whether their known outcomes differ."""
    is_known: bool
    """Whether all their outcomes are known."""
    number: int
    """How many groups there are of this kind."""


def newest_episodes(
    connection: Connection,
    asked: EpisodeQuery,
    terms: Sequence[Term] | None,
    after: tuple[datetime, str] | None,
    limit: int,
) -> list[FoundEpisode]:
    """Returns a page of the episodes that are meant, those that started last first.

    Args:
        connection: in a transaction.
        asked: which episodes.
        terms: only those with a span that holds all of them; None or none: all.
        after: start and id of the last episode of the page before.
        limit: the most to return.
    """
    columns = schema.episodes.c
    number: ColumnElement[int] = literal(0)
    place = (columns.started_at, columns.episode_id)
    query = select(columns.episode_id).where(episode_condition(connection, asked))
    if after is not None:
        query = query.where(tuple_(*place) < after)
    if terms:
        found, numbers = matches(connection.dialect.name, terms), schema.search_episodes.c
        number = found.c.search_id
        query = query.join(schema.search_episodes, numbers.episode_id == columns.episode_id)
        query = query.join(found, found.c.number == numbers.number)
    newest_first = [column.desc() for column in place]
    page = query.order_by(*newest_first).limit(limit).add_columns(number.label("search_id")).subquery("page")
    whole = query_of(Episode).add_columns(reward_of_episode(columns.episode_id), page.c.search_id)  # of the page alone
    whole = whole.join(page, page.c.episode_id == columns.episode_id).order_by(*newest_first)
    return [FoundEpisode(to_record(Episode, row[:-2]), *row[-2:]) for row in connection.execute(whole)]


def episode_ids(connection: Connection, asked: EpisodeQuery, limit: int | None = None) -> list[str]:
    """Returns the ids of the episodes that are meant, those that started first first."""
    table = schema.episodes.c
    query = select(table.episode_id).where(episode_condition(connection, asked))
    return list(connection.execute(query.order_by(table.started_at, table.episode_id).limit(limit)).scalars())


def episode_outlines(connection: Connection, asked: EpisodeQuery) -> list[EpisodeOutline]:
    """Returns what figures of the episodes that are meant are made of."""
    table = schema.episodes.c
    columns = (table[name] for name in EpisodeOutline._fields[:-1])
    query = select(*columns, reward_of_episode(table.episode_id)).where(episode_condition(connection, asked))
    return [EpisodeOutline._make(row) for row in connection.execute(query)]


def attempt_groups(connection: Connection, agent_ids: Collection[str] | None) -> list[AttemptGroups]:
    """Returns the groups of attempts of these agents, of all where None, by how many, mixed and known they are."""
    episodes, outcome = schema.episodes.c, rewards_of_episodes()
    spread = cast(func.max(outcome.c.reward) - func.min(outcome.c.reward), Float)
    size = func.count()
    group = (
        select(
            size.label("size"),
            case((spread > _SPREAD, 1), else_=0).label("mixed"),
            case((func.count(outcome.c.reward) == size, 1), else_=0).label("known"),
        )
        .select_from(schema.episodes.outerjoin(outcome, outcome.c.episode_id == episodes.episode_id))
        .where(episodes.task_id.is_not(None))
        .group_by(episodes.agent_id, episodes.task_id)
    )
    if agent_ids is not None:
        group = group.where(episodes.agent_id.in_(list(agent_ids)))
    kinds = group.subquery().c
    query = select(kinds.size, kinds.mixed, kinds.known, func.count()).group_by(kinds.size, kinds.mixed, kinds.known)
    return [AttemptGroups(row[0], bool(row[1]), bool(row[2]), row[3]) for row in connection.execute(query)]


def episode_states(connection: Connection, episode_ids: Collection[str]) -> dict[str, EpisodeStatus]:
    """Returns the status of those of the episodes that are there."""
    table = schema.episodes.c
    query = select(table.episode_id, table.status).where(is_one_of(connection, table.episode_id, episode_ids))
    return {row[0]: EpisodeStatus(row[1]) for row in connection.execute(query)}


def episode_ids_like(connection: Connection, beginning: str, limit: int) -> list[str]:
    """Returns the first ids of episodes that begin so."""
    column = schema.episodes.c.episode_id
    query = select(column).where(column >= beginning, column <= beginning + _LAST).order_by(column).limit(limit)
    return list(connection.execute(query).scalars())


def running_episodes(connection: Connection, source: str) -> list[tuple[Episode, datetime | None]]:
    """Returns the episodes of a source that run, each with when its last span ended; None: it has none."""
    episodes, spans = schema.episodes.c, schema.spans.c
    last = select(func.max(spans.ended_at)).where(spans.episode_id == episodes.episode_id).scalar_subquery()
    running = (episodes.source == source, episodes.status == EpisodeStatus.RUNNING.value)
    rows = connection.execute(query_of(Episode).where(*running).add_columns(last))
    return [(to_record(Episode, row[:-1]), row[-1]) for row in rows]


def episode_condition(connection: Connection, asked: EpisodeQuery) -> ColumnElement[bool]:
    """Returns the condition of the episodes that are meant."""
    table = schema.episodes.c
    conditions = equals(schema.episodes, asked, "agent_id", "task_id", "status", "source")
    if asked.ids is not None:
        conditions.append(is_one_of(connection, table.episode_id, asked.ids))
    if asked.since is not None:
        conditions.append(table.started_at >= asked.since)
    if asked.until is not None:
        conditions.append(table.started_at < asked.until)
    if asked.ended_before is not None:
        conditions.append(table.status != EpisodeStatus.RUNNING.value)
        conditions.append(func.coalesce(table.ended_at, table.started_at) < asked.ended_before)
    if asked.reward_below is not None:
        conditions.append(reward_of_episode(table.episode_id) < asked.reward_below)
    if asked.reward_above is not None:
        conditions.append(reward_of_episode(table.episode_id) > asked.reward_above)
    if asked.without_reward:
        conditions.append(reward_of_episode(table.episode_id).is_(None))
    return and_(true(), *conditions)
