"""One-step problems with known expected rewards, for the tests of the joint model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.protocols import Policy, Question, Sample


def changing_items(num_samples: int, seed: int, first: int = 0) -> tuple[list[Sample], F64]:
    """The best item depends on user x item features; items are replaced every 20 decisions. Uniformly logged."""
    rng = np.random.default_rng(seed)
    taste = np.random.default_rng(99).normal(size=(4, 4)) / 2
    samples, means = [], np.empty((num_samples, 4))
    for row in range(num_samples):
        if row % 20 == 0:
            items = rng.normal(size=(4, 4))
        user = rng.normal(size=4)
        means[row] = items @ (user @ taste)
        names = [f"item-{first + row // 20}-{index}" for index in range(4)]
        question = Question(
            {"user": {f"u{i}": float(x) for i, x in enumerate(user)}},
            [{f"f{i}": float(x) for i, x in enumerate(item)} for item in items],
        )
        samples.append(sample(row, question, names, int(rng.integers(4)), means[row], 0.25, rng))
    return samples, means


def vectors(num_samples: int, seed: int) -> tuple[list[Sample], F64]:
    """The reward of each of 3 actions is linear in a vector of 64 numbers."""
    rng = np.random.default_rng(seed)
    weights = np.random.default_rng(5).normal(size=(3, 64)) / 8
    samples, means = [], np.empty((num_samples, 3))
    for row in range(num_samples):
        vector = rng.normal(size=64).astype(np.float32)
        means[row] = weights @ vector
        samples.append(
            sample(row, Question({}, None, vector), ["a", "b", "c"], int(rng.integers(3)), means[row], 1 / 3, rng)
        )
    return samples, means


def sample(
    row: int,
    context: Question,
    actions: list[str],
    chosen: int,
    means: F64,
    propensity: float,
    rng: np.random.Generator,
) -> Sample:
    """A decision whose reward is its mean plus noise of 0.3."""
    reward = float(means[chosen] + 0.3 * rng.normal())
    return Sample(f"unit-{row}", context, actions, None, actions[chosen], propensity, reward)


def share_of_optimum(policy: Policy, samples: Sequence[Sample], means: F64) -> float:
    """1: chooses the best each time; 0: as good as uniform."""
    earned = np.mean([policy.probabilities(s.context, s.actions) @ m for s, m in zip(samples, means, strict=True)])
    return float((earned - means.mean()) / (means.max(axis=1).mean() - means.mean()))
