"""Requests for labels that wait for a person, and the episodes without a label."""

from __future__ import annotations

from sqlalchemy import Connection, exists, or_, select

from learnloop.core.records import EpisodeStatus, LabelRequest, LabelStatus
from learnloop.core.rewards import LABEL
from learnloop.store import schema
from learnloop.store.queries.records import fetch, query_of
from learnloop.store.queries.rewards import is_of_whole


def open_requests(connection: Connection, after: tuple[float, str] | None, limit: int) -> list[LabelRequest]:
    """Returns a page of open requests, the highest priority first; of equal ones the oldest.

    Args:
        connection: in a transaction.
        after: priority and id of the last request of the page before.
        limit: the most to return.
    """
    table = schema.label_requests.c
    query = query_of(LabelRequest).where(table.status == LabelStatus.OPEN.value)
    if after is not None:
        priority, key = after
        later = (table.priority == priority) & (table.label_request_id > key)
        query = query.where(or_(table.priority < priority, later))
    query = query.order_by(table.priority.desc(), table.label_request_id).limit(limit)
    return fetch(connection, LabelRequest, query)


def unlabelled_episodes(connection: Connection, agent_id: str | None) -> list[str]:
    """Returns the ids of the ended episodes that have neither a label nor a request, be it open, answered or skipped.

    Args:
        connection: in a transaction.
        agent_id: only this agent's; None: all.
    """
    episodes, rewards, requests = schema.episodes.c, schema.rewards.c, schema.label_requests.c
    has_label = exists().where(
        rewards.episode_id == episodes.episode_id,
        rewards.name == LABEL,
        rewards.source == LABEL,
        is_of_whole(schema.rewards),
    )
    was_asked = exists().where(requests.episode_id == episodes.episode_id)
    query = select(episodes.episode_id).where(episodes.status != EpisodeStatus.RUNNING.value, ~has_label, ~was_asked)
    query = query if agent_id is None else query.where(episodes.agent_id == agent_id)
    return list(connection.execute(query.order_by(episodes.episode_id)).scalars())
