"""Decisions: of which policy they are, what was asked, and what the caller's own logic chose."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, case, exists, func, or_, select

from learnloop.core.records import Decision
from learnloop.store import schema
from learnloop.store.queries.records import equals, fetch, fetch_numbered, is_one_of, query_of
from learnloop.store.queries.rewards import is_of_whole


class DecisionQuery(NamedTuple):
    """Which decisions are meant; what is None narrows nothing."""

    agent_id: str | None = None
    policy: str | None = None
    episode_id: str | None = None
    after: str | None = None
    """Those whose ids are higher."""
    since: datetime | None = None
    """Made at this time or later."""
    until: datetime | None = None
    """Made before this time."""
    rewarded: bool = False
    """Whether only those count of which some part of the reward is known, theirs or their whole episode's."""


def decisions_by_id(connection: Connection, asked: DecisionQuery, limit: int) -> list[Decision]:
    """Returns the decisions that are meant with the lowest ids, in the order of their ids."""
    return fetch(connection, Decision, _narrowed(asked).order_by(schema.decisions.c.decision_id).limit(limit))


def newest_decisions(
    connection: Connection, asked: DecisionQuery, before: int | None, limit: int
) -> list[tuple[int, Decision]]:
    """Returns a page of the decisions that are meant, each with its sequence, what became durable last first.

    Args:
        connection: in a transaction.
        asked: which decisions.
        before: the sequence of the last one on the page before; None: begin.
        limit: the most to return.
    """
    sequence = schema.decisions.c.sequence
    query = _narrowed(asked)
    if before is not None:
        query = query.where(sequence < before)
    return fetch_numbered(connection, Decision, query.order_by(sequence.desc()).limit(limit))


def decisions_of_requests(
    connection: Connection, agent_id: str, policy: str, request_ids: Collection[str]
) -> dict[str, list[str]]:
    """Returns the ids of a policy's decisions by the request that they were made for; it reads all of them."""
    table = schema.decisions.c
    query = select(table.request_id, table.decision_id).where(
        table.agent_id == agent_id, table.policy == policy, table.request_id.is_not(None)
    )
    wanted, found = set(request_ids), dict[str, list[str]]()
    for request_id, decision_id in connection.execute(query):
        if request_id in wanted:
            found.setdefault(request_id, []).append(decision_id)
    return found


def episodes_of_decisions(connection: Connection, decision_ids: Collection[str]) -> dict[str, str | None]:
    """Returns the episode of each of the decisions that are there; None: it was made outside of one."""
    table = schema.decisions.c
    query = select(table.decision_id, table.episode_id).where(is_one_of(connection, table.decision_id, decision_ids))
    return {row[0]: row[1] for row in connection.execute(query)}


def num_policies(connection: Connection, agent_id: str) -> int:
    """Returns how many policies of an agent have decided something."""
    table = schema.decisions.c
    query = select(func.count(table.policy.distinct())).where(table.agent_id == agent_id)
    return int(connection.execute(query).scalar_one())


def num_matched(connection: Connection, agent_id: str, policy: str, newest: int | None) -> tuple[int, int]:
    """Returns of how many decisions both the policy's own choice and the caller's are known, and how many agree.

    Args:
        connection: in a transaction.
        agent_id: whose policy.
        policy: which policy.
        newest: of so many of them, the newest; None: of all.
    """
    table = schema.decisions.c
    query = select(case((table.policy_action == table.baseline_action, 1), else_=0).label("matched")).where(
        table.agent_id == agent_id,
        table.policy == policy,
        table.policy_action.is_not(None),
        table.baseline_action.is_not(None),
    )
    if newest is not None:
        query = query.order_by(table.sequence.desc()).limit(newest)
    found = query.subquery()
    counts = select(func.count(), func.coalesce(func.sum(found.c.matched), 0)).select_from(found)
    number, matched = connection.execute(counts).one()
    return int(number), int(matched)


def _narrowed(asked: DecisionQuery) -> Select[Any]:
    table = schema.decisions.c
    query = query_of(Decision).where(*equals(schema.decisions, asked, "agent_id", "policy", "episode_id"))
    if asked.after is not None:
        query = query.where(table.decision_id > asked.after)
    if asked.since is not None:
        query = query.where(table.created_at >= asked.since)
    if asked.until is not None:
        query = query.where(table.created_at < asked.until)
    return query.where(_has_reward()) if asked.rewarded else query


def _has_reward() -> ColumnElement[bool]:
    rewards, decisions = schema.rewards.c, schema.decisions.c
    own = exists().where(rewards.decision_id == decisions.decision_id, rewards.value.is_not(None))
    episode = exists().where(
        rewards.episode_id == decisions.episode_id, is_of_whole(schema.rewards), rewards.value.is_not(None)
    )
    return or_(own, episode)


def has_decisions_of(connection: Connection, agent_id: str, policy: str, algorithms: Sequence[str]) -> bool:
    """Returns whether one of ``algorithms`` made a decision of a policy of which no settings were kept."""
    table = schema.decisions.c
    mine = (table.agent_id == agent_id, table.policy == policy, table.settings_version.is_(None))
    query = select(table.decision_id).where(*mine, table.algorithm.in_(algorithms)).limit(1)
    return connection.execute(query).first() is not None
