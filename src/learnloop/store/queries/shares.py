"""Shares of rewards, the table ``reward_history``: which sharing of a run counts, and what was booked for whom.

A run may be shared out again: the lines of one sharing have one ``completion_id``, and of a run the newest counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, exists, func, select

from learnloop.core.records import Json, RewardShare
from learnloop.store import schema
from learnloop.store.queries.records import all_records

_ROWS = 2_000
_MAX_LINES = 1_000
"""The newest lines of a task that are looked at for its runs, so that a long history costs no more than a short one."""


class ShareLine(NamedTuple):
    """A line as an audit looks at it."""

    completion_id: str
    agent_id: str
    step: int | None
    span_id: str | None
    episode_id: str | None
    task_id: str | None
    raw_reward: float
    shaped_reward: float
    credit_assigned: float
    method: str
    has_episode: bool
    """Whether the episode that it names is there."""


def counting_shares(connection: Connection, episode_id: str) -> list[RewardShare]:
    """Returns the shares of a run that count, in the order of booking."""
    table = schema.reward_history.c
    newest = select(func.max(table.completion_id)).where(table.episode_id == episode_id)
    completion_id = connection.execute(newest).scalar_one()
    if completion_id is None:
        return []
    return all_records(connection, RewardShare, {"completion_id": completion_id}, order="reward_share_id")


def credit_totals(
    connection: Connection, where: Mapping[str, str | None], after: str | None, limit: int
) -> list[tuple[str, float, int, int]]:
    """Returns agents by name, each with the sum of its shares that count, their number and that of their sharings.

    Args:
        connection: in a transaction.
        where: the value of each named column; None narrows nothing.
        after: the last agent of the page before.
        limit: the most agents to return.
    """
    given, later = schema.reward_history.alias("given"), schema.reward_history.alias("later")
    is_replaced = exists().where(
        later.c.episode_id == given.c.episode_id, later.c.completion_id > given.c.completion_id
    )
    columns = (given.c.agent_id, func.sum(given.c.credit_assigned), func.count())
    query = select(*columns, func.count(given.c.completion_id.distinct())).where(~is_replaced)
    for name, value in where.items():
        if value is not None:
            query = query.where(given.c[name] == value)
    if after is not None:
        query = query.where(given.c.agent_id > after)
    query = query.group_by(given.c.agent_id).order_by(given.c.agent_id).limit(limit)
    return [(row[0], row[1], row[2], row[3]) for row in connection.execute(query)]


def lines_by_completion(connection: Connection, after: str, limit: int) -> Iterator[ShareLine]:
    """Yields the lines of the next ``limit`` sharings after a completion, those of one together; some at a time."""
    table, episodes = schema.reward_history, schema.episodes.c
    ids = select(table.c.completion_id).distinct().where(table.c.completion_id > after)
    page = list(connection.execute(ids.order_by(table.c.completion_id).limit(limit)).scalars())
    if not page:
        return
    columns = (table.c[name] for name in ShareLine._fields[:-1])
    query = select(*columns, episodes.episode_id.is_not(None))
    query = query.outerjoin(schema.episodes, episodes.episode_id == table.c.episode_id)
    query = query.where(table.c.completion_id.between(page[0], page[-1])).order_by(table.c.completion_id)
    for row in connection.execution_options(yield_per=_ROWS).execute(query):
        yield ShareLine(*row)


def metadata_of_runs(
    connection: Connection, task_id: str, *, min_reward: float, other_than: str | None, before: str, limit: int
) -> list[Json]:
    """Returns what the first lines of the sharings that count say, of runs of a task, the newest first.

    Args:
        connection: in a transaction.
        task_id: which task.
        min_reward: only of runs that were worth so much or more before shaping.
        other_than: the episode to leave out.
        before: only what was booked before the share, or the sharing, of this id counts.
        limit: the most to return.
    """
    given = schema.reward_history.alias("given")
    other, later, line = (schema.reward_history.alias(name) for name in ("other", "later", "line"))
    key = line.c.reward_share_id
    oldest = select(key).where(line.c.task_id == task_id, line.c.reward_share_id < before)
    oldest = oldest.order_by(key.desc()).limit(1).offset(_MAX_LINES)
    is_first = ~exists().where(
        other.c.completion_id == given.c.completion_id, other.c.reward_share_id < given.c.reward_share_id
    )
    is_replaced = exists().where(
        later.c.episode_id == given.c.episode_id,
        later.c.completion_id > given.c.completion_id,
        later.c.completion_id < before,
    )
    query = select(given.c.metadata).where(
        given.c.task_id == task_id,
        given.c.reward_share_id < before,
        given.c.reward_share_id > func.coalesce(oldest.scalar_subquery(), ""),
        given.c.raw_reward >= min_reward,
        is_first,
        ~is_replaced,
    )
    if other_than is not None:
        query = query.where((given.c.episode_id != other_than) | given.c.episode_id.is_(None))
    return list(connection.execute(query.order_by(given.c.reward_share_id.desc()).limit(limit)).scalars())
