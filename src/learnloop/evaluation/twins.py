"""Training samples whose rewards were dealt to other units: the control on which nothing can be learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.protocols import Sample

_SAME = 1e-9  # arms that differ by less than this share of their size differ by rounding


def resample_units(samples: Sequence[Sample], rng: np.random.Generator) -> list[Sample]:
    """Returns a bootstrap sample: as many units, drawn with replacement, each with all its samples.

    A unit that is drawn again gets a name of its own.

    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, section 8.3 (resampling whole units).
    """
    rows: dict[str, list[Sample]] = {}
    for sample in samples:
        rows.setdefault(sample.unit, []).append(sample)
    units = list(rows)
    drawn = rng.integers(len(units), size=len(units)).tolist()
    return [
        sample._replace(unit=f"{sample.unit}#{copy}") for copy, unit in enumerate(drawn) for sample in rows[units[unit]]
    ]


class Ranks(NamedTuple):
    """The two one-sided p-values of a rank among twins."""

    better: float
    worse: float
    """1 for a policy that follows its training rewards: it may be unlucky, but it did not learn the opposite."""


class RewardShuffle:
    """Permutes rewards across units and leaves all else in place.

    A unit's rewards move as one block, in their order, to a unit with as many samples, so that what hangs together
    within a unit stays together and the number of permutations is that of independent things. With one sample a unit
    this is a permutation of the rewards. A unit whose size no other unit has keeps its rewards.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples: Sequence[Sample] = tuple(samples)
        rows: dict[str, list[int]] = {}
        for row, sample in enumerate(self.samples):
            rows.setdefault(sample.unit, []).append(row)
        by_size: dict[int, list[list[int]]] = {}
        for unit_rows in rows.values():
            by_size.setdefault(len(unit_rows), []).append(unit_rows)
        self._blocks = [np.array(blocks) for blocks in by_size.values()]
        self.num_units = len(rows)

    @property
    def num_movable(self) -> int:
        """How many units can trade rewards with another one."""
        return sum(len(blocks) for blocks in self._blocks if len(blocks) > 1)

    def draw(self, rng: np.random.Generator) -> list[Sample]:
        """Returns the samples with the rewards of one random permutation of the units."""
        rewards = [sample.reward for sample in self.samples]
        for blocks in self._blocks:
            sources = blocks[rng.permutation(len(blocks))]
            for target, source in zip(blocks.ravel().tolist(), sources.ravel().tolist(), strict=True):
                rewards[target] = self.samples[source].reward
        return [sample._replace(reward=reward) for sample, reward in zip(self.samples, rewards, strict=True)]


def rank_p_values(held_out_means: F64, chosen: F64, samples: Sequence[Sample], rewards: F64) -> Ranks:
    """Returns where the first arm, the trained policy, ranks among all arms, the others being its shuffled twins.

    It is ranked twice, by what arms earn on the held-out units, and by the sum of that and of the pull: how much more
    often than the average arm an arm chooses what its own training rewards speak for,
    mean_i (r_i - mean r) (pi(a_i | x_i) - average pi(a_i | x_i)) / p_i, each in standard deviations over all arms.

    Held-out reward alone cannot tell an arm that learned the best of few actions from a twin that hit upon it, however
    strong the evidence in the samples was. The pull can, but it drowns in noise where contexts matter more than
    actions, or where a log became so sure of itself that few samples carry all the weight; there an arm that learned is
    alone at the top of held-out reward. So the smaller p-value counts, doubled for having had two chances (Bonferroni).
    Without propensities there is no pull, and held-out reward decides alone.

    A trainer that ignores rewards makes equal arms, whose scores are all 0. Both figures treat all arms alike, so when
    rewards say nothing about actions the scores are exchangeable and each rank of the first is uniform:
    p = (1 + number of twins at or above it) / number of arms.

    Source: Hemerik & Goeman 2018, Exact testing with random permutations, theorem 2 (any statistic, the identity
    included).

    Args:
        held_out_means: shape ``(num_arms,)``.
        chosen: probability that each arm gives to the logged action of each sample, shape ``(num_arms, num_samples)``.
        samples: the training samples, for their propensities.
        rewards: what each arm was trained on, shape ``(num_arms, num_samples)``.
    """
    held_out = _standardised(held_out_means, float(np.max(np.abs(held_out_means))))
    better, worse = _rank(held_out)
    if not has_propensities(samples):
        return Ranks(better, worse)
    weights = 1 / np.array([sample.propensity for sample in samples], dtype=np.float64)
    pull = weights * (rewards - rewards.mean(axis=1, keepdims=True))
    association = np.mean(pull * (chosen - chosen.mean(axis=0)), axis=1)
    pulled_better, pulled_worse = _rank(held_out + _standardised(association, float(np.mean(np.abs(pull)))))
    follows = bool(association[0] > 0)
    return Ranks(min(1.0, 2 * min(better, pulled_better)), 1.0 if follows else min(1.0, 2 * min(worse, pulled_worse)))


def _rank(score: F64) -> Ranks:
    """Returns the p-values of the first score among all; a tie counts against it."""
    better = float(1 + np.sum(score[1:] >= score[0] - _SAME)) / score.size
    worse = float(1 + np.sum(score[1:] <= score[0] + _SAME)) / score.size
    return Ranks(better, worse)


def has_propensities(samples: Sequence[Sample]) -> bool:
    """Returns whether every sample says, validly, with which probability its action was chosen."""
    return all(sample.propensity is not None and 0 < sample.propensity <= 1 for sample in samples)


def _standardised(values: F64, size: float) -> F64:
    spread = float(np.std(values))
    if spread <= _SAME * size:
        return np.zeros(values.size)
    scaled: F64 = (values - values.mean()) / spread
    return scaled
