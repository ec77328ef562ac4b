"""Whether the policy of a training has learned: on episodes that nobody chose it by, against three others.

The others are the policy before its first update, the random policy, and a twin: the same algorithm with the same
budget whose updates credit each action with another's advantage (or target). Shuffling rewards alone would not do:
where every step pays 1 and only the length of an episode counts, as in CartPole, shuffled rewards are the true ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.network_policy import NetworkPolicy
from learnloop.core.records import Verdict
from learnloop.core.seeding import derive_seed
from learnloop.evaluation.permutation import Interval, holm, paired_interval, sign_flip_p_value
from learnloop.evaluation.returns import evaluate_returns

Floats = NDArray[np.float64]

ALPHA = 0.05
MIN_EFFECT = 0.5
"""A difference must be at least so many pooled standard deviations of the returns: less is noise that many episodes
make significant."""
HELD_OUT_EPISODES = 100

FROZEN, RANDOM, TWIN = "frozen", "random", "shuffled"


class ReturnTest(msgspec.Struct, frozen=True, kw_only=True):
    """The learned policy against one other, over the same held-out episodes."""

    against: str
    mean: float
    """Of the other."""
    difference: float
    interval: Interval | None
    """Of the difference; None below 20 episodes."""
    effect: float
    """The difference in pooled standard deviations."""
    p_value: float
    """One-sided: small when the learned policy earns more (sign flips)."""
    p_value_worse: float
    p_adjusted: float
    """After Holm's correction over the tests."""


class TrainingProof(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict on the policy of a training, with all that it rests on."""

    verdict: Verdict
    reasons: list[str]
    mean: float
    """Of the learned policy's returns."""
    num_episodes: int
    tests: list[ReturnTest]

    def to_statistics(self) -> dict[str, Any]:
        """Returns the figures as JSON."""
        figures: dict[str, Any] = msgspec.to_builtins(self)
        return figures


def prove_policies(
    best: NetworkPolicy,
    others: Mapping[str, NetworkPolicy],
    env: Any,
    *,
    seed: int,
    num_episodes: int = HELD_OUT_EPISODES,
    env_kwargs: dict[str, Any] | None = None,
) -> TrainingProof:
    """Returns whether ``best`` earns more than each of ``others`` on held-out episodes.

    Args:
        best: what was learned.
        others: by name, ``frozen``, ``random`` and ``shuffled``.
        env: the environment.
        seed: of the training; the held-out episodes' seeds derive from it and are used nowhere else.
        num_episodes: the same ones for each policy.
        env_kwargs: of the environment.
    """
    held_out = derive_seed(seed, "held-out")

    def returns(policy: NetworkPolicy) -> Floats:
        found = evaluate_returns(policy, env, num_episodes=num_episodes, seed=held_out, env_kwargs=env_kwargs)
        return np.array(found.returns, dtype=np.float64)

    learned = returns(best)
    tests = [_test(name, learned, returns(policy), seed) for name, policy in others.items()]
    adjusted = holm([test.p_value for test in tests])
    tests = [msgspec.structs.replace(test, p_adjusted=p) for test, p in zip(tests, adjusted, strict=True)]
    verdict, reasons = judge(tests)
    return TrainingProof(
        verdict=verdict, reasons=reasons, mean=float(learned.mean()), num_episodes=num_episodes, tests=tests
    )


def judge(tests: list[ReturnTest]) -> tuple[Verdict, list[str]]:
    """Returns the verdict that ``tests`` allow, with the reasons.

    ``learned``: better than each other one, by p <= .05 after Holm's correction and by half a standard deviation.
    ``regressed``: worse than the policy before its first update. ``inconclusive``: better than each, but by too little
    or on too few episodes to say so. ``no_signal``: else.
    """
    failed = [test for test in tests if test.p_adjusted > ALPHA or test.effect < MIN_EFFECT]
    if not failed:
        return Verdict.LEARNED, [f"better than {test.against} by {_figures(test)}" for test in tests]
    worse = [test for test in failed if test.against == FROZEN and test.p_value_worse <= ALPHA]
    if worse:
        return Verdict.REGRESSED, [f"worse than before the first update by {_figures(test)}" for test in worse]
    reasons = [f"not surely better than {test.against}: {_figures(test)}" for test in failed]
    if all(test.difference > 0 and test.p_value <= ALPHA for test in tests):
        return Verdict.INCONCLUSIVE, reasons
    return Verdict.NO_SIGNAL, reasons


def _test(name: str, learned: Floats, other: Floats, seed: int) -> ReturnTest:
    difference = learned - other
    flips = derive_seed(seed, "flips", name)
    pooled = math.sqrt((float(learned.var()) + float(other.var())) / 2)
    mean = float(difference.mean())
    without_spread = math.copysign(math.inf, mean) if mean else 0.0
    effect = mean / pooled if pooled else without_spread
    return ReturnTest(
        against=name,
        mean=float(other.mean()),
        difference=mean,
        interval=paired_interval(difference),
        effect=min(max(effect, -1e9), 1e9),
        p_value=sign_flip_p_value(difference, seed=flips),
        p_value_worse=sign_flip_p_value(-difference, seed=flips),
        p_adjusted=1.0,
    )


def _figures(test: ReturnTest) -> str:
    return (
        f"{abs(test.difference):.4g} a held-out episode ({test.effect:.2g} standard deviations, "
        f"p = {test.p_adjusted:.3g} after Holm)"
    )
