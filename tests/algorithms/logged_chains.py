"""Data sets whose answers are known: a chain of three states logged by a policy of known chances, and random steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from learnloop.algorithms.building import build_algorithm, configure
from learnloop.core.datasets import Dataset
from learnloop.core.spaces import ActionSpace, Box, Discrete, MultiDiscrete, num_choices
from tests.algorithms.steps import spaces

F = np.float32
GAMMA = 0.9
NUM_STATES = 3
OUTCOMES = {
    (0, 0): (0.3, None),
    (0, 1): (0.0, 1),
    (1, 0): (0.0, 0),
    (1, 1): (0.0, 2),
    (2, 0): (0.1, None),
    (2, 1): (1.0, None),
}
"""(state, action) -> reward and next state; None: the episode terminates."""
RANDOM = (0.5, 0.5, 0.5)


def dataset(columns: dict[str, Any], action: ActionSpace, size: int, **others: Any) -> Dataset:
    """Returns a data set whose episodes are where the flags say."""
    ends = columns["terminated"] | columns["truncated"]
    episodes = np.concatenate([[0], np.cumsum(ends)[:-1]]).astype(np.int64)
    goals = [""] * (int(episodes[-1]) + 1)
    return Dataset(spaces=spaces(size, action), episodes=episodes, goals=goals, source="a test", **columns, **others)


def chain(num_steps: int = 3000, *, seed: int = 0, chances: Any = RANDOM, cut_after: int = 5) -> Dataset:
    """Returns a log of the chain: observations are one-hot, action 1 is taken with the ``chances`` of each state.

    An episode is truncated after ``cut_after`` steps.
    """
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, int, float, int, bool, bool]] = []
    state, length = 0, 0
    while len(rows) < num_steps or not (rows[-1][4] or rows[-1][5]):
        action = int(rng.random() < chances[state])
        reward, following = OUTCOMES[state, action]
        length += 1
        is_cut = following is not None and length == cut_after
        rows.append((state, action, reward, state if following is None else following, following is None, is_cut))
        state, length = (0, 0) if following is None or is_cut else (following, length)
    states, actions, rewards, following_states, terminated, truncated = map(np.array, zip(*rows, strict=True))
    hot = np.eye(NUM_STATES, dtype=F)
    columns = {
        "observations": hot[states],
        "actions": actions.astype(np.int64),
        "rewards": rewards.astype(np.float64),
        "next_observations": hot[following_states],
        "terminated": terminated.astype(np.bool_),
        "truncated": truncated.astype(np.bool_),
    }
    return dataset(columns, Discrete(n=2), NUM_STATES)


def chain_values(value_of: Any) -> np.ndarray:
    """Returns Q of the chain, shape (3, 2), where V(s) is ``value_of(s, Q(s))``, by sweeps until nothing moves."""
    values = np.zeros((NUM_STATES, 2))
    for _ in range(500):
        for (state, action), (reward, following) in OUTCOMES.items():
            ahead = 0.0 if following is None else value_of(following, values[following])
            values[state, action] = reward + GAMMA * ahead
    return values


def observed() -> np.ndarray:
    """Returns the observations of the three states."""
    return np.eye(NUM_STATES, dtype=F)


def random_dataset(
    action: ActionSpace | None = None, num_steps: int = 300, *, size: int = 4, masked: bool = False, seed: int = 0
) -> Dataset:
    """Returns steps without meaning, with ends of both kinds and rewards that depend on observation and action."""
    space = action or Discrete(n=3)
    rng = np.random.default_rng(seed)
    ended = rng.random(num_steps) < 0.2
    ended[-1] = True
    terminated = ended & (rng.random(num_steps) < 0.5)
    observations = rng.standard_normal((num_steps, size)).astype(F)
    actions: Any
    if isinstance(space, Box):
        actions = np.clip(rng.standard_normal((num_steps, space.size)), -1, 1).astype(F)
    elif isinstance(space, MultiDiscrete):
        actions = rng.integers(space.nvec, size=(num_steps, len(space.nvec)))
    else:
        actions = rng.integers(space.n, size=num_steps)
    others: dict[str, Any] = {}
    if masked and not isinstance(space, Box):
        masks = rng.random((2, num_steps, num_choices(space))) < 0.6
        counts = np.array(space.nvec if isinstance(space, MultiDiscrete) else [space.n])
        chosen = actions.reshape(num_steps, -1) + np.concatenate([[0], np.cumsum(counts)[:-1]])
        np.put_along_axis(masks[0], chosen, True, axis=1)
        np.put_along_axis(masks[1], chosen, True, axis=1)
        masks[1][terminated] = False  # after an end nothing is allowed, and nobody looks
        others = {"masks": masks[0], "next_masks": masks[1]}
    columns = {
        "observations": observations,
        "actions": actions,
        "rewards": np.tanh(observations[:, 0] * (2.0 * actions.reshape(num_steps, -1)[:, 0] - 1.0)),
        "next_observations": rng.standard_normal((num_steps, size)).astype(F),
        "terminated": terminated,
        "truncated": ended & ~terminated,
    }
    return dataset(columns, space, size, **others)


def make(name: str, data: Dataset, *, seed: int = 0, shuffled: bool = False, load: bool = True, **options: Any) -> Any:
    """Returns a small algorithm for ``data``, with the data loaded."""
    given = {"net_arch": (16,), "batch_size": 32, "gamma": GAMMA, "learning_rate": 1e-2, **options}
    algorithm: Any = build_algorithm(configure(name, given), data.spaces, seed=seed)
    algorithm.shuffled = shuffled
    if load:
        algorithm.load(data)
    return algorithm


def descents_of(algorithm: Any, minibatch: Any) -> dict[str, Any]:
    """Returns what one gradient step on ``minibatch`` would descend along, by the names of the networks."""
    found: dict[str, Any] = {}

    def keep(descents: Any, learning_rate: float) -> None:
        found.update({each.name: each._replace(gradient=each.gradient.copy()) for each in descents})

    algorithm._descend_all = keep
    algorithm._step(minibatch, 0.0)
    del algorithm._descend_all
    return found
