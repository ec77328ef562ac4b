"""The environment of seed 1's problem: prompts, seen as 1,536 numbers each, and one of 5 mutations for each of them."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from learnloop.core.arrays import F32

SIZE = 1536
NUM_ACTIONS = 5
NUM_STEPS = 5
NUM_PROMPTS = 1024


class Prompts(gymnasium.Env[F32, int]):
    """A random linear map says which mutation is right; 1 for it, 0 for others. Steps cost next to nothing."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)  # type: ignore[assignment]  # of numpy integers
        self._prompts = rng.standard_normal((NUM_PROMPTS, SIZE), dtype=np.float32)
        self.best = (self._prompts @ rng.standard_normal((SIZE, NUM_ACTIONS))).argmax(axis=1).tolist()
        self.current = 0
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[F32, dict[str, Any]]:
        """Begins with a random prompt."""
        super().reset(seed=seed)
        self._step = 0
        return self._draw(), {}

    def step(self, action: int) -> tuple[F32, SupportsFloat, bool, bool, dict[str, Any]]:
        """Rewards the mutation and goes on with another prompt."""
        reward = float(action == self.best[self.current])
        self._step += 1
        return self._draw(), reward, self._step == NUM_STEPS, False, {}

    def _draw(self) -> F32:
        self.current = int(self.np_random.integers(NUM_PROMPTS))
        prompt: F32 = self._prompts[self.current]
        return prompt
