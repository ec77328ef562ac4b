"""Steps of envs for tests: what an environment would hand to an algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np

from learnloop.core.spaces import ActionSpace, Box, Discrete, Spaces
from learnloop.core.stepping import EnvStep


def box(size: int) -> Box:
    """Returns an observation space of ``size`` numbers without bounds."""
    return Box(shape=(size,), low=(None,) * size, high=(None,) * size)


def spaces(size: int = 3, action: ActionSpace | None = None) -> Spaces:
    """Returns spaces with ``size`` observed numbers."""
    return Spaces(observation=box(size), action=action or Discrete(n=2))


def env_step(observations: Any, rewards: Any, **fields: Any) -> EnvStep:
    """Returns a step of envs in which nothing ends unless ``fields`` say so."""
    rewards = np.asarray(rewards, dtype=np.float64)
    observations = np.asarray(observations, dtype=np.float32)
    given = {
        "observations": observations,
        "final_observations": observations,
        "rewards": rewards,
        "terminated": np.zeros(len(rewards), dtype=np.bool_),
        "truncated": np.zeros(len(rewards), dtype=np.bool_),
        "valid": None,
        "masks": None,
        "final_masks": None,
    }
    as_arrays = {name: np.asarray(value) if isinstance(value, list) else value for name, value in fields.items()}
    return EnvStep(**{**given, **as_arrays})


def drive(algorithm: Any, num_vector_steps: int, seed: int = 0, *, ends: float = 0.1) -> None:
    """Lets ``algorithm`` act in, and learn from, a random stream of envs that depends on ``seed`` alone."""
    rng = np.random.default_rng(seed)
    lanes, size = algorithm.num_envs, algorithm.encoder.size
    observations = rng.standard_normal((lanes, size)).astype(np.float32)
    for _ in range(num_vector_steps):
        actions = algorithm.choose(observations)
        first = actions.reshape(lanes, -1)[:, 0]
        rewards = np.tanh(observations[:, 0] * (2.0 * first - 1.0)) + 0.1 * rng.standard_normal(lanes)
        final = rng.standard_normal((lanes, size)).astype(np.float32)
        ended = rng.random(lanes) < ends
        cut = ended & (rng.random(lanes) < 0.5)
        observations = np.where(ended[:, None], rng.standard_normal((lanes, size)), final).astype(np.float32)
        algorithm.record(
            env_step(observations, rewards, final_observations=final, terminated=ended & ~cut, truncated=cut)
        )
        algorithm.learn()
