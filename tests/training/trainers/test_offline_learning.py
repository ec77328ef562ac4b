"""What is learned from logs alone: more than behaviour cloning where rewards are true, no more where they are shuffled.

Two kinds of logs of CartPole, each a third of its steps by a random policy:

- ``misled``: a third by a half-trained policy, a third by one that does the opposite. Only rewards tell which is which.
- ``graded``: a third by PPO after 2,000 steps, a third after 4,000. Here the most likely action is good without them,
  by the vote of those who are no worse than random. So behaviour cloning is judged by its draws, beside what has draws
  too. CQL has none: its 5 seeds earned 151 and cloning's most likely actions 114, which 5 seeds cannot tell apart.

Returns are held out: of episodes that no log has met.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest

from learnloop.algorithms.building import build_algorithm, configure
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.datasets import Dataset
from learnloop.evaluation.permutation import two_sample_p_value
from learnloop.evaluation.returns import evaluate_returns
from tests.nightly.progress import FIGURES
from tests.training.collecting import collect_dataset
from tests.training.half_trained import half_trained

SEEDS = range(5)
OPTIONS: dict[str, dict[str, Any]] = {"bc": {}, "cql": {"alpha": 0.2}, "iql": {}, "awac": {}}
Kind = Literal["misled", "graded"]


class Budget(NamedTuple):
    num_steps: int
    """Of the log."""
    num_updates: int
    batch_size: int
    num_episodes: int
    """Held out."""


SHORT = Budget(24_000, 2_000, 128, 20)
LONG = Budget(48_000, 6_000, 256, 100)


class Opposite:
    """Takes the other one of two actions."""

    def __init__(self, policy: NetworkPolicy) -> None:
        self._policy = policy

    def choose(self, observations: Any, masks: Any = None) -> Any:
        return 1 - self._policy.choose(observations, masks)


@cache
def logged(kind: Kind, seed: int, num_steps: int) -> Dataset:
    earlier, later = half_trained("CartPole-v1", seed, (2_000, 4_000))
    other = Opposite(later) if kind == "misled" else earlier
    return collect_dataset("CartPole-v1", ["random", other, later], num_steps=num_steps, seed=seed, num_envs=8)


@cache
def learned(name: str, kind: Kind, seed: int, budget: Budget, shuffled: bool) -> NetworkPolicy:
    """Returns the policy that ``name`` learns from the log of ``seed``."""
    given = {"net_arch": [64, 64], "batch_size": budget.batch_size, "learning_rate": 1e-3, **OPTIONS[name]}
    data = logged(kind, seed, budget.num_steps)
    algorithm: Any = build_algorithm(configure(name, given), data.spaces, seed=seed)
    algorithm.shuffled = shuffled
    algorithm.load(data)
    algorithm.update(budget.num_updates)
    policy: NetworkPolicy = algorithm.policy()
    return policy


def compare(name: str, kind: Kind, budget: Budget) -> dict[str, list[float]]:
    """Returns what each seed earned: ``name``, its controls of shuffled rewards, and behaviour cloning."""

    def earned(who: str, seed: int, shuffled: bool) -> float:
        policy = learned(who, kind, seed, budget, shuffled)
        judged = policy if kind == "misled" else policy.sampled
        episodes = {"num_episodes": budget.num_episodes, "seed": 1_000 + seed}
        return round(evaluate_returns(judged, "CartPole-v1", **episodes).mean, 1)

    arms = {name: (name, False), "shuffled": (name, True), "bc": ("bc", False)}
    return {arm: [earned(who, seed, shuffled) for seed in SEEDS] for arm, (who, shuffled) in arms.items()}


def judge(name: str, found: dict[str, list[float]]) -> None:
    """Each seed earns more than any of behaviour cloning, three times as much on the whole; controls earn nothing."""
    ours, controls, cloned = (np.array(found[each]) for each in (name, "shuffled", "bc"))
    assert ours.min() > cloned.max(), found
    assert ours.mean() >= 3 * cloned.mean(), found
    assert two_sample_p_value(ours, controls) <= 0.01, found
    assert two_sample_p_value(controls, cloned) > 0.05, found
    assert controls.mean() <= cloned.mean() + 0.1 * (ours.mean() - cloned.mean()), found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cql", "iql"])
def test_they_beat_behaviour_cloning_unless_rewards_are_shuffled(name: str) -> None:
    """F4.5: reward must matter in offline training. Of 5 seeds with a log of their own each."""
    judge(name, compare(name, "misled", SHORT))


TABLE: list[tuple[str, Kind]] = [
    ("cql", "misled"),
    ("iql", "misled"),
    ("awac", "misled"),
    ("iql", "graded"),
    ("awac", "graded"),
]


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("name", "kind"), TABLE)
def test_the_table(name: str, kind: Kind, record_property: Callable[[str, object], None]) -> None:
    """Of more steps, and longer; each seed's figures are kept."""
    found = compare(name, kind, LONG)
    record_property(FIGURES, found)
    judge(name, found)


PROBES = {
    "learnloop/ActionReward-v0": {0.0: 1},
    "learnloop/ContextualReward-v0": {-1.0: 0, 1.0: 1},
    "learnloop/RevealedAction-v0": {0.0: 1},
    "learnloop/NegativeReward-v0": {0.0: 1},
}
"""The best action on each observation."""


@pytest.mark.parametrize("env", PROBES)
@pytest.mark.parametrize("name", ["cql", "iql", "awac"])
def test_a_random_log_of_a_probe_is_enough(name: str, env: str) -> None:
    data = collect_dataset(env, "random", num_steps=400, seed=1)
    given = {"net_arch": [16], "batch_size": 64, "learning_rate": 1e-2, "gamma": 0.5}
    algorithm: Any = build_algorithm(configure(name, given), data.spaces)
    algorithm.load(data)
    algorithm.update(600)
    policy = algorithm.policy()
    for observation, best in PROBES[env].items():
        assert policy.choose(np.array([[observation]], dtype=np.float32)) == best
