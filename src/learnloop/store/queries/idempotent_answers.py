"""Answers to requests that may come again: those that are too old to be kept."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, select

from learnloop.store import schema

_TABLE = schema.idempotent_answers


def has_answers_before(connection: Connection, moment: datetime) -> bool:
    """Returns whether an answer, or a claim, is older than that."""
    query = select(_TABLE.c.idempotent_answer_id).where(_TABLE.c.created_at < moment).limit(1)
    return connection.execute(query).first() is not None


def remove_answers_before(connection: Connection, moment: datetime) -> int:
    """Removes the answers and claims that are older than that and returns how many."""
    return connection.execute(delete(_TABLE).where(_TABLE.c.created_at < moment)).rowcount
