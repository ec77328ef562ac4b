"""Bounds for the mean of weighted rewards that hold at any sample size, however heavy the weights are."""

from __future__ import annotations

import math

import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.seeding import generator
from learnloop.evaluation.permutation import Interval

_PILOT_SHARE = 0.05  # of the units, to choose where to clip
_NUM_CLIPS = 40


def bernstein_bounds(gains: F64, losses: F64, reward_range: tuple[float, float], level: float, seed: int) -> Interval:
    """Returns a two-sided interval for E[w r], which holds for independent units with E[w] = 1.

    ``gains`` are w (r - low) and ``losses`` w (high - r), both at least 0, so that E[w r] = low + E[gains] =
    high - E[losses]. A lower bound of the mean of a number that is at least 0 is one of the number clipped from above,
    which is bounded; each side has half of the error.

    Args:
        gains: one a unit, shape ``(num_units,)``.
        losses: one a unit, shape ``(num_units,)``.
        reward_range: ``(low, high)``.
        level: of the interval.
        seed: of the pilot's draw.
    """
    low, high = reward_range
    delta = (1 - level) / 2
    lower = low + _lower_bound(gains, delta, seed)
    upper = high - _lower_bound(losses, delta, seed)
    return Interval(
        low=lower, high=upper, level=level, num_units=gains.size, method="empirical Bernstein, clipped and shifted"
    )


def _lower_bound(values: F64, delta: float, seed: int) -> float:
    """Returns a number that the mean of ``values``, all at least 0, is above with probability 1 - ``delta``.

    The clip is chosen on a small part of the units, drawn at random, by the bound that it promises for the rest, and
    the bound is that of the rest.

    Source: Maurer & Pontil 2009, Empirical Bernstein bounds and sample variance penalization, theorem 4; Thomas,
    Theocharous & Ghavamzadeh 2015, High confidence off-policy evaluation, theorem 1 and algorithm 1 (clipping, and
    the choice of the clip on a part of its own).
    """
    order = generator(seed, "bernstein-pilot", values.size).permutation(values.size)
    num_pilot = max(2, round(_PILOT_SHARE * values.size))
    if values.size - num_pilot < 2:
        return 0.0
    pilot, rest = values[order[:num_pilot]], values[order[num_pilot:]]
    highest = max(float(pilot.max()), 1e-300)
    clips = highest * np.logspace(-3, 3, _NUM_CLIPS)
    promised = [_bound(pilot, float(clip), rest.size, delta) for clip in clips]
    return max(0.0, _bound(rest, float(clips[int(np.argmax(promised))]), rest.size, delta))


def _bound(values: F64, clip: float, size: int, delta: float) -> float:
    """Returns the bound that ``size`` values like these give, clipped at ``clip``."""
    clipped = np.minimum(values, clip)
    variance = float(np.var(clipped, ddof=1))
    log_term = math.log(2 / delta)
    return float(np.mean(clipped)) - math.sqrt(2 * variance * log_term / size) - 7 * clip * log_term / (3 * (size - 1))
