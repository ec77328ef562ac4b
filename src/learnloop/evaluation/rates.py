"""Shares of a count, with an interval that is right near 0 and 1 too."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist

from learnloop.core.errors import UsageError
from learnloop.evaluation.permutation import Interval


def wilson_interval(successes: int, number: int, level: float = 0.95) -> Interval:
    """Returns the two-sided score interval for a share of ``successes`` of ``number``.

    Source: Wilson 1927, Probable inference, the law of succession, and statistical inference, equation 1.

    Raises:
        UsageError: the counts do not fit, or ``level`` is not between 0 and 1.
    """
    if not 0 <= successes <= number or number < 1:
        raise UsageError(f"{successes} of {number} is no share; give 0 to {number} of at least 1")
    if not 0 < level < 1:
        raise UsageError(f"level is {level}; it must lie between 0 and 1, such as 0.95")
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = successes / number
    scale = 1 + z**2 / number
    centre = (share + z**2 / (2 * number)) / scale
    half = z / scale * sqrt(share * (1 - share) / number + z**2 / (4 * number**2))
    return Interval(
        low=max(0.0, centre - half), high=min(1.0, centre + half), level=level, num_units=number, method="wilson"
    )
