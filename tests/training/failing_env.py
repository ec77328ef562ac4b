"""An environment that works for a while and then breaks gymnasium's rules; registered by its import."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Failing(gymnasium.Env[Any, Any]):
    """Shows an observation that is not finite after 3,000 steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self._count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._count += 1
        shown = np.full(2, np.nan if self._count > 3000 else 0.5, dtype=np.float32)
        return shown, 0.0, self._count % 20 == 0, False, {}


if "learnloop-tests/Failing-v0" not in gymnasium.registry:
    gymnasium.register("learnloop-tests/Failing-v0", entry_point=Failing)
