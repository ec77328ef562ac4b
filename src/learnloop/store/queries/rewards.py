"""Rewards: of what they are, in the order in which they became durable."""

from __future__ import annotations

from sqlalchemy import Connection

from learnloop.core.records import Reward
from learnloop.store import schema
from learnloop.store.queries.records import fetch_numbered, query_of


def rewards_after(connection: Connection, sequence: int, limit: int) -> list[tuple[int, Reward]]:
    """Returns the rewards that became durable after that one, each with its sequence, oldest first."""
    place = schema.rewards.c.sequence
    return fetch_numbered(connection, Reward, query_of(Reward).where(place > sequence).order_by(place).limit(limit))
