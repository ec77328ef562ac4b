"""The controls of a verification: trainings on rewards that were dealt to other units, and on resampled units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.errors import UsageError
from learnloop.core.protocols import HeldOut, Policy, Sample, Trainer
from learnloop.core.seeding import generator
from learnloop.evaluation.policies import logged_probabilities

TRAINED, RANDOM, CONTROLS, REPLICAS = "trained", "random", "shuffled_controls", "replicas"
_SAME = 1e-9  # arms that differ by less than this share of their size differ by rounding


class ArmRewards(NamedTuple):
    """What each arm earns on the held-out units."""

    trained: F64
    """Shape ``(num_units,)``, as each of ``others``."""
    others: dict[str, F64]
    """Random and the baselines."""
    controls: F64
    """Trained on shuffled rewards, shape ``(num_controls, num_units)``."""
    replicas: F64
    """Trained on resampled units with their true rewards, shape ``(num_replicas, num_units)``."""
    ranks: Ranks


class Arms:
    """Trains the controls and the replicas of a policy, and says what all of them earn.

    Args:
        trainer: made ``policy`` of ``shuffle.samples`` with ``seed``, and makes the controls and the replicas.
        policy: what is judged.
        others: what it is compared with beside them.
        shuffle: of the samples.
        held_out: the tasks that all are judged on.
        seed: of the trainings, the shuffles and the draws of units.

    Raises:
        UsageError: a policy that cannot be evaluated; the message names the arm.
    """

    def __init__(
        self,
        trainer: Trainer,
        policy: Policy,
        others: Mapping[str, Policy],
        shuffle: RewardShuffle,
        held_out: HeldOut,
        *,
        seed: int,
    ) -> None:
        self._trainer, self._policy, self._shuffle, self._held_out, self._seed = (
            trainer, policy, shuffle, held_out, seed
        )  # fmt: skip
        self._trained = arm_rewards(TRAINED, policy, held_out)
        self._others = {name: arm_rewards(name, other, held_out) for name, other in others.items()}
        samples = shuffle.samples
        self._dealt: list[F64] = [np.array([sample.reward for sample in samples], dtype=np.float64)]
        self._chosen: list[F64] = [logged_probabilities(policy, samples)]
        self._controls: list[F64] = []
        self._replicas: list[F64] = []
        self._num_first = 0

    def add_controls(self, number: int) -> None:
        """Trains further controls on shuffled rewards."""
        samples = self._shuffle.samples
        for index in range(len(self._controls), len(self._controls) + number):
            shuffled = self._shuffle.draw(generator(self._seed, "twin", index))
            # The same training seed as the trained policy's: under the null all of them are then exchangeable.
            control = self._trainer.train(shuffled, self._seed)
            self._controls.append(arm_rewards(f"{CONTROLS}[{index}]", control, self._held_out))
            self._chosen.append(logged_probabilities(control, samples))
            self._dealt.append(np.array([sample.reward for sample in shuffled], dtype=np.float64))
        self._num_first = self._num_first or number

    def add_replicas(self, number: int) -> None:
        """Trains further replicas on resampled units."""
        for index in range(len(self._replicas), len(self._replicas) + number):
            drawn = resample_units(self._shuffle.samples, generator(self._seed, "replica", index))
            replica = self._trainer.train(drawn, self._seed)
            self._replicas.append(arm_rewards(f"{REPLICAS}[{index}]", replica, self._held_out))

    def rewards(self, alpha: float) -> ArmRewards:
        """Returns what each arm earns, and the rank of the policy among its controls.

        Args:
            alpha: a rank of at most this share among the first controls would have been enough.

        Raises:
            UsageError: the policy changed after its training.
        """
        if not np.array_equal(arm_rewards(TRAINED, self._policy, self._held_out), self._trained):
            raise UsageError(
                "the trained policy earns something else after its controls were trained: the trainer changes policies "
                "that it has handed out, or the policy is not a function of its context"
            )
        ranks = rank_p_values(
            np.array([self._trained.mean(), *(each.mean() for each in self._controls)]),
            np.array(self._chosen),
            self._shuffle.samples,
            np.array(self._dealt),
        )
        number = len(self._controls)
        if number > self._num_first:
            rank = round(ranks.better * (number + 1))
            staged = staged_p_value(rank, self._num_first, number, math.floor(alpha * (self._num_first + 1) + 1e-9) - 1)
            ranks = ranks._replace(better=staged)
        return ArmRewards(self._trained, self._others, np.array(self._controls), np.array(self._replicas), ranks)


def arm_rewards(name: str, policy: Policy, held_out: HeldOut) -> F64:
    """Returns what the arm ``name`` earns on each unit, checked, whoever implements ``held_out``."""
    try:
        values = np.asarray(held_out.rewards(policy), dtype=np.float64)
    except UsageError as error:
        raise UsageError(f"arm {name!r}: {error}") from error
    if values.shape != (len(held_out.units),) or not np.all(np.isfinite(values)):
        raise UsageError(
            f"arm {name!r}: the held-out rewards must be {len(held_out.units)} finite numbers, one a unit; "
            f"they have shape {values.shape} and {int(np.sum(~np.isfinite(values)))} that are not finite"
        )
    return values


def resample_units(samples: Sequence[Sample], rng: np.random.Generator) -> list[Sample]:
    """Returns a bootstrap sample: as many units, drawn with replacement, each with all its samples.

    A unit that is drawn again gets a name of its own.

    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, section 8.3 (resampling whole units).
    """
    units = _rows_of_units(samples)
    drawn = rng.integers(len(units), size=len(units)).tolist()
    copies = [(samples[row], copy) for copy, unit in enumerate(drawn) for row in units[unit]]
    return [sample._replace(unit=f"{sample.unit}#{copy}") for sample, copy in copies]


class Ranks(NamedTuple):
    """The two one-sided p-values of a rank among shuffled controls."""

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
        units = _rows_of_units(self.samples)
        self.num_units = len(units)
        by_size: dict[int, list[list[int]]] = {}
        for rows in units:
            by_size.setdefault(len(rows), []).append(rows)
        self._blocks = [np.array(blocks) for blocks in by_size.values()]

    @property
    def num_movable(self) -> int:
        """How many units can trade rewards with another one."""
        return sum(len(blocks) for blocks in self._blocks if len(blocks) > 1)

    @property
    def movable_share(self) -> float:
        """The share of samples whose rewards can move to another unit."""
        moving = sum(blocks.size for blocks in self._blocks if len(blocks) > 1)
        return moving / max(len(self.samples), 1)

    def draw(self, rng: np.random.Generator) -> list[Sample]:
        """Returns the samples with the rewards of one random permutation of the units."""
        rewards = [sample.reward for sample in self.samples]
        for blocks in self._blocks:
            sources = blocks[rng.permutation(len(blocks))]
            for target, source in zip(blocks.ravel().tolist(), sources.ravel().tolist(), strict=True):
                rewards[target] = self.samples[source].reward
        return [sample._replace(reward=reward) for sample, reward in zip(self.samples, rewards, strict=True)]


def rank_p_values(held_out_means: F64, chosen: F64, samples: Sequence[Sample], rewards: F64) -> Ranks:
    """Returns where the first arm, the trained policy, ranks among all arms, the others being shuffled controls.

    It is ranked twice, by what arms earn on the held-out units, and by the sum of that and of the pull: how much more
    often than the average arm an arm chooses what its own training rewards speak for,
    mean_i (r_i - mean r) (pi(a_i | x_i) - average pi(a_i | x_i)) / p_i, each in standard deviations over all arms.

    Held-out reward alone cannot tell an arm that learned the best of few actions from a control that hit upon it,
    however strong the evidence in the samples was. The pull can, but it drowns in noise where contexts matter more than
    actions, or where a log became so sure of itself that few samples carry all the weight; there an arm that learned is
    alone at the top of held-out reward. So each arm has the better of its two ranks, and those are ranked once more:
    what the second chance is worth is what it is worth to the controls. Without propensities there is no pull, and
    held-out reward decides alone.

    A trainer that ignores rewards makes equal arms, whose scores are all 0. All of it treats all arms alike, so when
    rewards say nothing about actions the arms are exchangeable and the rank of the first is uniform:
    p = (1 + number of controls that rank at or above it) / number of arms.

    Source: Hemerik & Goeman 2018, Exact testing with random permutations, theorem 2 (any statistic, the identity
    included); Westfall & Young 1993, Resampling-based multiple testing, section 2.3 (the smallest of several p-values).

    Args:
        held_out_means: shape ``(num_arms,)``.
        chosen: probability that each arm gives to the logged action of each sample, shape ``(num_arms, num_samples)``.
        samples: the training samples, for their propensities.
        rewards: what each arm was trained on, shape ``(num_arms, num_samples)``.
    """
    held_out = _standardised(held_out_means, float(np.max(np.abs(held_out_means))))
    if not has_propensities(samples):
        return Ranks(_rank_of_first([held_out]), _rank_of_first([-held_out]))
    weights = 1 / np.array([sample.propensity for sample in samples], dtype=np.float64)
    pull = weights * (rewards - rewards.mean(axis=1, keepdims=True))
    association = np.mean(pull * (chosen - chosen.mean(axis=0)), axis=1)
    both = held_out + _standardised(association, float(np.mean(np.abs(pull))))
    follows = bool(association[0] > 0)
    return Ranks(_rank_of_first([held_out, both]), 1.0 if follows else _rank_of_first([-held_out, -both]))


def staged_p_value(rank: int, num_first: int, number: int, num_allowed: int = 0) -> float:
    """Returns the p-value of a rank among ``number`` controls that were trained in two stages.

    The second stage was trained because more than ``num_allowed`` of the first ``num_first`` controls ranked at or
    above the policy. Had no more, that alone would have been enough. So p is the probability under the null of either:
    of so few above it in the first stage, or of a rank at least as good in the end. Under the null each rank from 1 to
    ``number`` + 1 is equally probable, and how many of the j - 1 controls above rank j are of the first stage is
    hypergeometric.

    Args:
        rank: 1 for the best of all.
        num_first: controls of the first stage.
        number: controls of both stages.
        num_allowed: so many of the first stage above the policy were few enough.
    """
    total = float(rank)
    ways = math.comb(number, num_first)
    for above in range(rank, number + 1):
        few = sum(
            math.comb(above, inside) * math.comb(number - above, num_first - inside)
            for inside in range(min(num_allowed, above, num_first) + 1)
        )
        total += few / ways
    return min(1.0, total / (number + 1))


def _rank_of_first(scores: Sequence[F64]) -> float:
    """Returns the share of arms whose best rank by any of the scores is at least as good as the first arm's.

    Ties count against it.
    """
    ranks = []
    for score in scores:
        ordered = np.sort(score)
        ranks.append(score.size - np.searchsorted(ordered, score - _SAME, side="left"))
    best = np.min(ranks, axis=0)
    return float(np.mean(best <= best[0]))


def _rows_of_units(samples: Sequence[Sample]) -> list[list[int]]:
    """Returns the rows of each unit, in the order of their first sample."""
    rows: dict[str, list[int]] = {}
    for row, sample in enumerate(samples):
        rows.setdefault(sample.unit, []).append(row)
    return list(rows.values())


def has_propensities(samples: Sequence[Sample]) -> bool:
    """Returns whether every sample says, validly, with which probability its action was chosen."""
    return all(sample.propensity is not None and 0 < sample.propensity <= 1 for sample in samples)


def _standardised(values: F64, size: float) -> F64:
    spread = float(np.std(values))
    if spread <= _SAME * size:
        return np.zeros(values.size)
    scaled: F64 = (values - values.mean()) / spread
    return scaled
