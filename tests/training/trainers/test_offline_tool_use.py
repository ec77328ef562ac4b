"""What is learned from logs of the tool-use environment alone: more than behaviour cloning where rewards are true.

Each seed has a log of its own, a third of its steps by a random policy, a third each by PPO after 2,000 and after 4,000
steps. Each policy plays its most likely actions in held-out episodes; what it earns is told in shares of the optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from learnloop.algorithms.building import build_algorithm, configure
from learnloop.core.datasets import Dataset
from learnloop.envs import ToolUse
from learnloop.evaluation.returns import evaluate_returns
from tests.nightly.progress import FIGURES
from tests.training.collecting import collect_dataset
from tests.training.half_trained import half_trained

SEEDS = range(5)
NUM_UPDATES = 3_000
OPTIONS: dict[str, dict[str, Any]] = {"bc": {}, "cql": {"alpha": 0.2, "gamma": 0.9}, "iql": {"gamma": 0.9}}


@cache
def logged(seed: int) -> Dataset:
    earlier, later = half_trained("tool-use", seed, (2_000, 4_000))
    return collect_dataset("tool-use", ["random", earlier, later], num_steps=12_000, seed=seed, num_envs=8)


@cache
def earned(name: str, seed: int, shuffled: bool = False) -> float:
    """Returns what ``name`` earns that learned from the log of ``seed``, in shares of the optimum."""
    given = {"net_arch": [64, 64], "batch_size": 128, "learning_rate": 1e-3, **OPTIONS[name]}
    data = logged(seed)
    algorithm: Any = build_algorithm(configure(name, given), data.spaces, seed=seed)
    algorithm.shuffled = shuffled
    algorithm.load(data)
    algorithm.update(NUM_UPDATES)
    found = evaluate_returns(algorithm.policy(), "tool-use", num_episodes=200, seed=1_000 + seed)
    return round(found.mean / ToolUse().world.optimum(), 3)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", ["cql", "iql"])
def test_they_beat_behaviour_cloning_unless_rewards_are_shuffled(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """F4.5: reward must matter in offline training. On each of 5 seeds more, of one and the same log."""
    ours = np.array([earned(name, seed) for seed in SEEDS])
    controls = np.array([earned(name, seed, shuffled=True) for seed in SEEDS])
    cloned = np.array([earned("bc", seed) for seed in SEEDS])
    found = {name: ours.tolist(), "shuffled": controls.tolist(), "bc": cloned.tolist()}
    record_property(FIGURES, {"shares of the optimum": found})
    assert (ours > cloned).all(), found  # by chance 1 in 32
    assert ours.mean() >= cloned.mean() + 0.2, found
    assert controls.mean() <= cloned.mean() + 0.1 * (ours.mean() - cloned.mean()), found
