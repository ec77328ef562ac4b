"""Decisions that nobody rewarded in time."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, func, select

from learnloop.store import schema
from learnloop.store.queries.records import is_one_of
from learnloop.store.queries.rewards import is_of_whole


class LogPlace(NamedTuple):
    """How far a policy's log has been looked at."""

    sequence: int
    """All decisions up to here that were not deferred are done."""
    activated_at: datetime
    """All that were activated until then are done."""


class Unrewarded(NamedTuple):
    """A decision without a reward."""

    sequence: int
    decision_id: str
    episode_id: str | None


def unrewarded_decisions(
    connection: Connection, agent_id: str, policy: str, place: LogPlace, due: datetime, limit: int
) -> tuple[list[Unrewarded], LogPlace]:
    """Returns a page of the decisions of a policy that have no reward of their own or of their episode.

    A deferred decision counts from when it was activated on. Imported decisions, which had their own rules and their
    own time, do not count.

    Args:
        connection: in a transaction.
        agent_id: whose policy.
        policy: which policy.
        place: where the page begins.
        due: only decisions made, or activated, until then.
        limit: the most to return of those that were not deferred.

    Returns:
        The decisions, and how far the log has been looked at with them.
    """
    decisions = schema.decisions.c
    mine = and_(decisions.agent_id == agent_id, decisions.policy == policy, decisions.settings_version.is_not(None))
    after = and_(mine, decisions.sequence > place.sequence)
    newest = select(func.max(decisions.sequence)).where(after)
    waiting = select(func.min(decisions.sequence)).where(after, ~decisions.is_deferred, decisions.created_at > due)
    last = connection.execute(waiting).scalar_one()  # what comes after it waits with it, however much that is
    last = connection.execute(newest).scalar_one() if last is None else last - 1
    plain = and_(after, ~decisions.is_deferred, decisions.created_at <= due)
    if last is not None:
        plain = and_(plain, decisions.sequence <= last)
    found = _fetch(connection, _unrewarded().where(plain).order_by(decisions.sequence).limit(limit))
    if len(found) == limit:
        return found, place._replace(sequence=found[-1].sequence)
    activated, reached = _activated(connection, mine, place.activated_at, due, limit)
    return found + activated, LogPlace(last or place.sequence, max(reached, place.activated_at))


def _activated(
    connection: Connection, mine: ColumnElement[bool], after: datetime, due: datetime, limit: int
) -> tuple[list[Unrewarded], datetime]:
    """Returns the deferred ones among a page of activations, which are looked at first: there are few new ones."""
    decisions, activations = schema.decisions.c, schema.decision_activations.c
    new = and_(activations.created_at > after, activations.created_at <= due)
    page = select(activations.created_at).where(new).order_by(activations.created_at).offset(limit - 1).limit(1)
    reached: datetime = connection.execute(page).scalar_one_or_none() or due
    query = select(activations.decision_id).where(new, activations.created_at <= reached)
    ids = list(connection.execute(query).scalars())
    return _fetch(connection, _unrewarded().where(mine, is_one_of(connection, decisions.decision_id, ids))), reached


def _unrewarded() -> Select[Any]:
    decisions, rewards = schema.decisions.c, schema.rewards.c
    own = exists().where(rewards.decision_id == decisions.decision_id)
    of_episode = exists().where(rewards.episode_id == decisions.episode_id, is_of_whole(schema.rewards))
    return select(decisions.sequence, decisions.decision_id, decisions.episode_id).where(~own, ~of_episode)


def _fetch(connection: Connection, query: Select[Any]) -> list[Unrewarded]:
    return [Unrewarded(*row) for row in connection.execute(query)]
