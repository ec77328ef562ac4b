"""Logs from which nothing can be learned, in the ways that real logs have, and logs from which something can.

Each maker draws one log of ``NUMBER`` decisions: those with a known reward and those whose reward is missing. In a null
no policy is better than uniform choice, or what would be better cannot be told from the log.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from learnloop.core.protocols import Sample

NUMBER = 1_000
TWO = ("a", "b")
KINDS = ("chat", "code", "report")


class Log(NamedTuple):
    """One drawn log."""

    known: list[Sample]
    missing: list[Sample]


Maker = Callable[[np.random.Generator], Log]


def _context(rng: np.random.Generator) -> dict[str, Any]:
    return {"x": round(float(rng.normal()), 6), "kind": KINDS[int(rng.integers(3))]}


def _sample(row: int, context: dict[str, Any], action: str, propensity: float, reward: float) -> Sample:
    return Sample(f"u{row}", context, TWO, None, action, propensity, float(reward), made_at=float(row))


def _uniform(rng: np.random.Generator, earn: Callable[[dict[str, Any], int, int], float]) -> list[Sample]:
    """Returns uniform choices between two actions; ``earn`` is asked with the context, the action and the row."""
    samples = []
    for row in range(NUMBER):
        context, at = _context(rng), int(rng.integers(2))
        samples.append(_sample(row, context, TWO[at], 0.5, earn(context, at, row)))
    return samples


def coin(rng: np.random.Generator) -> Log:
    """Rewards of 0 and 1 that depend on nothing."""
    return Log(_uniform(rng, lambda context, at, row: rng.random() < 0.5), [])


def by_context(rng: np.random.Generator) -> Log:
    """Rewards that depend on contexts far more than on chance, and not on actions."""
    return Log(_uniform(rng, lambda context, at, row: float(context["x"]) + 0.1 * rng.normal()), [])


def rising(rng: np.random.Generator) -> Log:
    """Rewards that rise with time."""
    return Log(_uniform(rng, lambda context, at, row: rng.random() < 0.2 + 0.6 * row / NUMBER), [])


def rare_failure(rng: np.random.Generator) -> Log:
    """One action earns 1 % more and loses it in 1 of 100 decisions."""
    return Log(_uniform(rng, lambda context, at, row: (1.01 if rng.random() >= 0.01 else 0.01) if at else 1.0), [])


def heavy_tails(rng: np.random.Generator) -> Log:
    """Lognormal rewards with sigma 2."""
    return Log(_uniform(rng, lambda context, at, row: float(rng.lognormal(0, 2))), [])


def rare_action(rng: np.random.Generator) -> Log:
    """One of two equal actions is tried in 5 %."""
    samples = []
    for row in range(NUMBER):
        tried = bool(rng.random() < 0.05)
        share = 0.05 if tried else 0.95
        samples.append(_sample(row, _context(rng), TWO[tried], share, rng.random() < 0.5))
    return Log(samples, [])


def ten_actions(rng: np.random.Generator) -> Log:
    """Ten equal actions."""
    names = tuple(f"a{number}" for number in range(10))
    samples = []
    for row in range(NUMBER):
        sample = _sample(row, _context(rng), names[int(rng.integers(10))], 0.1, rng.random() < 0.5)
        samples.append(sample._replace(actions=names))
    return Log(samples, [])


def shared_reward(rng: np.random.Generator) -> Log:
    """Two choices share a reward of 1 if they differ; the log takes ``a`` in 70 %."""
    samples = []
    for episode in range(NUMBER // 2):
        taken = [int(rng.random() < 0.3) for _ in range(2)]
        for turn, at in enumerate(taken):
            share, name = (0.3 if at else 0.7), f"e{episode}"
            sample = _sample(2 * episode + turn, {"turn": turn}, TWO[at], share, taken[0] != taken[1])
            samples.append(sample._replace(unit=name, shared=name))
    return Log(samples, [])


def unreported_failures(rng: np.random.Generator) -> Log:
    """30 % of one action's failures are not reported."""
    return _without(coin(rng), rng, lambda sample: 0.3 if sample.action == "b" and not sample.reward else 0.0)


def unreported_both(rng: np.random.Generator) -> Log:
    """15 % of one action's failures and of the other's successes are not reported."""
    return _without(coin(rng), rng, lambda sample: 0.15 if (sample.action == "b") != bool(sample.reward) else 0.0)


