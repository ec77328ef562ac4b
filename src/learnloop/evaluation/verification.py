"""The proof of learning: is a trained policy better than chance, for the reason that it learned?

Weights that moved, gradients and falling losses are no evidence: they are seen in agents that learned nothing. What
counts is reward on held-out tasks, and there are three ways in which it can be good without learning, each with a
test of its own:

1. *It is not good at all.* A paired sign-flip test over held-out units against random, and against each baseline.
   Alone it proves nothing about learning: a policy trained on noise prefers some action, actions differ in worth, and
   with enough held-out units a lucky preference beats random "significantly" about half of the time.
2. *The training rewards say nothing about actions.* Against twins: the same trainer on the same samples with rewards
   permuted across units. The rank of the trained policy among them is the randomisation test at the level of
   training: under this null it is one more twin, and p is valid whatever the held-out set. It is ranked by held-out
   reward, and by that together with the pull of the training rewards (``rank_p_values`` says how and why).
3. *The trainer does not follow the rewards*, and what it makes is good or bad by chance, as with a gradient of noise.
   Against the same twins: replicas, trained on resampled units with their true rewards. Under this null replicas,
   twins and the trained policy are drawn alike, and a two-sample permutation test of their held-out rewards is exact.

``learned`` needs every test at p <= alpha. That is an intersection-union test (Berger 1982): the claim is false when
any one of the nulls is true, and then that test alone errs with probability at most alpha, so the level is alpha
without an adjustment for the number of tests, and adding a baseline never makes a false ``learned`` more likely.
Holm-adjusted values are reported for those who want to read each test as a claim of its own.

What it does not know: whether the held-out tasks resemble those to come, and whether the reward means what it should.
Where rewards vary far more with the context than with the action, twins have more noise to fit than the trained
policy, which costs power but never level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from learnloop.core.errors import UsageError
from learnloop.core.protocols import HeldOut, Policy, Sample, Trainer
from learnloop.core.records import Verdict
from learnloop.core.seeding import derive_seed
from learnloop.evaluation.held_out import LoggedHeldOut, Overlap, checked_rewards
from learnloop.evaluation.permutation import Interval, holm, paired_interval, sign_flip_p_value, two_sample_p_value
from learnloop.evaluation.policies import UniformPolicy
from learnloop.evaluation.trainings import RANDOM, REPLICAS, TRAINED, TWINS, ArmRewards, Sizes, run_arms
from learnloop.evaluation.twins import RewardShuffle, has_propensities

Floats = NDArray[np.float64]

_MAX_WEIGHT_Z = 4.0  # a mean weight further from 1 says that propensities are wrong or actions were never logged


class VerificationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to verify."""

    seed: int = 0
    """Of the training (the twins train with the same), the permutations and the sign flips."""
    alpha: float = 0.05
    """The highest p-value that counts, and the largest probability of a false ``learned``."""
    num_twins: int = 40
    """How many shuffled twins are trained; p against them is at least 2 / (num_twins + 1)."""
    num_replicas: int = 9
    """How many times it is trained again on resampled units with their true rewards."""
    num_permutations: int = 10_000
    """Draws of each permutation test."""
    min_units: int = 20
    """Fewer held-out units, or training units that can trade rewards, end ``inconclusive``."""
    baselines: Mapping[str, Policy] = {}
    """Further policies that must be beaten, by name, such as the champion or an untrained copy."""
    min_effective_sample_size: float = 100.0
    """Where held-out tasks are a log: a trained policy that the log says less about ends ``inconclusive``. Of random
    and the baselines it need only say ``min_units``: an agent that learns well rarely does what they would do."""


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy earned on the held-out units."""

    mean: float
    interval: Interval | None
    """None below 20 units."""
    num_units: int


class ArmTest(msgspec.Struct, frozen=True, kw_only=True):
    """One of the tests that ``learned`` needs."""

    name: str
    """``paired_sign_flip`` over units, ``twin_rank`` or ``replica_two_sample`` over trainings."""
    against: str
    difference: float
    """Mean reward of the trained policy less that of the other."""
    interval: Interval | None
    """Of the difference, over units; None below 20 units."""
    p_value: float
    """One-sided: small when the trained policy is better."""
    p_value_worse: float
    """One-sided: small when the trained policy is worse."""
    p_adjusted: float
    """Holm's, over all tests of this verification; the verdict does not need it."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict and all that it rests on."""

    verdict: Verdict
    reasons: list[str]
    policy: Policy | None
    """What was trained on the true rewards; None where it ended before training."""
    arms: dict[str, Arm] = {}
    tests: list[ArmTest] = []
    twin_means: list[float] = []
    """Each twin's mean reward."""
    replica_means: list[float] = []
    """Each replica's mean reward."""
    overlap: dict[str, Overlap] = {}
    """By arm, where the held-out tasks are a log."""
    num_samples: int
    num_training_units: int
    num_units: int
    """Held-out."""
    seed: int
    alpha: float

    def to_statistics(self) -> dict[str, Any]:
        """Returns all figures as JSON for a certificate: everything but the policy, the verdict and the reasons."""
        figures: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, policy=None))
        return {name: value for name, value in figures.items() if name not in {"verdict", "reasons", "policy"}}


