"""Whether the policy of a training has learned: on episodes that nobody chose it by, against three others.

The others are the policy before its first update, the random policy, and shuffled controls: trainings of the same
algorithm with the same budget, whose updates credit each action with another's advantage (or target). Shuffling rewards
alone would not do: where every step pays 1 and only the length of an episode counts, as in CartPole, shuffled rewards
are the true ones.

Many episodes of one control say little: trainings that learn nothing differ far more from each other than episodes do.
So what is ranked among controls is trainings, by what they earned towards their end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from learnloop.core.records import Verdict
from learnloop.core.seeding import derive_seed
from learnloop.evaluation.intervals import Interval, paired_interval
from learnloop.evaluation.permutation import holm, sign_flip_p_value, two_sample_p_value
from learnloop.evaluation.returns import Returns
from learnloop.evaluation.tables import ends_of, html_table

ALPHA = 0.05
MIN_EFFECT = 0.5
"""A difference from the frozen and the random policy must be at least so many pooled standard deviations of the
returns: less is noise that many episodes make significant."""
HELD_OUT_EPISODES = 100
LEARNED, FROZEN, RANDOM, CONTROLS = "learned", "frozen", "random", "shuffled"
NUM_TURNS = 12
"""The policies that are compared play held-out episodes in turns, so many of them."""
DRIFT_ALPHA = 0.01
"""How sure it must be that the environment changed while controls were trained, for nothing to be said."""
ROUNDING = 1e-5
"""Returns that differ by a smaller share differ by rounding: a network's rows depend on the size of their batch."""
MAX_CHANGE = 6.0
"""More standard errors between what a policy earned when training chose it and what it earns now are no luck: being
chosen as the best of some dozens of evaluations is worth two or three."""
_NUM_CONTROLS = {1: 19, 2: 9, 3: 6, 4: 5}


def controls_needed(num_seeds: int) -> int:
    """Returns how many controls a run of ``num_seeds`` is ranked among: the fewest, or a few more, that can be enough.

    With n seeds and m controls the smallest p is 1 / C(n + m, n): 1/20 for 1 and 19, 1/252 for 5 and 5.
    """
    return _NUM_CONTROLS.get(num_seeds, 5)


