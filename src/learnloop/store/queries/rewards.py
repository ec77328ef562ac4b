"""Rewards: of what they are, in the order in which they became durable."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from sqlalchemy import Connection

from learnloop.core.records import Reward
from learnloop.store import schema
from learnloop.store.queries.records import fetch_numbered, query_of

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
        episode_ids: of the episodes; rewards of decisions in them are left out.
        before: only rewards whose sequence is smaller.
    """
    table = schema.rewards.c
    found: list[tuple[int, Reward]] = []
    for column, ids, more in (
        (table.decision_id, decision_ids, ()),
        (table.episode_id, episode_ids, (table.decision_id.is_(None),)),
    ):
        for start in range(0, len(ids), _CHUNK):
            query = query_of(Reward).where(column.in_(ids[start : start + _CHUNK]), *more)
            query = query if before is None else query.where(table.sequence < before)
            found += fetch_numbered(connection, Reward, query)
    return [reward for _, reward in sorted(found, key=itemgetter(0))]