def unreported_at_random(rng: np.random.Generator) -> Log:
    """20 % of rewards are missing, whatever they were."""
    return _without(coin(rng), rng, lambda sample: 0.2)


def wrong_by_time(rng: np.random.Generator) -> Log:
    """Propensities of .5 where it was .2 in the first half and .8 in the second, which earned more."""
    return Log(_confounded(rng, 0.3, lambda context, row: row >= NUMBER / 2), [])


def slightly_wrong_by_time(rng: np.random.Generator) -> Log:
    """The same with .4 and .6."""
    return Log(_confounded(rng, 0.1, lambda context, row: row >= NUMBER / 2), [])


def wrong_by_hour(rng: np.random.Generator) -> Log:
    """The same with .2 and .8, in turns of 40 decisions."""
    return Log(_confounded(rng, 0.3, lambda context, row: row // 40 % 2 == 1), [])


def wrong_by_group(rng: np.random.Generator) -> Log:
    """Propensities of .5 where it was .2 and .8 by the sign of a feature, on which rewards depend."""
    return Log(_confounded(rng, 0.3, lambda context, row: float(context["x"]) > 0), [])


def slightly_wrong_by_group(rng: np.random.Generator) -> Log:
    """The same with .4 and .6."""
    return Log(_confounded(rng, 0.1, lambda context, row: float(context["x"]) > 0), [])


def written_twice(rng: np.random.Generator) -> Log:
    """Each decision under two ids, one after the other."""
    once = coin(rng).known[: NUMBER // 2]
    twice = [each for pair in zip(once, once, strict=True) for each in pair]
    return Log([each._replace(unit=f"u{row}", made_at=float(row)) for row, each in enumerate(twice)], [])


def one_arm_a_user(rng: np.random.Generator) -> Log:
    """Users of ten decisions who keep one arm and one taste; each decision is a unit."""
    return Log(_users(rng), [])


def one_arm_a_user_by_unit(rng: np.random.Generator) -> Log:
    """The same, and the user is the unit."""
    return Log([each._replace(unit=str(each.context["user"])) for each in _users(rng)], [])


def _users(rng: np.random.Generator) -> list[Sample]:
    number = NUMBER // 10
    arms, tastes = rng.integers(2, size=number), rng.random(number)
    samples = []
    for row, user in enumerate(rng.permutation(np.repeat(np.arange(number), 10)).tolist()):
        context: dict[str, Any] = {"user": f"user-{user}"}
        samples.append(_sample(row, context, TWO[arms[user]], 0.5, rng.random() < tastes[user]))
    return samples


def _confounded(rng: np.random.Generator, by: float, is_good: Callable[[dict[str, Any], int], bool]) -> list[Sample]:
    samples = []
    for row in range(NUMBER):
        context = _context(rng)
        good = is_good(context, row)
        took = bool(rng.random() < 0.5 + (by if good else -by))
        samples.append(_sample(row, context, TWO[took], 0.5, rng.random() < (0.7 if good else 0.3)))
    return samples


def _without(log: Log, rng: np.random.Generator, share: Callable[[Sample], float]) -> Log:
    known, missing = list[Sample](), list[Sample]()
    for each in log.known:
        (missing if rng.random() < share(each) else known).append(each)
    return Log(known, [each._replace(reward=math.nan) for each in missing])


NULLS: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (
        *(coin, by_context, rising, rare_failure, heavy_tails, rare_action, ten_actions, shared_reward),
        *(unreported_failures, unreported_both, unreported_at_random),
        *(wrong_by_time, slightly_wrong_by_time, wrong_by_hour, wrong_by_group, slightly_wrong_by_group),
        *(written_twice, one_arm_a_user, one_arm_a_user_by_unit),
    )
}


def better_by(gain: float, number: int) -> Maker:
    """Returns a maker of logs of uniform choices, in which one of two actions earns 1 in ``2 gain`` more cases."""

    def make(rng: np.random.Generator) -> Log:
        samples = []
        for row in range(number):
            at = int(rng.integers(2))
            samples.append(_sample(row, {"task": 1.0}, TWO[at], 0.5, rng.random() < 0.5 + (gain if at else -gain)))
        return Log(samples, [])

    return make


def by_kind(rng: np.random.Generator) -> Log:
    """A real one: for each kind of task another action earns 1 in .8 of the cases, against .3."""
    best = {"chat": 0, "code": 1, "report": 1}
    return Log(
        _uniform(rng, lambda context, at, row: rng.random() < (0.8 if best[str(context["kind"])] == at else 0.3)), []
    )
