"""learnloop.evaluation.intervals: against tables and hand computation, and covering as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from learnloop.core.errors import UsageError
from learnloop.evaluation.intervals import (
    bernstein_bounds,
    clipped_bound,
    paired_interval,
    student_t_quantile,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("probability", "degrees", "table"),
    [(0.975, 19, 2.093024), (0.975, 29, 2.045230), (0.995, 19, 2.860935), (0.95, 99, 1.660391), (0.9995, 19, 3.883406)],
)
def test_student_t_quantiles_are_those_of_the_tables(probability: float, degrees: int, table: float) -> None:
    assert student_t_quantile(probability, degrees) == pytest.approx(table, abs=5e-5)
    assert student_t_quantile(1 - probability, degrees) == pytest.approx(-table, abs=5e-5)


def test_no_interval_below_twenty_units() -> None:
    assert paired_interval([0.0, 1.0] * 9 + [1.0]) is None
    interval = paired_interval([0.0, 1.0] * 10)
    assert interval is not None
    assert (interval.num_units, interval.method) == (20, "student_t")
    half = 2.093024 * math.sqrt(20 * 0.25 / 19) / math.sqrt(20)
    assert (interval.low, interval.high) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-5)


def test_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    intervals = [paired_interval(rng.normal(0.3, 1, size=25), 0.9) for _ in range(2000)]
    covered = np.mean([interval is not None and interval.low <= 0.3 <= interval.high for interval in intervals])
    assert abs(covered - 0.9) < 4 * math.sqrt(0.9 * 0.1 / 2000)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_level_must_be_a_share(level: float) -> None:
    with pytest.raises(UsageError, match="level"):
        paired_interval([1.0] * 20, level)


def test_published_values_of_shares() -> None:
    """Newcombe 1998, table I, method 3: 81/263, 15/148, 0/20, 1/29."""
    for successes, number, low, high in (
        (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718),
    ):  # fmt: skip
        found = wilson_interval(successes, number)
        assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_an_interval_of_a_share_covers_about_as_often_as_it_says(share: float) -> None:
    """Summed over all outcomes of 60 draws."""
    covered = 0.0
    for successes in range(61):
        found = wilson_interval(successes, 60)
        if found.low <= share <= found.high:
            covered += math.comb(60, successes) * share**successes * (1 - share) ** (60 - successes)
    assert covered == pytest.approx(0.95, abs=0.025)


@pytest.mark.parametrize("wrong", [(1, 0, 0.95), (2, 1, 0.95), (-1, 3, 0.95), (1, 2, 0.0), (1, 2, 1.0)])
def test_what_is_no_share(wrong: tuple[int, int, float]) -> None:
    with pytest.raises(UsageError):
        wilson_interval(*wrong)


def test_the_formula_of_bounds() -> None:
    """Maurer & Pontil 2009, theorem 4, by hand for 0, 1, 2, 5 clipped at 2."""
    mean, variance = 5 / 4, (1.5625 + 0.0625 + 0.5625 + 0.5625) / 3
    expected = mean - math.sqrt(2 * variance * math.log(40) / 4) - 7 * 2 * math.log(40) / (3 * 3)
    assert clipped_bound(np.array([0.0, 1.0, 2.0, 5.0]), 2.0, 4, 0.05) == pytest.approx(expected, abs=1e-12)


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


def test_bounds_of_one_unit_are_the_range() -> None:
    found = bernstein_bounds(np.array([1.0]), np.array([0.0]), (0.0, 1.0), 0.95, 0)
    assert (found.low, found.high) == (0.0, 1.0)
