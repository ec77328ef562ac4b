"""Environments for workers: one whose fault comes after a while, in the process that steps it, registered by import."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import gymnasium
import numpy as np

FAULTY = "tests.training.worker_envs:learnloop-tests/Faulty-v0"


class Faulty(gymnasium.Env[Any, Any]):
    """Pays for the right one of two actions; episodes of 10 steps. Does what ``fault`` says at step ``after``.

    Args:
        fault: ``kill``, ``exit``, ``raise``, ``nan`` or ``hang``; None: all goes well.
        after: so many steps.
        only: the file that the process which takes it is the only one to have the fault; None: all have it.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fault: str | None = None, after: int = 1000, only: str | None = None) -> None:
        self._fault, self._after, self._only = fault, after, only
        self._count = 0
        self._right = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._count += 1
        reward = float(action == self._right)
        if self._count == self._after and self._is_mine():
            reward = self._fail(reward)
        return self._show(), reward, self._count % 10 == 0, False, {}

    def _show(self) -> Any:
        self._right = int(self.np_random.integers(2))
        return np.array([2 * self._right - 1, 1], dtype=np.float32)

    def _is_mine(self) -> bool:
        if self._only is None:
            return True
        try:
            os.close(os.open(self._only, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _fail(self, reward: float) -> float:
        if self._fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "exit":
            sys.exit(5)
        if self._fault == "raise":
            raise RuntimeError("the wheel came off")
        if self._fault == "hang":
            time.sleep(3600)
        return float("nan") if self._fault == "nan" else reward


def make_well() -> Faulty:
    """Returns one without a fault."""
    return Faulty()


if "learnloop-tests/Faulty-v0" not in gymnasium.registry:
    gymnasium.register("learnloop-tests/Faulty-v0", entry_point=Faulty)
