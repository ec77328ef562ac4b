"""Trains all arms of a verification and collects what each earns on the held-out units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.errors import UsageError
from learnloop.core.protocols import HeldOut, Policy, Sample, Trainer
from learnloop.core.seeding import generator
from learnloop.evaluation.policies import logged_probabilities
from learnloop.evaluation.twins import Ranks, RewardShuffle, rank_p_values, resample_units

TRAINED, RANDOM, TWINS, REPLICAS = "trained", "random", "shuffled_twins", "replicas"


class Sizes(NamedTuple):
    """How many trainings, and their seed."""

    num_twins: int
    num_replicas: int
    seed: int


class ArmRewards(NamedTuple):
    """What each arm earns on the held-out units."""

    trained: F64
    """Shape ``(num_units,)``, as each of ``others``."""
    others: dict[str, F64]
    """Random and the baselines."""
    twins: F64
    """Trained on shuffled rewards, shape ``(num_twins, num_units)``."""
    replicas: F64
    """Trained on resampled units with their true rewards, shape ``(num_replicas, num_units)``."""
    ranks: Ranks


def run_arms(
    trainer: Trainer,
    policy: Policy,
    others: Mapping[str, Policy],
    shuffle: RewardShuffle,
    held_out: HeldOut,
    sizes: Sizes,
) -> ArmRewards:
    """Returns what ``policy``, its twins, its replicas and ``others`` earn.

    Raises:
        UsageError: a policy that cannot be evaluated (the message names the arm), or that changes after its training.
    """
    samples = shuffle.samples
    trained = rewards_of(TRAINED, policy, held_out)
    twins = np.empty((sizes.num_twins, trained.size))
    chosen = [logged_probabilities(policy, samples)]
    learned_from: list[Sequence[Sample]] = [samples]
    for index in range(sizes.num_twins):
        shuffled = shuffle.draw(generator(sizes.seed, "twin", index))
        # Same training seed as the trained policy: under the null all of them are then exchangeable.
        twin = trainer.train(shuffled, sizes.seed)
        twins[index] = rewards_of(f"{TWINS}[{index}]", twin, held_out)
        chosen.append(logged_probabilities(twin, samples))
        learned_from.append(shuffled)
    replicas = np.empty((sizes.num_replicas, trained.size))
    for index in range(sizes.num_replicas):
        replica = trainer.train(resample_units(samples, generator(sizes.seed, "replica", index)), sizes.seed)
        replicas[index] = rewards_of(f"{REPLICAS}[{index}]", replica, held_out)
    if not np.array_equal(rewards_of(TRAINED, policy, held_out), trained):
        raise UsageError(
            "the trained policy earns something else after its twins were trained: the trainer changes policies that "
            "it has handed out, or the policy is not a function of its context"
        )
    ranks = rank_p_values(
        np.array([trained.mean(), *twins.mean(axis=1)]),
        np.array(chosen),
        samples,
        np.array([[sample.reward for sample in arm] for arm in learned_from]),
    )
    rewards = {name: rewards_of(name, other, held_out) for name, other in others.items()}
    return ArmRewards(trained, rewards, twins, replicas, ranks)


def rewards_of(name: str, policy: Policy, held_out: HeldOut) -> F64:
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
