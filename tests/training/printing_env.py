"""An environment that prints, and dies if it is told to; registered by its import."""

from __future__ import annotations

import os
import sys
from typing import Any

import gymnasium
import numpy as np


class Printing(gymnasium.Env[Any, Any]):
    """Prints at each reset; with ``dies`` its process is killed at its hundredth step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, dies: bool = False) -> None:
        self._count = 0
        self._dies = dies

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        sys.stdout.write('{"progress": "hello"}\n')
        return np.zeros(2, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._count += 1
        if self._dies and self._count > 100:
            os.kill(os.getpid(), 9)
        return np.zeros(2, dtype=np.float32), 0.0, self._count % 10 == 0, False, {}


if "learnloop-tests/Printing-v0" not in gymnasium.registry:
    gymnasium.register("learnloop-tests/Printing-v0", entry_point=Printing)
