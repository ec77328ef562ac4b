"""What tasks have cost before, from the ledger: what the reward for efficiency is relative to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from learnloop.core.attempts import Attempt
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.rewards.functions.efficiency import History
from learnloop.store.queries.shares import metadata_of_runs

COSTS = "costs"
"""The entry of a share's metadata with what its run cost; it stands in the first line of a sharing."""
_MAX_RUNS = 100
"""The newest runs of a task that count."""
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

    def __init__(self, workspace: WorkspaceCore) -> None:
        self._store = workspace.store

    def __call__(self, attempt: Attempt) -> History | None:
        """Returns what the task of an attempt has cost; None where the attempt is of no task."""
        if attempt.task_id is None:
            return None
        found = self._store.read(
            metadata_of_runs,
            attempt.task_id,
            min_reward=_SUCCESS,
            other_than=attempt.episode_id,
            before=_before.get(),
            limit=_MAX_RUNS,
        )
        costs = [metadata[COSTS] for metadata in found if isinstance(metadata.get(COSTS), Mapping)]
        return History(**{
            name: [float(cost[name]) for cost in costs if name in cost] for name in History.__struct_fields__
        })  # fmt: skip
