"""A random stream of envs that can be interrupted and goes on where it stopped."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.algorithms.steps import env_step

F = np.float32


class RandomStream:
    """Envs whose observations are noise; what an action earns depends on what it was chosen on."""

    def __init__(self, num_envs: int, size: int, seed: int, *, ends: float = 0.1) -> None:
        self._rng = np.random.default_rng(seed)
        self._shape = num_envs, size
        self._ends = ends
        self._observations = self._noise()

    def drive(self, algorithm: Any, num_vector_steps: int) -> None:
        """Lets ``algorithm`` act and learn."""
        rng, lanes = self._rng, self._shape[0]
        for _ in range(num_vector_steps):
            actions = algorithm.choose(self._observations)
            first = actions.reshape(lanes, -1)[:, 0]
            rewards = np.tanh(self._observations[:, 0] * (2.0 * first - 1.0)) + 0.1 * rng.standard_normal(lanes)
            final = self._noise()
            ended = rng.random(lanes) < self._ends
            cut = ended & (rng.random(lanes) < 0.5)
            self._observations = np.where(ended[:, None], self._noise(), final).astype(F)
            ends = {"terminated": ended & ~cut, "truncated": cut}
            algorithm.record(env_step(self._observations, rewards, final_observations=final, **ends))
            algorithm.learn()

    def _noise(self) -> np.ndarray:
        return self._rng.standard_normal(self._shape).astype(F)
