"""The proof of learning: is a trained policy better than chance, for the reason that it learned?

Weights that moved, gradients and falling losses are no evidence: they are seen in agents that learned nothing. What
counts is reward on held-out tasks, and there are three ways in which it can be good without learning, each with a
test of its own:

1. *It is not good at all.* A paired sign-flip test over held-out units against random, and against each baseline,
   and beside it a test that counts losses that so few units need not have shown (``rare_loss_p_value``): sign flips
   are exact for symmetric differences only, and a small gain that a rare failure undoes looks certain until the
   first failure.
   Alone it proves nothing about learning: a policy trained on noise prefers some action, actions differ in worth, and
   with enough held-out units a lucky preference beats random "significantly" about half of the time.
2. *The training rewards say nothing about actions.* Against shuffled controls: the same trainer on the same
   samples with rewards permuted across units. The rank of the trained policy among them is the randomisation test at
   the level of training: under this null it is one more control, and p is valid whatever the held-out set. It is
   ranked by held-out reward, and by that together with the pull of the training rewards (``rank_p_values`` says how
   and why).
3. *The trainer does not follow the rewards*, and what it makes is good or bad by chance, as with a gradient of noise.
   Against the same controls: replicas, trained on resampled units with their true rewards. Under this null replicas,
   controls and the trained policy are drawn alike, and a two-sample permutation test of their held-out rewards is
   exact.

``learned`` needs every test at p <= alpha. That is an intersection-union test (Berger 1982): the claim is false when
any one of the nulls is true, and then that test alone errs with probability at most alpha, so the level is alpha
without an adjustment for the number of tests, and adding a baseline never makes a false ``learned`` more likely.
Holm-adjusted values are reported for those who want to read each test as a claim of its own.

This holds as far as each test does: over trainings exactly, over held-out units if a unit that fails earns no less
than ``least_reward`` where the other policy earns its mean. No test of a mean holds without such a bound, since a loss
that is large and rare enough is in no sample (Bahadur & Savage 1956).

What it does not know: whether the held-out tasks resemble those to come, and whether the reward means what it should.
Where rewards vary far more with the context than with the action, controls have more noise to fit than the trained
policy, which costs power but never level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from learnloop.algorithms.base.samples import checked_rewards
from learnloop.core.arrays import F64
from learnloop.core.checks import check_range
from learnloop.core.errors import UsageError
from learnloop.core.protocols import HeldOut, Policy, Sample, Trainer
from learnloop.core.records import Verdict
from learnloop.core.seeding import derive_seed
from learnloop.evaluation.assumptions.assumption import Assumption
from learnloop.evaluation.assumptions.checks import broken, check_log
from learnloop.evaluation.assumptions.independence import NAME as INDEPENDENCE
from learnloop.evaluation.assumptions.missing import NAME as MISSING
from learnloop.evaluation.assumptions.propensities import NAME as PROPENSITIES
from learnloop.evaluation.assumptions.support import NAME as SUPPORT
from learnloop.evaluation.assumptions.support import Support, check_support
from learnloop.evaluation.controls import (
    CONTROLS,
    RANDOM,
    REPLICAS,
    TRAINED,
    ArmRewards,
    Arms,
    RewardShuffle,
    has_propensities,
)
from learnloop.evaluation.intervals import paired_interval
from learnloop.evaluation.judging import PAIRED, RANK, judge, judge_missing
from learnloop.evaluation.logged import LoggedDecisions, LoggedHeldOut
from learnloop.evaluation.overlap import MAX_WEIGHT_Z, Overlap
from learnloop.evaluation.permutation import (
    holm,
    rare_loss_p_value,
    sign_flip_p_value,
    two_sample_p_value,
    units_for_power,
    units_needed,
)
from learnloop.evaluation.policies import UniformPolicy
from learnloop.evaluation.proof import Arm, ArmTest, Verification, VerificationOptions

MIN_MOVABLE = 0.5
"""The share of samples whose rewards a shuffled control must be able to move."""
NEAR = 0.25
"""Of a rank among the first controls: up to it more of them are trained, if all else says ``learned``."""


class _Failure(NamedTuple):
    """What a unit that was not seen may come to."""

    reward: float
    weight: float | None
    """Where held-out tasks are a log: so many units are worth one of the trained policy's own. Else None."""

    def worst_loss(self, difference: F64, other: F64) -> float:
        """Returns what a unit loses that fails where the other policy earns its mean, or the largest loss seen."""
        loss = max(0.0, float(other.mean()) - self.reward)
        # In a log single differences are noise of the weights, not losses.
        return max(loss, -float(difference.min())) if self.weight is None else loss * self.weight