def verify_learning(
    trainer: Trainer, samples: Sequence[Sample], held_out: HeldOut, *, options: VerificationOptions | None = None
) -> Verification:
    """Returns the verdict on what ``trainer`` learns from ``samples``, judged by reward on ``held_out``.

    - ``inconclusive``: too few units, or a log that says too little about the policy; the reasons say what is needed.
    - ``no_signal``: all training rewards are equal, or some test did not reach alpha.
    - ``regressed``: the rewards changed what was learned (both tests against the twins set it apart from them, on
      either side), and the paired test says that it is worse than random or than a baseline. A policy that is merely
      one more twin learned nothing, lucky or not, and is ``no_signal``.
    - ``learned``: every test has p <= alpha.

    Source: Fisher 1935 (randomisation test); Berger 1982, Multiparameter hypothesis testing and acceptance sampling
    (intersection-union test).

    Args:
        trainer: makes a policy; trains 1 + ``num_replicas`` times on true rewards and ``num_twins`` times on permuted.
        samples: what to learn from; none of their units may be in ``held_out``.
        held_out: tasks that are only evaluated on.
        options: thresholds, seeds and baselines; None: the defaults.

    Raises:
        RewardError: a sample without a finite reward.
        UsageError: options that make a verdict impossible, a unit both trained on and held out, or a policy that does
            not give distributions over actions.
    """
    options = options or VerificationOptions()
    _check_options(options)
    shuffle = RewardShuffle(samples)
    rewards = checked_rewards(samples)
    _check_apart(samples, held_out)
    verdict, reasons = _before_training(rewards, shuffle, len(held_out.units), options)
    if verdict is not None:
        return _result(verdict, reasons, None, shuffle, rewards.size, len(held_out.units), options)
    policy = trainer.train(samples, options.seed)
    others: dict[str, Policy] = {RANDOM: UniformPolicy(), **options.baselines}
    overlap = _overlaps(policy, others, held_out)
    reasons = _lack_of_overlap(overlap, options)
    sizes = Sizes(options.num_twins, options.num_replicas, options.seed)
    outcome = run_arms(trainer, policy, others, shuffle, held_out, sizes)
    tests = _tests(outcome, options)
    if reasons:
        verdict = Verdict.INCONCLUSIVE
    else:
        verdict, reasons = _judge(tests, options.alpha)
        reasons += _note_on_propensities(verdict, samples)
    result = _result(verdict, reasons, policy, shuffle, rewards.size, len(held_out.units), options)
    return msgspec.structs.replace(
        result,
        arms=_arms(outcome),
        tests=tests,
        twin_means=outcome.twins.mean(axis=1).tolist(),
        replica_means=outcome.replicas.mean(axis=1).tolist(),
        overlap=overlap,
    )


def _check_options(options: VerificationOptions) -> None:
    if not 0 < options.alpha < 1:
        raise UsageError(f"alpha is {options.alpha}; it must lie between 0 and 1, such as 0.05")
    needed = int(np.ceil(2 / options.alpha - 1e-9)) - 1
    if options.num_twins < needed:
        raise UsageError(
            f"num_twins is {options.num_twins}: p against the twins could never be at most {options.alpha}; "
            f"at least {needed} are needed"
        )
    if options.num_replicas < 1:
        raise UsageError(f"num_replicas is {options.num_replicas}; at least 1 is needed, 9 are usual")
    taken = {TRAINED, RANDOM, TWINS, REPLICAS} & set(options.baselines)
    if taken:
        raise UsageError(f"a baseline is named {min(taken)!r}, which is the name of an arm; give it another name")


def _check_apart(samples: Sequence[Sample], held_out: HeldOut) -> None:
    both = {sample.unit for sample in samples} & set(held_out.units)
    if both:
        raise UsageError(f"{len(both)} units are both trained on and held out, {min(both)!r} among them; split by unit")


def _before_training(
    rewards: Floats, shuffle: RewardShuffle, num_held_out: int, options: VerificationOptions
) -> tuple[Verdict | None, list[str]]:
    """Returns a verdict that needs no training, or None."""
    reasons = []
    if rewards.size == 0:
        reasons.append(f"there are no samples to learn from; at least {options.min_units} units are needed")
    if num_held_out < options.min_units:
        reasons.append(f"there are {num_held_out} held-out units; at least {options.min_units} are needed")
    if reasons:
        return Verdict.INCONCLUSIVE, reasons
    if np.all(rewards == rewards[0]):
        return Verdict.NO_SIGNAL, [f"all {rewards.size} training rewards are equal ({rewards[0]:g}): nothing to learn"]
    if shuffle.num_movable < options.min_units:
        return Verdict.INCONCLUSIVE, [
            f"{shuffle.num_movable} of {shuffle.num_units} training units have as many samples as another one and can "
            f"trade rewards with it in a shuffled twin; at least {options.min_units} are needed"
        ]
    return None, []


