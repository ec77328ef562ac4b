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
from typing import Any, NamedTuple

import msgspec
import numpy as np

from learnloop.algorithms.base.samples import checked_rewards
from learnloop.core.arrays import F64
from learnloop.core.checks import check_range
from learnloop.core.errors import UsageError
from learnloop.core.protocols import HeldOut, Policy, Sample, Trainer
from learnloop.core.records import Verdict
from learnloop.core.seeding import derive_seed
from learnloop.evaluation.controls import (
    CONTROLS,
    RANDOM,
    REPLICAS,
    TRAINED,
    ArmRewards,
    RewardShuffle,
    has_propensities,
    run_arms,
)
from learnloop.evaluation.intervals import Interval, paired_interval
from learnloop.evaluation.logged import LoggedHeldOut
from learnloop.evaluation.overlap import MAX_WEIGHT_Z, Overlap
from learnloop.evaluation.permutation import (
    holm,
    rare_loss_p_value,
    sign_flip_p_value,
    two_sample_p_value,
    units_needed,
)
from learnloop.evaluation.policies import UniformPolicy
from learnloop.evaluation.tables import ends_of, html_table


class VerificationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to verify."""

    seed: int = 0
    """Of the training (the controls train with the same), the permutations and the sign flips."""
    alpha: float = 0.05
    """The highest p-value that counts."""
    num_controls: int = 40
    """How many shuffled controls are trained; p against them is at least 2 / (num_controls + 1)."""
    num_replicas: int = 9
    """How many times it is trained again on resampled units with their true rewards."""
    num_permutations: int = 10_000
    """Draws of each permutation test."""
    min_units: int = 20
    """Fewer held-out units, or training units that can trade rewards, end ``inconclusive``."""
    baselines: Mapping[str, Policy] = {}
    """Further policies that must be beaten, by name, such as the champion or an untrained copy."""
    hindsight: Mapping[str, Policy] = {}
    """Policies that were picked on the held-out tasks themselves, such as the best fixed action: they must be beaten
    too, but being worse than one is no step back, since nobody could have taken it."""
    least_reward: float | None = None
    """What a unit earns at the least, such as 0: what a failure that no unit showed is taken to earn. None: 0, or the
    lowest training reward where that is lower."""
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
    """``paired_sign_flip`` over units, ``control_rank`` or ``replica_two_sample`` over trainings."""
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
    p_value_rare_loss: float | None = None
    """As ``p_value``, but with losses that were too rare to be seen; None for tests over trainings."""
    worst_loss: float | None = None
    """What an unseen unit was taken to lose against the other policy, for ``p_value_rare_loss``."""
    units_needed: int | None = None
    """About how many held-out units like these it takes; None where they are enough, or no number would do."""


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


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict and all that it rests on."""

    verdict: Verdict
    reasons: list[str]
    policy: Policy | None
    """What was trained on the true rewards; None where it ended before training."""
    arms: dict[str, Arm] = {}
    tests: list[ArmTest] = []
    control_means: list[float] = []
    """The mean reward of each shuffled control."""
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

    def to_metrics(self) -> dict[str, Any]:
        """Returns what each arm earned on held-out tasks, as metrics of a registered version."""
        metrics = {"reward": self.arms[TRAINED].mean, "num_units": self.num_units}
        return metrics | {arm: each.mean for arm, each in self.arms.items() if arm != TRAINED}

    def to_statistics(self) -> dict[str, Any]:
        """Returns all figures as JSON for a certificate: everything but the policy, the verdict and the reasons."""
        figures: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, policy=None))
        return {name: value for name, value in figures.items() if name not in {"verdict", "reasons", "policy"}}

    def _repr_html_(self) -> str:
        """Returns the verdict with its reasons above what each arm earned, which notebooks show."""
        rows = [{"arm": name, "mean": arm.mean, **ends_of(arm.interval)} for name, arm in self.arms.items()]
        return html_table(rows, f"{self.verdict}: {'; '.join(self.reasons)}")


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
    known = _before_training(rewards, shuffle, result.num_units, options)
    if known is not None:
        return msgspec.structs.replace(result, verdict=known[0], reasons=known[1])
    policy = trainer.train(samples, options.seed)
    others: dict[str, Policy] = {RANDOM: UniformPolicy(), **options.baselines, **options.hindsight}
    overlap = _overlaps(policy, others, held_out)
    reasons = _lack_of_overlap(overlap, options)
    outcome = run_arms(
        trainer,
        policy,
        others,
        shuffle,
        held_out,
        num_controls=options.num_controls,
        num_replicas=options.num_replicas,
        seed=options.seed,
    )
    tests = _tests(outcome, options, _failure(rewards, overlap, options))
    verdict = Verdict.INCONCLUSIVE
    if not reasons:
        verdict, reasons = _judge(tests, options)
        reasons += _note_on_propensities(verdict, samples)
    return msgspec.structs.replace(
        result,
        verdict=verdict,
        reasons=reasons,
        policy=policy,
        arms=_arms(outcome),
        tests=tests,
        control_means=outcome.controls.mean(axis=1).tolist(),
        replica_means=outcome.replicas.mean(axis=1).tolist(),
        overlap=overlap,
    )


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
        _arm_test("control_rank", CONTROLS, difference, outcome.ranks.better, outcome.ranks.worse),
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
    return msgspec.structs.replace(
        _arm_test("paired_sign_flip", name, difference, better, worse),
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


def _judge(tests: Sequence[ArmTest], options: VerificationOptions) -> tuple[Verdict, list[str]]:
    alpha = options.alpha
    failed = [test for test in tests if test.p_value > alpha]
    if not failed:
        unsafe = [test for test in tests if test.p_value_rare_loss is not None and test.p_value_rare_loss > alpha]
        if unsafe:
            return Verdict.INCONCLUSIVE, [_rare_loss_reason(test) for test in unsafe]
        return Verdict.LEARNED, [f"better than {test.against} by {_figures(test)}" for test in tests]
    worse = [test for test in failed if test.p_value_worse <= alpha and test.against not in options.hindsight]
    set_apart = all(min(test.p_value, test.p_value_worse) <= alpha for test in tests if test.against == CONTROLS)
    reasons = [
        f"worse than {test.against} by {-test.difference:.4g} (p = {test.p_value_worse:.3g}, {test.name})"
        if test in worse
        else f"not better than {test.against}{_note_hindsight(test, options)}: {_figures(test)} > {alpha:g}"
        for test in failed
    ]
    regressed = set_apart and any(test.name == "paired_sign_flip" for test in worse)
    return (Verdict.REGRESSED if regressed else Verdict.NO_SIGNAL), reasons


def _rare_loss_reason(test: ArmTest) -> str:
    return (
        f"better than {test.against} by {_figures(test)}, but losses of {test.worst_loss:.3g} that are too rare to be "
        f"seen could undo that (p = {test.p_value_rare_loss:.3g}): about {test.units_needed} held-out units are "
        "needed, or a least_reward if no unit can earn as little"
    )


def _note_hindsight(test: ArmTest, options: VerificationOptions) -> str:
    return ", which is known only in hindsight" if test.against in options.hindsight else ""


def _note_on_propensities(verdict: Verdict, samples: Sequence[Sample]) -> list[str]:
    if verdict is not Verdict.NO_SIGNAL or has_propensities(samples):
        return []
    return ["not all training samples have a propensity, so learning is harder to tell from a control's lucky choice"]


def _figures(test: ArmTest) -> str:
    return f"{round(test.difference, 12):.4g} ({test.name}, p = {test.p_value:.3g})"


def _arms(outcome: ArmRewards) -> dict[str, Arm]:
    means = {CONTROLS: outcome.controls.mean(axis=0), REPLICAS: outcome.replicas.mean(axis=0)}
    rewards = {TRAINED: outcome.trained, **outcome.others, **means}
    return {
        name: Arm(mean=float(values.mean()), interval=paired_interval(values), num_units=values.size)
        for name, values in rewards.items()
    }
