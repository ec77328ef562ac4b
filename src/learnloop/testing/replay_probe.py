"""P14: whether a replay draws transitions as often as it says, and weighs them by exactly what makes up for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F64, I64
from learnloop.core.errors import UsageError
from learnloop.core.seeding import generator
from learnloop.testing.probes import ProbeError

NUM_ENTRIES = 40
NUM_DRAWS = 40_000
SMALLEST_P = 1e-3
WEIGHT_TOLERANCE = 1e-5
"""Of a weight, relative: what 32 bits keep."""

Draw = Callable[[int], tuple[Any, Any]]
"""Draws so many transitions: returns their numbers, counted from 0 in the order in which they were added, and their
weights, or None where there are none."""
Fill = Callable[[F64], Draw]
"""Fills a replay with one transition for each error, gives each that error, and returns how to draw from it."""


def check_replay(
    fill: Fill,
    *,
    alpha: float,
    beta: float | None = None,
    epsilon: float = 0.0,
    capacity: int | None = None,
    num_draws: int = NUM_DRAWS,
) -> None:
    """Returns if a replay draws transition i with the odds P(i) = p_i^alpha / sum p^alpha, p = |error| + epsilon.

    Its weights must be (N P(i))^-beta over the largest such weight of all that it holds.

    Source: Schaul et al. 2016, Prioritized Experience Replay, equation 1 and section 3.4.

    Args:
        fill: fills the replay that is judged, a new one.
        alpha: how much priorities count; 0: draws are uniform.
        beta: of the weights; None: there are none.
        epsilon: what is added to errors.
        capacity: how many transitions it holds, where it is filled with more: only the newest count. None: all.
        num_draws: how many are drawn.

    Raises:
        ProbeError: it does not; a chi-squared test says so at p <= .001.
        UsageError: it draws something that was not added, or not as many as were asked for.
    """
    errors = generator(0, "replay-probe").standard_normal(NUM_ENTRIES) ** 3
    expected = (np.abs(errors) + epsilon) ** alpha
    expected[: NUM_ENTRIES - (capacity or NUM_ENTRIES)] = 0.0
    expected /= expected.sum()
    numbers, weights = _draws(fill(errors.copy()), num_draws)
    if lost := sorted({int(number) for number in numbers[expected[numbers] == 0]}):
        raise ProbeError(f"P14 (replay): the transitions {lost[:5]} were drawn after others had taken their places")
    p_value = chi_square_p_value(np.bincount(numbers, minlength=NUM_ENTRIES), expected)
    if not p_value > SMALLEST_P:
        raise ProbeError(f"P14 (replay): draws are not in proportion to priorities (p = {p_value:.2g})")
    _check_weights(numbers, weights, expected, beta)


def _draws(draw: Draw, num_draws: int) -> tuple[I64, F64 | None]:
    """Returns what 100 batches show: a replay may draw a batch with less chance than single transitions."""
    size = max(1, num_draws // 100)
    batches = [draw(size) for _ in range(100)]
    numbers = np.concatenate([np.asarray(found).reshape(-1) for found, _ in batches])
    is_whole = numbers.dtype.kind in "iu" and len(numbers) == 100 * size
    if not is_whole or numbers.min() < 0 or numbers.max() >= NUM_ENTRIES:
        raise UsageError(
            f"100 draws of {size} gave {len(numbers)} numbers; {100 * size} whole numbers from 0 to {NUM_ENTRIES - 1} "
            "are needed"
        )
    weights = [each for _, each in batches if each is not None]
    found = np.concatenate([np.asarray(each, dtype=np.float64).reshape(-1) for each in weights]) if weights else None
    return numbers.astype(np.int64), found


def _check_weights(numbers: I64, weights: F64 | None, probabilities: F64, beta: float | None) -> None:
    if beta is None:
        if weights is not None and not np.array_equal(weights, np.ones_like(weights)):
            raise ProbeError("P14 (replay): its draws have weights, and none are wanted")
        return
    if weights is None or len(weights) != len(numbers):
        raise ProbeError("P14 (replay): its draws lack weights")
    least = probabilities[probabilities > 0].min()
    wanted = (least / probabilities[numbers]) ** beta
    off = float(np.abs(weights / wanted - 1).max())
    if not off <= WEIGHT_TOLERANCE:
        raise ProbeError(f"P14 (replay): a weight is off by {off:.2g} of what it should be")


def chi_square_p_value(counts: NDArray[Any], probabilities: F64) -> float:
    """Returns how likely counts at least so far from ``probabilities`` are, if those are true.

    What is expected fewer than 5 times is counted together. What is of probability 0 must not occur: then 0.

    Source: Wilson and Hilferty 1931, The Distribution of Chi-Square: the cube root of chi-squared is nearly normal.
    """
    observed = np.asarray(counts, dtype=np.float64)
    expected = probabilities * observed.sum()
    if observed[expected == 0].any():
        return 0.0
    often = expected > 5
    observed = np.append(observed[often], observed[~often].sum())
    expected = np.append(expected[often], expected[~often].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    statistic = float(((observed - expected) ** 2 / expected).sum())
    freedom = len(expected) - 1
    if freedom < 1:
        return 1.0
    spread = 2 / (9 * freedom)
    deviation = ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return math.erfc(deviation / math.sqrt(2)) / 2