def verify_learning(
    trainer: Trainer, samples: Sequence[Sample], held_out: HeldOut, *, options: VerificationOptions | None = None
) -> Verification:
    """Returns the verdict on what ``trainer`` learns from ``samples``, judged by reward on ``held_out``.

    - ``inconclusive``: too few units, a log that says too little about the policy, or a gain that losses too rare to be
      seen could undo; the reasons say what is needed.
    - ``no_signal``: all training rewards are equal, or some test did not reach alpha.
    - ``regressed``: the rewards changed what was learned (both tests against the controls set it apart from them, on
      either side), and the paired test says that it is worse than random or than a baseline that is not one of
      hindsight. A policy that is merely one more control learned nothing, lucky or not, and is ``no_signal``.
    - ``learned``: every test has p <= alpha, with rare losses and without.

    Source: Fisher 1935 (randomisation test); Berger 1982, Multiparameter hypothesis testing and acceptance sampling
    (intersection-union test).

    Args:
        trainer: makes a policy; trains 1 + ``num_replicas`` times on true rewards and ``num_controls`` times on
            permuted ones.
        samples: what to learn from; none of their units may be in ``held_out``.
        held_out: tasks that are only evaluated on.
        options: thresholds, seeds and baselines; None: the defaults.

    Raises:
        RewardError: a sample without a finite reward.
        UsageError: options that make a verdict impossible, a unit both trained on and held out, or a policy that does
            not give distributions over actions.
    """
    options = options or VerificationOptions()
    shuffle = RewardShuffle(samples)
    rewards = checked_rewards(samples)
    _check_options(options, rewards)
    _check_reward_range(options, rewards, held_out)
    _check_apart(samples, held_out)
    result = Verification(
        verdict=Verdict.INCONCLUSIVE,
        reasons=[],
        policy=None,
        num_samples=rewards.size,
        num_training_units=shuffle.num_units,
        num_units=len(held_out.units),
        seed=options.seed,
        alpha=options.alpha,
    )
    assumptions = _log_assumptions(samples, held_out)
    known = _before_training(rewards, shuffle, result.num_units, options) or _broken_log(assumptions)
    if known is not None:
        return msgspec.structs.replace(result, verdict=known[0], reasons=known[1], assumptions=assumptions)
    begun = msgspec.structs.replace(result, assumptions=assumptions)
    return _train_and_judge(trainer, shuffle, held_out, begun, options)


def _train_and_judge(
    trainer: Trainer, shuffle: RewardShuffle, held_out: HeldOut, begun: Verification, options: VerificationOptions
) -> Verification:
    """Returns ``begun`` with what was trained, what each arm earned, the tests and the verdict."""
    samples = shuffle.samples
    rewards = checked_rewards(samples)
    assumptions = list(begun.assumptions)
    policy = trainer.train(samples, options.seed)
    others: dict[str, Policy] = {RANDOM: UniformPolicy(), **options.baselines, **options.hindsight}
    overlap = _overlaps(policy, others, held_out)
    assumptions += _support(policy, samples, held_out)
    reasons = _lack_of_overlap(overlap, options) + [each.detail for each in broken(assumptions, SUPPORT)]
    arms = Arms(trainer, policy, others, shuffle, held_out, seed=options.seed)
    arms.add_controls(options.num_controls)
    arms.add_replicas(options.num_replicas)
    failure = _failure(rewards, overlap, options)
    outcome = arms.rewards(options.alpha)
    tests = _tests(outcome, options, failure)
    if not reasons and _would_more_controls_do(tests, options):
        arms.add_controls(options.max_controls - options.num_controls)
        outcome = arms.rewards(options.alpha)
        tests = _tests(outcome, options, failure)
    lacking = broken(assumptions, MISSING)
    if lacking:
        tests = _with_missing(tests, policy, others, rewards, held_out, options)
    verdict = Verdict.INCONCLUSIVE
    if not reasons:
        verdict, reasons = judge(tests, options)
        reasons += _note_on_propensities(verdict, samples)
    if lacking:
        verdict, reasons = judge_missing(verdict, reasons, tests, lacking[0], options)
    return msgspec.structs.replace(
        begun,
        verdict=verdict,
        reasons=reasons,
        policy=policy,
        arms=_arms(outcome),
        tests=tests,
        control_means=outcome.controls.mean(axis=1).tolist(),
        replica_means=outcome.replicas.mean(axis=1).tolist(),
        overlap=overlap,
        assumptions=assumptions,
    )


