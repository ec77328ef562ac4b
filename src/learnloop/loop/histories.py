"""What tasks have cost before, from the ledger: what the reward for efficiency is relative to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlalchemy import func, select

from learnloop.loop.workspace import Workspace
from learnloop.rewards.efficiency import History
from learnloop.store import schema

COSTS = "costs"
"""The entry of a share's metadata with what its run cost."""
_MAX_RUNS = 100
"""The newest runs of a task that count."""
_SUCCESS = 0.5


class StoredHistories(Mapping[str, History]):
    """The history of each task in a store: its newest runs with a reward of at least 0.5. Read when it is asked for."""

    def __init__(self, workspace: Workspace) -> None:
        self._store = workspace.store

    def __getitem__(self, task_id: str) -> History:
        """Returns what the task has cost; an empty history where nothing is known."""
        table = schema.reward_history.c
        first = select(func.min(table.reward_share_id)).where(table.task_id == task_id, table.raw_reward >= _SUCCESS)
        first = first.group_by(table.completion_id).order_by(table.completion_id.desc()).limit(_MAX_RUNS)
        query = select(table.metadata).where(
            table.reward_share_id.in_(first)
        )  # what a run cost stands in its first line
        found = self._store.read(lambda connection: list(connection.execute(query).scalars()))
        costs = [metadata[COSTS] for metadata in found if isinstance(metadata.get(COSTS), Mapping)]
        return History(**{
            name: [float(cost[name]) for cost in costs if name in cost] for name in History.__struct_fields__
        })  # fmt: skip

    def __iter__(self) -> Iterator[str]:
        """Yields the tasks that have a history."""
        query = select(schema.reward_history.c.task_id).distinct().where(schema.reward_history.c.task_id.is_not(None))
        return iter(self._store.read(lambda connection: list(connection.execute(query).scalars())))

    def __len__(self) -> int:
        """Returns how many tasks have one."""
        return sum(1 for _ in self)
