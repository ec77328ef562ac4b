"""Episodes: how they stand, and which are meant."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, func, select

from learnloop.core.records import Episode, EpisodeStatus
from learnloop.store import schema
from learnloop.store.mapping import to_record
from learnloop.store.queries.records import is_one_of, query_of

_LAST = "\U0010ffff"
"""Behind all other characters."""


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
