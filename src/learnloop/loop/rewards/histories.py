"""What tasks have cost before, from the ledger: what the reward for efficiency is relative to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sqlalchemy import Select, exists, func, select

from learnloop.core.attempts import Attempt
from learnloop.loop.workspace.workspace import Workspace
from learnloop.rewards.functions.efficiency import History
from learnloop.store import schema

COSTS = "costs"
"""The entry of a share's metadata with what its run cost; it stands in the first line of a sharing."""
_MAX_RUNS = 100
"""The newest runs of a task that count."""
_MAX_LINES = 1_000
"""The newest lines of a task that are looked at for them, so that a long history costs no more than a short one."""
_SUCCESS = 0.5
_LAST = "\U0010ffff"
_before: ContextVar[str] = ContextVar("before", default=_LAST)


@contextmanager
def as_of(key: str) -> Iterator[None]:
    """Lets histories be what they were when the reward, or the sharing, with this id was made."""
    token = _before.set(key)
    try:
        yield
    finally:
        _before.reset(token)


class StoredHistories:
    """The histories of the tasks in a store, read when they are asked for.

    A history is of the other runs of an attempt's task: the newest whose reward, as it counts now, is at least 0.5.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._store = workspace.store

    def __call__(self, attempt: Attempt) -> History | None:
        """Returns what the task of an attempt has cost; None where the attempt is of no task."""
        if attempt.task_id is None:
            return None
        query = _costs(attempt.task_id, attempt.episode_id, _before.get())
        found = self._store.read(lambda connection: list(connection.execute(query).scalars()))
        costs = [metadata[COSTS] for metadata in found if isinstance(metadata.get(COSTS), Mapping)]
        return History(**{
            name: [float(cost[name]) for cost in costs if name in cost] for name in History.__struct_fields__
        })  # fmt: skip


def _costs(task_id: str, episode_id: str | None, before: str) -> Select[Any]:
    """Returns the query of what the first lines of the sharings that count say, the newest first."""
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
        given.c.raw_reward >= _SUCCESS,
        is_first,
        ~is_replaced,
    )
    if episode_id is not None:
        query = query.where((given.c.episode_id != episode_id) | given.c.episode_id.is_(None))
    return query.order_by(given.c.reward_share_id.desc()).limit(_MAX_RUNS)
