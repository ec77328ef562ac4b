"""What belongs to episodes, and what belongs to none: to be counted, read and removed, some rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Select, and_, delete, exists, func, or_, select

from learnloop.core.records import (
    Decision,
    DecisionActivation,
    Episode,
    LabelRequest,
    Record,
    Reward,
    RewardShare,
    Span,
    Task,
)
from learnloop.store import schema
from learnloop.store.mapping import table_of
from learnloop.store.queries.episodes import EpisodeQuery, episode_condition
from learnloop.store.queries.records import fetch, query_of

R = TypeVar("R", bound=Record)

BELONGINGS: tuple[type[Record], ...] = (LabelRequest, RewardShare, Reward, DecisionActivation, Decision, Span)
"""What belongs to episodes, in the order in which it goes: what others are found by goes later."""
ORPHANS: tuple[type[Record], ...] = (LabelRequest, RewardShare, Reward, Decision, DecisionActivation, Span)
"""As ``BELONGINGS``, of what belongs to none."""


class Orphans(NamedTuple):
    """What belongs to no episode and is older than that."""

    before: datetime


Owner = EpisodeQuery | Orphans


def num_belonging(connection: Connection, kind: type[Record], owner: Owner) -> int:
    """Returns how many records of a kind belong to the episodes that are meant, or to none."""
    query = select(func.count()).select_from(table_of(kind)).where(_condition(connection, kind, owner))
    return int(connection.execute(query).scalar_one())


def rows_belonging(connection: Connection, kind: type[Record], owner: Owner, limit: int) -> list[Any]:
    """Returns the primary keys of some rows of a kind that belong to the episodes that are meant, or to none."""
    query = select(_row_key(kind)).where(_condition(connection, kind, owner)).limit(limit)
    return list(connection.execute(query).scalars())


def remove_belonging(connection: Connection, kind: type[Record], owner: Owner, rows: Sequence[Any]) -> None:
    """Removes rows by their primary keys, but for those that do not belong there any more."""
    condition = _condition(connection, kind, owner)
    connection.execute(delete(table_of(kind)).where(_row_key(kind).in_(rows), condition))


def records_belonging(
    connection: Connection, kind: type[R], owner: EpisodeQuery, after: str | None, limit: int
) -> list[R]:
    """Returns a page of the records of a kind that belong to the episodes that are meant, in the order of their key.

    Args:
        connection: in a transaction.
        kind: one of ``BELONGINGS``, the episodes themselves, or the tasks that they try.
        owner: which episodes.
        after: the key of the last record of the page before.
        limit: the most to return.
    """
    key = table_of(kind).columns[kind.__struct_fields__[0]]
    query = query_of(kind).where(_condition(connection, kind, owner)).order_by(key).limit(limit)
    return fetch(connection, kind, query if after is None else query.where(key > after))


def remove_untried_task(connection: Connection, task_id: str) -> int:
    """Removes a task that no episode tries and no share names; returns how many that were."""
    tasks = schema.tasks.c
    tried = exists().where(schema.episodes.c.task_id == tasks.task_id)
    shared = exists().where(schema.reward_history.c.task_id == tasks.task_id)
    return connection.execute(delete(schema.tasks).where(tasks.task_id == task_id, ~tried, ~shared)).rowcount


def _row_key(kind: type[Record]) -> Column[Any]:
    key: Column[Any] = next(iter(table_of(kind).primary_key.columns))
    return key


def _condition(connection: Connection, kind: type[Record], owner: Owner) -> ColumnElement[bool]:
    return _is_lost(kind, owner.before) if isinstance(owner, Orphans) else _is_owned(connection, kind, owner)


def _is_owned(connection: Connection, kind: type[Record], owner: EpisodeQuery) -> ColumnElement[bool]:
    """Returns the condition of records that belong to the episodes that are meant."""
    columns, decisions = table_of(kind).c, schema.decisions.c
    if kind is Episode:
        return episode_condition(connection, owner)
    if kind is Task:
        return columns.task_id.in_(_of_episodes(connection, owner, "task_id"))
    is_named = owner.ids is not None and owner == EpisodeQuery(ids=owner.ids)
    # PostgreSQL looks into an index for ids that it is given, and not for those of a query inside an OR.
    ids: Any = owner.ids if is_named else _of_episodes(connection, owner, "episode_id")
    if kind is Reward or kind is DecisionActivation:
        of_decisions = columns.decision_id.in_(select(decisions.decision_id).where(decisions.episode_id.in_(ids)))
        return of_decisions if kind is DecisionActivation else or_(columns.episode_id.in_(ids), of_decisions)
    if kind is Span:
        in_traces = columns.trace_id.in_(_of_episodes(connection, owner, "trace_id"))
        return or_(columns.episode_id.in_(ids), and_(columns.episode_id.is_(None), in_traces))
    return columns.episode_id.in_(ids)


def _of_episodes(connection: Connection, owner: EpisodeQuery, name: str) -> Select[Any]:
    """Returns the query of a column of the episodes that are meant."""
    return select(schema.episodes.columns[name]).where(episode_condition(connection, owner))


def _is_lost(kind: type[Record], before: datetime) -> ColumnElement[bool]:
    """Returns the condition of records that belong to no episode and are older than ``before``."""
    columns, episodes, decisions = table_of(kind).c, schema.episodes.c, schema.decisions.c
    if kind is DecisionActivation:
        return and_(columns.created_at < before, ~exists().where(decisions.decision_id == columns.decision_id))
    has_episode = exists().where(episodes.episode_id == columns.episode_id)
    if kind is Span:
        in_trace = exists().where(episodes.trace_id == columns.trace_id)
        return and_(columns.ended_at < before, ~has_episode, ~in_trace)
    if kind is Reward:
        kept = or_(decisions.created_at >= before, exists().where(episodes.episode_id == decisions.episode_id))
        decided = exists().where(decisions.decision_id == columns.decision_id, kept)
        return and_(columns.created_at < before, ~has_episode, ~decided)
    return and_(columns.created_at < before, ~has_episode)