class ReturnTest(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned against one other."""

    against: str
    mean: float
    """Of the other's returns; of what all controls earned towards their end."""
    difference: float
    """From the judged policy; from the mean over the run's seeds for controls."""
    interval: Interval | None
    """Of the difference; None below 20 episodes, and for controls."""
    effect: float | None
    """The difference in pooled standard deviations of the returns; None for controls."""
    p_value: float
    """One-sided, small when more was learned: sign flips over episodes, for controls an exact permutation of them."""
    p_value_worse: float
    p_adjusted: float
    """After Holm's correction over the tests."""
    values: list[float] = []
    """Of controls: what each earned in the evaluations towards its end."""


class TrainingProof(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict on the policy of a training, with all that it rests on."""

    verdict: Verdict
    reasons: list[str]
    mean: float
    """Of the judged policy's returns."""
    num_episodes: int
    """Held out, the same ones for all."""
    seed_means: list[float]
    """What each of the run's seeds earned in the evaluations towards its end: what is compared with controls."""
    tests: list[ReturnTest]

    def to_metrics(self) -> dict[str, Any]:
        """Returns what it and each rival earned, as metrics of a registered version."""
        metrics = {"reward": self.mean, "num_episodes": self.num_episodes}
        return metrics | {test.against: test.mean for test in self.tests}

    def to_statistics(self) -> dict[str, Any]:
        """Returns the figures as JSON."""
        figures: dict[str, Any] = msgspec.to_builtins(self)
        return figures

    def _repr_html_(self) -> str:
        """Returns the verdict with its reasons above each test, which notebooks show."""
        rows = [
            {"against": test.against, "mean": test.mean, "difference": test.difference, **ends_of(test.interval),
             "p_value": test.p_value}
            for test in self.tests
        ]  # fmt: skip
        return html_table(rows, f"{self.verdict}: {'; '.join(self.reasons)}")


class Rivals(NamedTuple):
    """All that a policy is judged against: two policies on the same held-out episodes, and trainings."""

    frozen: Returns
    random: Returns
    seed_means: Sequence[float]
    """What each seed of its run earned towards its end, its own among them."""
    control_means: Sequence[float]
    """That of each control; empty: the algorithm does not learn and has none."""


class Change(NamedTuple):
    """One policy in the same episodes, at two times."""

    before: float
    """The mean return then; the policy was chosen for it."""
    now: Returns


def draw_controls(
    trained: Sequence[float], num_controls: int, train: Callable[[Sequence[int]], Sequence[float]], batch: int
) -> list[float]:
    """Returns the mean returns of up to ``num_controls`` controls, which are trained now, ``batch`` at a time.

    Against a single training it ends as soon as a control is as good: p can then not be small any more.

    Source: Besag & Clifford 1991, Sequential Monte Carlo p-values.

    Args:
        trained: the mean return of each of the run's seeds.
        num_controls: how many at most.
        train: trains the controls of these numbers and returns their mean returns.
        batch: how many at once.
    """
    found: list[float] = []
    while len(found) < num_controls:
        found += train(range(len(found), min(len(found) + batch, num_controls)))
        if len(trained) == 1 and max(found) >= trained[0]:
            break
    return found


def judge_policy(
    learned: Returns,
    rivals: Rivals,
    *,
    seed: int,
    again: Returns | None = None,
    as_trained: Change | None = None,
) -> TrainingProof:
    """Returns whether ``learned``, the returns of the judged policy, is better than all that it is judged against.

    Controls are trained after the run's seeds. Where rewards change with the clock the difference says nothing about
    learning, so the judged policy is played again at the end: it must earn what it did in the same episodes.

    Args:
        learned: played in turns with the frozen and the random policy.
        rivals: those, and the trainings.
        seed: of the tests.
        again: the judged policy in the same episodes, after all controls were trained; None: it is not known.
        as_trained: what it earned when training chose it, and now; None: it is not known.
    """
    tests = [
        _episode_test(FROZEN, learned, rivals.frozen, seed),
        _episode_test(RANDOM, learned, rivals.random, seed),
    ]
    if rivals.control_means:
        tests.append(_control_test(rivals.seed_means, rivals.control_means))
    adjusted = holm([test.p_value for test in tests])
    tests = [msgspec.structs.replace(test, p_adjusted=p) for test, p in zip(tests, adjusted, strict=True)]
    verdict, reasons = judge(tests)
    unfinished = sum(len(each.unfinished) for each in (learned, rivals.frozen, rivals.random))
    if unfinished and verdict is Verdict.LEARNED:
        verdict = Verdict.INCONCLUSIVE
        reasons = [f"{unfinished} held-out episodes did not end within {learned.max_episode_steps} steps", *reasons]
    drift = find_drift(learned, again, as_trained, seed)
    if drift is not None:
        verdict, reasons = Verdict.INCONCLUSIVE, [drift, *reasons]
    return TrainingProof(
        verdict=verdict,
        reasons=reasons,
        mean=learned.mean,
        num_episodes=len(learned.returns),
        seed_means=list(rivals.seed_means),
        tests=tests,
    )


def find_drift(learned: Returns, again: Returns | None, as_trained: Change | None, seed: int) -> str | None:
    """Returns why rewards seem to change with the clock, whatever is done; None: they do not seem to.

    The same policy in the same episodes: a two-sided sign-flip test over them, at ``DRIFT_ALPHA``, and a change since
    training by more than ``MAX_CHANGE`` standard errors.
    """
    advice = "what was trained and its controls met different environments; let rewards depend on the episode alone"
    if again is not None:
        change = np.array(again.returns) - np.array(learned.returns)
        size = max(float(np.abs(learned.returns).max()), float(np.abs(again.returns).max()))
        change[np.abs(change) <= ROUNDING * size] = 0.0
        flips = derive_seed(seed, "flips", "again")
        p_value = 2 * min(sign_flip_p_value(sign * change, seed=flips) for sign in (1.0, -1.0))
        if p_value <= DRIFT_ALPHA:
            return (
                f"the policy earned {learned.mean:.4g} before its controls were trained and {again.mean:.4g} after, in "
                f"the same {len(again.returns)} episodes (p = {p_value:.2g}): {advice}"
            )
    if as_trained is not None:
        now = as_trained.now
        error = now.std * math.sqrt(2 / len(now.returns))
        if abs(now.mean - as_trained.before) > MAX_CHANGE * error + ROUNDING * abs(now.mean):
            return (
                f"the policy earned {as_trained.before:.4g} when training chose it and earns {now.mean:.4g} now, in "
                f"the same {len(now.returns)} episodes: {advice}"
            )
    return None


def judge(tests: Sequence[ReturnTest]) -> tuple[Verdict, list[str]]:
    """Returns the verdict that ``tests`` allow, with the reasons.

    ``learned``: better than each other one, by p <= .05 after Holm's correction, and than the frozen and the random
    policy by half a standard deviation. ``regressed``: worse than the policy before its first update.
    ``inconclusive``: better than each, but by too little to say so. ``no_signal``: else.
    """
    failed = [
        test for test in tests if test.p_adjusted > ALPHA or (test.effect is not None and test.effect < MIN_EFFECT)
    ]
    if not failed:
        return Verdict.LEARNED, [f"better than {test.against} by {_figures(test)}" for test in tests]
    worse = [test for test in failed if test.against == FROZEN and test.p_value_worse <= ALPHA]
    if worse:
        return Verdict.REGRESSED, [f"worse than before the first update by {_figures(test)}" for test in worse]
    reasons = [f"not surely better than {test.against}: {_figures(test)}" for test in failed]
    if all(test.difference > 0 and test.p_value <= ALPHA for test in tests):
        return Verdict.INCONCLUSIVE, reasons
    return Verdict.NO_SIGNAL, reasons


def _episode_test(name: str, learned: Returns, other: Returns, seed: int) -> ReturnTest:
    ours, theirs = (np.array(each.returns, dtype=np.float64) for each in (learned, other))
    difference = ours - theirs
    flips = derive_seed(seed, "flips", name)
    pooled = math.sqrt((float(ours.var()) + float(theirs.var())) / 2)
    mean = float(difference.mean())
    without_spread = math.copysign(1e9, mean) if mean else 0.0
    return ReturnTest(
        against=name,
        mean=other.mean,
        difference=mean,
        interval=paired_interval(difference),
        effect=min(max(mean / pooled, -1e9), 1e9) if pooled else without_spread,
        p_value=sign_flip_p_value(difference, seed=flips),
        p_value_worse=sign_flip_p_value(-difference, seed=flips),
        p_adjusted=1.0,
    )


def _control_test(seed_means: Sequence[float], control_means: Sequence[float]) -> ReturnTest:
    ours, theirs = np.array(seed_means), np.array(control_means)
    return ReturnTest(
        against=CONTROLS,
        mean=float(theirs.mean()),
        difference=float(ours.mean() - theirs.mean()),
        interval=None,
        effect=None,
        p_value=two_sample_p_value(ours, theirs),
        p_value_worse=two_sample_p_value(-ours, -theirs),
        p_adjusted=1.0,
        values=[float(value) for value in theirs],
    )


def _figures(test: ReturnTest) -> str:
    size = f"{len(test.values)} shuffled controls" if test.effect is None else f"{test.effect:.2g} standard deviations"
    return f"{abs(test.difference):.4g} a held-out episode ({size}, p = {test.p_adjusted:.3g} after Holm)"