def _would_more_controls_do(tests: Sequence[ArmTest], options: VerificationOptions) -> bool:
    """Returns whether nothing but the rank among few controls, and that by little, stands against ``learned``."""
    rank = next(test.p_value for test in tests if test.name == RANK)
    others = max(test.p_value for test in tests if test.name != RANK)
    return others <= options.alpha < rank <= NEAR and options.max_controls > options.num_controls


def _log_assumptions(samples: Sequence[Sample], held_out: HeldOut) -> list[Assumption]:
    if not isinstance(held_out, LoggedHeldOut):
        return []
    return check_log(held_out.samples, held_out.missing, samples)


def _broken_log(assumptions: Sequence[Assumption]) -> tuple[Verdict, list[str]] | None:
    faults = broken(assumptions, PROPENSITIES, INDEPENDENCE)
    return (Verdict.INCONCLUSIVE, [each.detail for each in faults]) if faults else None


def _support(policy: Policy, samples: Sequence[Sample], held_out: HeldOut) -> list[Assumption]:
    if not isinstance(held_out, LoggedHeldOut):
        return []
    log = Support([*samples, *held_out.samples, *held_out.missing])
    return [check_support(TRAINED, log.unsupported_mass(policy))]


def _with_missing(
    tests: Sequence[ArmTest],
    policy: Policy,
    others: Mapping[str, Policy],
    rewards: F64,
    held_out: HeldOut,
    options: VerificationOptions,
) -> list[ArmTest]:
    """Returns the paired tests with their p-values if each missing reward is the worst for the trained policy."""
    if not isinstance(held_out, LoggedDecisions):
        return list(tests)
    known = np.append(rewards, [each.reward for each in held_out.samples])
    least = options.least_reward if options.least_reward is not None else 0.0
    reward_range = options.reward_range or (min(least, float(known.min())), float(known.max()))
    found = []
    for test in tests:
        if test.name == PAIRED:
            differences = held_out.least_differences(policy, others[test.against], reward_range)
            seed = derive_seed(options.seed, "missing", test.against)
            p_value = sign_flip_p_value(differences, seed=seed, num_permutations=options.num_permutations)
            test = msgspec.structs.replace(test, p_value_missing=p_value)
        found.append(test)
    return found


def _check_options(options: VerificationOptions, rewards: F64) -> None:
    check_range("alpha", options.alpha, above=0, below=1)
    needed = int(np.ceil(2 / options.alpha - 1e-9)) - 1
    if options.num_controls < needed:
        raise UsageError(
            f"num_controls is {options.num_controls}: p against the controls could never be at most {options.alpha}; "
            f"at least {needed} are needed"
        )
    check_range("num_replicas", options.num_replicas, 1)
    names = [TRAINED, RANDOM, CONTROLS, REPLICAS, *options.baselines, *options.hindsight]
    taken = {name for name in names if names.count(name) > 1}
    if taken:
        raise UsageError(f"a baseline is named {min(taken)!r}, which is the name of an arm; give it another name")
    lowest = min(rewards, default=np.inf)
    if options.least_reward is not None and not -np.inf < options.least_reward <= lowest:
        raise UsageError(
            f"least_reward is {options.least_reward}; it must be finite and not above the lowest training reward, "
            f"which is {lowest:g}"
        )


def _check_reward_range(options: VerificationOptions, rewards: F64, held_out: HeldOut) -> None:
    if options.reward_range is None:
        return
    low, high = options.reward_range
    if not -np.inf < low < high < np.inf:
        raise UsageError(f"reward_range is {low:g} to {high:g}; give two numbers, the lower one first")
    judged = [each.reward for each in held_out.samples] if isinstance(held_out, LoggedHeldOut) else []
    every = np.append(rewards, judged)
    num_outside = int(np.sum((every < low) | (every > high)))
    if num_outside:
        raise UsageError(f"{num_outside} of {every.size} rewards are not within reward_range, {low:g} to {high:g}")


def _check_apart(samples: Sequence[Sample], held_out: HeldOut) -> None:
    both = {sample.unit for sample in samples} & set(held_out.units)
    if both:
        raise UsageError(f"{len(both)} units are both trained on and held out, {min(both)!r} among them; split by unit")


