"""learnloop.evaluation.bounds: what holds at its level at any sample size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from learnloop.evaluation.bounds import _bound, bernstein_bounds


def test_the_formula() -> None:
    """Maurer & Pontil 2009, theorem 4, by hand for 0, 1, 2, 5 clipped at 2."""
    mean, variance = 5 / 4, (1.5625 + 0.0625 + 0.5625 + 0.5625) / 3
    expected = mean - math.sqrt(2 * variance * math.log(40) / 4) - 7 * 2 * math.log(40) / (3 * 3)
    assert _bound(np.array([0.0, 1.0, 2.0, 5.0]), 2.0, 4, 0.05) == pytest.approx(expected, abs=1e-12)


def test_bounds_lie_within_the_range_and_close_in() -> None:
    rng = np.random.default_rng(0)
    widths = []
    for number in (3, 30, 3_000, 100_000):
        rewards = (rng.random(number) < 0.3).astype(float)
        found = bernstein_bounds(rewards, 1 - rewards, (0.0, 1.0), 0.95, 0)
        assert 0.0 <= found.low <= found.high <= 1.0
        widths.append(found.high - found.low)
    assert widths[0] == 1.0
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.03


def test_nothing_is_known_of_one_unit() -> None:
    found = bernstein_bounds(np.array([1.0]), np.array([0.0]), (0.0, 1.0), 0.95, 0)
    assert (found.low, found.high) == (0.0, 1.0)
