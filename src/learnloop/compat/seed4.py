"""Seed 4's line for the reward of a finished task: ``await integrator.process_task_completion(task_id, result)``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from learnloop.loop import Workspace
from learnloop.loop.rewards.rewarding import RewardProcess, TaskCompletion, process_task_completion


class RewardSignalIntegrator:
    """Scores finished tasks, shapes their rewards, shares them out over agents and stores them.

    Args:
        workspace: an open one, which its owner closes; that of ``find_settings`` where None.
    """

    def __init__(self, workspace: Workspace | None = None) -> None:
        self._workspace = workspace or Workspace()
        self._process = RewardProcess(self._workspace)

    async def process_task_completion(self, task_id: str, result: Mapping[str, Any]) -> TaskCompletion:
        """Returns what a task was worth and who is credited, once it is stored; see ``Loop.process_task_completion``.

        Args:
            task_id: of the task.
            result: ``task_type``, ``output``, ``expected``, ``metadata``, ``steps`` and ``agents``.
        """
        return await asyncio.to_thread(process_task_completion, self._workspace, task_id, result, process=self._process)
