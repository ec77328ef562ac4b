"""A small data set whose best policy is known: probe P5, logged by the uniform policy."""

from __future__ import annotations

import numpy as np

from learnloop.core.datasets import Dataset
from learnloop.core.spaces import Box, Discrete, Spaces

ENV = "learnloop/ContextualReward-v0"
"""The environment that was logged: shows -1 or 1; action 0 pays 1 for -1, action 1 for 1, the other one -1."""


def logged_contexts(num_episodes: int = 400, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    shown = rng.choice([-1.0, 1.0], size=(num_episodes, 1)).astype(np.float32)
    actions = rng.integers(2, size=num_episodes)
    rewards = np.where(actions == (shown[:, 0] > 0), 1.0, -1.0)
    return Dataset(
        spaces=Spaces(observation=Box(shape=(1,), low=(-1.0,), high=(1.0,)), action=Discrete(n=2)),
        observations=shown,
        actions=actions,
        rewards=rewards,
        next_observations=shown,
        terminated=np.ones(num_episodes, dtype=np.bool_),
        truncated=np.zeros(num_episodes, dtype=np.bool_),
        episodes=np.arange(num_episodes),
        goals=[""] * num_episodes,
        source="a test",
    )