def _before_training(
    rewards: F64, shuffle: RewardShuffle, num_held_out: int, options: VerificationOptions
) -> tuple[Verdict, list[str]] | None:
    """Returns a verdict that needs no training, with its reasons, or None."""
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
            f"trade rewards with it in a shuffled control; at least {options.min_units} are needed"
        ]
    if shuffle.movable_share < MIN_MOVABLE:
        return Verdict.INCONCLUSIVE, [
            f"only {shuffle.movable_share:.0%} of the samples are of units that have as many as another one, and can "
            "trade rewards with it in a shuffled control: what is learned from the others' true rewards would be taken "
            "for chance. Take smaller units"
        ]
    return None


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
        elif overlap.mean_weight_z is None or abs(overlap.mean_weight_z) > MAX_WEIGHT_Z:
            reasons.append(
                f"the mean weight of {name!r} is {overlap.mean_weight:.3f} instead of about 1: the log hardly tried "
                "what it chooses (explore more, such as epsilon=0.1), or logged propensities are wrong"
            )
    return reasons


def _failure(rewards: F64, overlaps: Mapping[str, Overlap], options: VerificationOptions) -> _Failure:
    least = options.least_reward if options.least_reward is not None else min(0.0, float(rewards.min()))
    overlap = overlaps.get(TRAINED)
    size = 1.0 if overlap is None else max(overlap.effective_sample_size, 1.0)
    return _Failure(least, None if overlap is None else overlap.num_samples / size)


def _tests(outcome: ArmRewards, options: VerificationOptions, failure: _Failure) -> list[ArmTest]:
    difference = (outcome.trained - outcome.controls).mean(axis=0)
    tests = [
        _arm_test(RANK, CONTROLS, difference, outcome.ranks.better, outcome.ranks.worse),
        _replica_test(outcome, options),
        *(_paired_test(outcome.trained, name, rewards, options, failure) for name, rewards in outcome.others.items()),
    ]
    adjusted = holm([test.p_value for test in tests])
    return [msgspec.structs.replace(test, p_adjusted=p) for test, p in zip(tests, adjusted, strict=True)]


def _arm_test(name: str, against: str, difference: F64, better: float, worse: float) -> ArmTest:
    return ArmTest(
        name=name,
        against=against,
        difference=float(difference.mean()),
        interval=paired_interval(difference),
        p_value=better,
        p_value_worse=worse,
        p_adjusted=better,
    )


def _paired_test(trained: F64, name: str, other: F64, options: VerificationOptions, failure: _Failure) -> ArmTest:
    difference = trained - other
    seed, num_permutations = derive_seed(options.seed, "paired", name), options.num_permutations
    better, worse = (
        sign_flip_p_value(sign * difference, seed=seed, num_permutations=num_permutations) for sign in (1.0, -1.0)
    )
    worst_loss = failure.worst_loss(difference, other)
    rare = rare_loss_p_value(difference, worst_loss, seed=seed, num_permutations=num_permutations)
    needed = units_needed(difference, worst_loss, options.alpha) if rare > options.alpha else np.inf
    if options.alpha < better <= NEAR:
        needed = units_for_power(difference, options.alpha)
    return msgspec.structs.replace(
        _arm_test(PAIRED, name, difference, better, worse),
        p_value_rare_loss=rare,
        worst_loss=worst_loss,
        units_needed=max(int(np.ceil(needed)), difference.size + 1) if np.isfinite(needed) else None,
    )


def _replica_test(outcome: ArmRewards, options: VerificationOptions) -> ArmTest:
    again = np.vstack([outcome.trained, outcome.replicas])
    seed = derive_seed(options.seed, "replicas")
    better, worse = (
        two_sample_p_value(
            sign * again.mean(axis=1),
            sign * outcome.controls.mean(axis=1),
            seed=seed,
            num_permutations=options.num_permutations,
        )
        for sign in (1.0, -1.0)
    )
    difference = (again.mean(axis=0) - outcome.controls).mean(axis=0)
    return _arm_test("replica_two_sample", CONTROLS, difference, better, worse)


def _note_on_propensities(verdict: Verdict, samples: Sequence[Sample]) -> list[str]:
    if verdict is not Verdict.NO_SIGNAL or has_propensities(samples):
        return []
    return ["not all training samples have a propensity, so learning is harder to tell from a control's lucky choice"]


def _arms(outcome: ArmRewards) -> dict[str, Arm]:
    means = {CONTROLS: outcome.controls.mean(axis=0), REPLICAS: outcome.replicas.mean(axis=0)}
    rewards = {TRAINED: outcome.trained, **outcome.others, **means}
    return {
        name: Arm(mean=float(values.mean()), interval=paired_interval(values), num_units=values.size)
        for name, values in rewards.items()
    }