def _result(
    verdict: Verdict,
    reasons: list[str],
    policy: Policy | None,
    shuffle: RewardShuffle,
    num_samples: int,
    num_units: int,
    options: VerificationOptions,
) -> Verification:
    return Verification(
        verdict=verdict,
        reasons=reasons,
        policy=policy,
        num_samples=num_samples,
        num_training_units=shuffle.num_units,
        num_units=num_units,
        seed=options.seed,
        alpha=options.alpha,
    )


def _overlaps(policy: Policy, others: Mapping[str, Policy], held_out: HeldOut) -> dict[str, Overlap]:
    if not isinstance(held_out, LoggedHeldOut):
        return {}
    return {name: held_out.overlap(arm) for name, arm in {TRAINED: policy, **others}.items()}


def _lack_of_overlap(overlaps: Mapping[str, Overlap], options: VerificationOptions) -> list[str]:
    reasons = []
    for name, overlap in overlaps.items():
        needed = options.min_effective_sample_size if name == TRAINED else float(options.min_units)
        if overlap.effective_sample_size < needed:
            reasons.append(
                f"the log says too little about {name!r}: its {overlap.num_samples} held-out decisions are worth "
                f"{overlap.effective_sample_size:.1f} of its own and {needed:g} are needed; log more, or explore "
                "more (such as epsilon=0.1)"
            )
        elif overlap.mean_weight_z is None or abs(overlap.mean_weight_z) > _MAX_WEIGHT_Z:
            reasons.append(
                f"the mean weight of {name!r} is {overlap.mean_weight:.3f} instead of about 1: the log hardly tried "
                "what it chooses (explore more, such as epsilon=0.1), or logged propensities are wrong"
            )
    return reasons


def _tests(outcome: ArmRewards, options: VerificationOptions) -> list[ArmTest]:
    difference = (outcome.trained - outcome.twins).mean(axis=0)
    rows = [
        ("twin_rank", TWINS, difference, outcome.ranks.better, outcome.ranks.worse),
        _replica_test(outcome, options),
    ]
    for name, rewards in outcome.others.items():
        difference = outcome.trained - rewards
        flips = [
            sign_flip_p_value(
                sign * difference,
                seed=derive_seed(options.seed, "paired", name),
                num_permutations=options.num_permutations,
            )
            for sign in (1.0, -1.0)
        ]
        rows.append(("paired_sign_flip", name, difference, flips[0], flips[1]))
    adjusted = holm([better for _, _, _, better, _ in rows])
    return [
        ArmTest(
            name=test,
            against=against,
            difference=float(difference.mean()),
            interval=paired_interval(difference),
            p_value=better,
            p_value_worse=worse,
            p_adjusted=p_adjusted,
        )
        for (test, against, difference, better, worse), p_adjusted in zip(rows, adjusted, strict=True)
    ]


def _replica_test(outcome: ArmRewards, options: VerificationOptions) -> tuple[str, str, Floats, float, float]:
    again = np.vstack([outcome.trained, outcome.replicas])
    seed = derive_seed(options.seed, "replicas")
    better, worse = (
        two_sample_p_value(
            sign * again.mean(axis=1),
            sign * outcome.twins.mean(axis=1),
            seed=seed,
            num_permutations=options.num_permutations,
        )
        for sign in (1.0, -1.0)
    )
    difference = (again.mean(axis=0) - outcome.twins).mean(axis=0)
    return "replica_two_sample", TWINS, difference, better, worse


def _judge(tests: Sequence[ArmTest], alpha: float) -> tuple[Verdict, list[str]]:
    failed = [test for test in tests if test.p_value > alpha]
    if not failed:
        return Verdict.LEARNED, [f"better than {test.against} by {_figures(test)}" for test in tests]
    worse = [test for test in failed if test.p_value_worse <= alpha]
    set_apart = all(min(test.p_value, test.p_value_worse) <= alpha for test in tests if test.against == TWINS)
    reasons = [
        f"worse than {test.against} by {-test.difference:.4g} (p = {test.p_value_worse:.3g}, {test.name})"
        if test in worse
        else f"not better than {test.against}: {_figures(test)} > {alpha:g}"
        for test in failed
    ]
    regressed = set_apart and any(test.name == "paired_sign_flip" for test in worse)
    return (Verdict.REGRESSED if regressed else Verdict.NO_SIGNAL), reasons


def _note_on_propensities(verdict: Verdict, samples: Sequence[Sample]) -> list[str]:
    if verdict is not Verdict.NO_SIGNAL or has_propensities(samples):
        return []
    return ["not all training samples have a propensity, so learning is harder to tell from a twin's lucky choice"]


def _figures(test: ArmTest) -> str:
    return f"{round(test.difference, 12):.4g} ({test.name}, p = {test.p_value:.3g})"


def _arms(outcome: ArmRewards) -> dict[str, Arm]:
    means = {TWINS: outcome.twins.mean(axis=0), REPLICAS: outcome.replicas.mean(axis=0)}
    rewards = {TRAINED: outcome.trained, **outcome.others, **means}
    return {
        name: Arm(mean=float(values.mean()), interval=paired_interval(values), num_units=values.size)
        for name, values in rewards.items()
    }
