"""Rewards: which there are, in the order of the log, and what episodes were worth.

What an episode was worth is the rule of ``core/rewards.py``, which a property test holds this equal to.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    ScalarSelect,
    Select,
    Subquery,
    and_,
    case,
    exists,
    func,
    or_,
    select,
)

from learnloop.core.records import DEFAULT, TOTAL, Reward
from learnloop.core.rewards import COMPUTED, LABEL
from learnloop.store import schema
from learnloop.store.queries.records import fetch_numbered, is_one_of, query_of

_CHUNK = 1_000


def rewards_after(connection: Connection, sequence: int, limit: int) -> list[tuple[int, Reward]]:
    """Returns the rewards that became durable after that one, each with its sequence, oldest first."""
    place = schema.rewards.c.sequence
    return fetch_numbered(connection, Reward, query_of(Reward).where(place > sequence).order_by(place).limit(limit))


def earned_rewards(
    connection: Connection, decision_ids: Sequence[str], episode_ids: Sequence[str], before: int | None = None
) -> list[Reward]:
    """Returns the rewards of these decisions and those of these whole episodes, in the order of the log.

    Args:
        connection: in a transaction.
        decision_ids: of the decisions.
        episode_ids: of the episodes; rewards of decisions and spans in them are left out.
        before: only rewards whose sequence is smaller.
    """
    table = schema.rewards.c
    found: list[tuple[int, Reward]] = []
    for column, ids, more in (
        (table.decision_id, decision_ids, ()),
        (table.episode_id, episode_ids, (is_of_whole(schema.rewards),)),
    ):
        for start in range(0, len(ids), _CHUNK):
            query = query_of(Reward).where(column.in_(ids[start : start + _CHUNK]), *more)
            query = query if before is None else query.where(table.sequence < before)
            found += fetch_numbered(connection, Reward, query)
    return [reward for _, reward in sorted(found, key=itemgetter(0))]


def rewards_naming(
    connection: Connection, episode_ids: Sequence[str], decision_ids: Sequence[str]
) -> list[tuple[int, Reward]]:
    """Returns the rewards that name one of these episodes, or no episode and one of these decisions.

    Each comes with its sequence: those of episodes first, and each sort in the order of the log.
    """
    table = schema.rewards.c
    found: list[tuple[int, Reward]] = []
    for column, ids, more in (
        (table.episode_id, episode_ids, ()),
        (table.decision_id, decision_ids, (table.episode_id.is_(None),)),
    ):
        query = query_of(Reward).where(is_one_of(connection, column, ids), *more).order_by(table.sequence)
        found += fetch_numbered(connection, Reward, query) if ids else []
    return found


def span_rewards(connection: Connection, episode_ids: Collection[str]) -> list[tuple[str, str]]:
    """Returns of the rewards that name one of these episodes and a span the ids of the reward and of the span."""
    table = schema.rewards.c
    query = select(table.reward_id, table.span_id).where(
        is_one_of(connection, table.episode_id, episode_ids), table.span_id.is_not(None)
    )
    return [(row[0], row[1]) for row in connection.execute(query)]


def reward_of_episode(episode_id: ColumnElement[str]) -> ScalarSelect[Any]:
    """Returns an expression of what an episode was worth by its own rewards; NULL: it is not known.

    Args:
        episode_id: the column of ``episodes`` that names it.
    """
    query, given = _worth()
    return query.where(given.c.episode_id == episode_id).correlate(schema.episodes).scalar_subquery()


def rewards_of_episodes() -> Subquery:
    """Returns a table of all episodes with a known reward: ``episode_id`` and ``reward``."""
    query, given = _worth()
    return query.add_columns(given.c.episode_id).group_by(given.c.episode_id).subquery()


def is_of_whole(rewards: FromClause) -> ColumnElement[bool]:
    """Returns whether a row that names an episode is of the whole of it: neither of a decision nor of a span in it."""
    return and_(rewards.c.decision_id.is_(None), rewards.c.span_id.is_(None))


def counts_for_episode(rewards: FromClause) -> ColumnElement[bool]:
    """Returns whether a row is a known part of a whole episode's reward, and no metric."""
    columns = rewards.c
    is_own = and_(columns.episode_id.is_not(None), is_of_whole(rewards))
    return and_(is_own, columns.value.is_not(None), columns.weight != 0)


def _worth() -> tuple[Select[Any], FromClause]:
    """Returns the aggregate over an episode's parts, those left out that a later one replaced, and their table."""
    given, later = schema.rewards.alias("given"), schema.rewards.alias("later")
    is_of_same_person = func.coalesce(later.c.author, "") == func.coalesce(given.c.author, "")
    is_replaced = exists().where(
        later.c.episode_id == given.c.episode_id,
        later.c.name == given.c.name,
        or_(given.c.name != LABEL, is_of_same_person),
        later.c.sequence > given.c.sequence,
        counts_for_episode(later),
    )
    total = _total(given.c.name, given.c.source, given.c.value * given.c.weight)
    return select(total.label("reward")).where(counts_for_episode(given), ~is_replaced), given


def _total(name: ColumnElement[str], source: ColumnElement[str], part: ColumnElement[float]) -> ColumnElement[float]:
    """Returns the aggregate of parts: of the first kind that is there, in the order of ``core.rewards.Rank``."""
    is_told = name.not_in((LABEL, TOTAL, DEFAULT))
    return func.coalesce(
        func.avg(case((name == LABEL, part))),
        func.sum(case((name == TOTAL, part))),
        func.sum(case((and_(is_told, source == COMPUTED), part))),
        func.sum(case((is_told, part))),
        func.sum(case((name == DEFAULT, part))),
    )
