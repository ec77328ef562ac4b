"""The controls of a verification: trainings on rewards that were dealt to other units, and on resampled units."""

from __future__ import annotations

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


def run_arms(
    trainer: Trainer,
    policy: Policy,
    others: Mapping[str, Policy],
    shuffle: RewardShuffle,
    held_out: HeldOut,
    *,
    num_controls: int,
    num_replicas: int,
    seed: int,
) -> ArmRewards:
    """Returns what ``policy``, its shuffled controls, its replicas and ``others`` earn.

    Args:
        trainer: made ``policy`` of ``shuffle.samples`` with ``seed``, and makes the controls and the replicas.
        policy: what is judged.
        others: what it is compared with beside them.
        shuffle: of the samples.
        held_out: the tasks that all are judged on.
        num_controls: how many trainings on shuffled rewards.
        num_replicas: how many trainings on resampled units.
        seed: of the trainings, the shuffles and the draws of units.

    Raises:
        UsageError: a policy that cannot be evaluated (the message names the arm), or that changes after its training.
    """
    samples = shuffle.samples
    trained = arm_rewards(TRAINED, policy, held_out)
    dealt = [shuffle.draw(generator(seed, "twin", index)) for index in range(num_controls)]
    controls, chosen = [], [logged_probabilities(policy, samples)]
    for index, shuffled in enumerate(dealt):
        # The same training seed as the trained policy's: under the null all of them are then exchangeable.
        control = trainer.train(shuffled, seed)
        controls.append(arm_rewards(f"{CONTROLS}[{index}]", control, held_out))
        chosen.append(logged_probabilities(control, samples))
    replicas = []
    for index in range(num_replicas):
        replica = trainer.train(resample_units(samples, generator(seed, "replica", index)), seed)
        replicas.append(arm_rewards(f"{REPLICAS}[{index}]", replica, held_out))
    if not np.array_equal(arm_rewards(TRAINED, policy, held_out), trained):
        raise UsageError(
            "the trained policy earns something else after its controls were trained: the trainer changes policies "
            "that it has handed out, or the policy is not a function of its context"
        )
    ranks = rank_p_values(
        np.array([trained.mean(), *(each.mean() for each in controls)]),
        np.array(chosen),
        samples,
        np.array([[sample.reward for sample in arm] for arm in (samples, *dealt)]),
    )
    rewards = {name: arm_rewards(name, other, held_out) for name, other in others.items()}
    return ArmRewards(trained, rewards, np.array(controls), np.array(replicas), ranks)


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
    alone at the top of held-out reward. So the smaller p-value counts, doubled for having had two chances (Bonferroni).
    Without propensities there is no pull, and held-out reward decides alone.

    A trainer that ignores rewards makes equal arms, whose scores are all 0. Both figures treat all arms alike, so when
    rewards say nothing about actions the scores are exchangeable and each rank of the first is uniform:
    p = (1 + number of controls at or above it) / number of arms.

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
