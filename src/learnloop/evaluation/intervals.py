"""Intervals for a mean over units: Student's t, Wilson's for shares, the bootstrap's, and bounds at any sample size.

One number a unit: units are independent of each other, what lies within a unit is not, so callers average within a
unit first.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from learnloop.core.arrays import F64
from learnloop.core.checks import check_range
from learnloop.core.errors import UsageError
from learnloop.core.seeding import generator

MIN_INTERVAL_UNITS = 20
"""Below so many units no interval is given: it would be narrower than its level says."""
_PILOT_SHARE = 0.05  # of the units, to choose where to clip
_NUM_CLIPS = 40


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A two-sided interval for a mean over units."""

    low: float
    high: float
    level: float
    """The share of repetitions in which it covers the mean, such as .95."""
    num_units: int
    method: str = "student_t"


def check_values(differences: ArrayLike) -> F64:
    """Returns the differences of units as an array, shape ``(num_units,)``.

    Raises:
        UsageError: there is none, or one is not finite.
    """
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise UsageError(f"differences have shape {values.shape}; a flat list of at least one number is needed")
    num_bad = int(np.sum(~np.isfinite(values)))
    if num_bad:
        raise UsageError(f"{num_bad} of {values.size} differences are not finite; leave units without a value out")
    return values


def student_t_quantile(probability: float, degrees: int) -> float:
    """Returns the quantile of Student's t; within 2e-6 from 19 degrees of freedom on, for levels up to .999.

    Source: Abramowitz & Stegun 1964, equation 26.7.5 (expansion around the normal quantile in 1 / degrees).
    """
    x = NormalDist().inv_cdf(probability)
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return float(x + sum(term / degrees ** (power + 1) for power, term in enumerate(terms)))


def paired_interval(differences: ArrayLike, level: float = 0.95) -> Interval | None:
    """Returns the two-sided Student t interval for the mean of the differences, or None below 20 units.

    mean +- t(n - 1) s / sqrt(n). It is exact for normal differences and approximate for others, which is why none is
    given for fewer than ``MIN_INTERVAL_UNITS`` units.

    Source: Student 1908, The probable error of a mean.

    Args:
        differences: one a unit, shape ``(num_units,)``; the values themselves give the interval of a plain mean.
        level: between 0 and 1, such as .95.

    Raises:
        UsageError: a difference is not finite, or the level is not between 0 and 1.
    """
    values = check_values(differences)
    check_range("level", level, above=0, below=1)
    if values.size < MIN_INTERVAL_UNITS:
        return None
    mean = float(np.mean(values))
    half = student_t_quantile((1 + level) / 2, values.size - 1) * float(np.std(values, ddof=1)) / values.size**0.5
    return Interval(low=mean - half, high=mean + half, level=level, num_units=values.size)


def wilson_interval(successes: int, number: int, level: float = 0.95) -> Interval:
    """Returns the two-sided score interval for a share of ``successes`` of ``number``.

    Source: Wilson 1927, Probable inference, the law of succession, and statistical inference, equation 1.

    Raises:
        UsageError: the counts do not fit, or ``level`` is not between 0 and 1.
    """
    if not 0 <= successes <= number or number < 1:
        raise UsageError(f"{successes} of {number} is not a share; give 0 to {number} of at least 1")
    check_range("level", level, above=0, below=1)
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = successes / number
    scale = 1 + z**2 / number
    centre = (share + z**2 / (2 * number)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / number + z**2 / (4 * number**2))
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return Interval(low=low, high=high, level=level, num_units=number, method="wilson")


def percentile_interval(draws: F64, level: float, num_units: int, method: str) -> Interval:
    """Returns the interval between the percentiles of what was drawn, such as means of resampled units.

    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, section 13.3.
    """
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(low=float(low), high=float(high), level=level, num_units=num_units, method=method)


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
    promised = [clipped_bound(pilot, float(clip), rest.size, delta) for clip in clips]
    return max(0.0, clipped_bound(rest, float(clips[int(np.argmax(promised))]), rest.size, delta))


def clipped_bound(values: F64, clip: float, size: int, delta: float) -> float:
    """Returns the bound that ``size`` values like these give, clipped at ``clip``."""
    clipped = np.minimum(values, clip)
    variance = float(np.var(clipped, ddof=1))
    log_term = math.log(2 / delta)
    return float(np.mean(clipped)) - math.sqrt(2 * variance * log_term / size) - 7 * clip * log_term / (3 * (size - 1))
