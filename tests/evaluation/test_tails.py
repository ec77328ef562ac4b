"""learnloop.evaluation.tails: shapes of known distributions, and how often the interval covers a mean that is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from learnloop.evaluation.intervals import percentile_interval
from learnloop.evaluation.tails import HEAVY, MIN_VALUES, robust_interval, tail_shape


@pytest.mark.parametrize("shape", [0.3, 0.7, 1.0])
def test_the_shape_of_a_pareto_distribution_is_found(shape: float) -> None:
    """Quantiles of the generalised Pareto distribution, ((1 - u)^-k - 1) / k; shrunk by 10 values of .5."""
    values = ((1 - (np.arange(4_000) + 0.5) / 4_000) ** -shape - 1) / shape
    number = math.ceil(3 * math.sqrt(4_000))
    assert tail_shape(values) == pytest.approx((number * shape + 10 * 0.5) / (number + 10), abs=0.06)


def test_the_heavier_side_counts() -> None:
    values = np.random.default_rng(0).pareto(1.2, 2_000)
    found = tail_shape(values)
    assert found is not None
    assert found > HEAVY
    assert tail_shape(-values) == pytest.approx(found)


def test_light_tails_are_not_heavy() -> None:
    rng = np.random.default_rng(1)
    for values in (rng.normal(size=500), rng.exponential(size=500), rng.random(500)):
        found = tail_shape(values)
        assert found is not None
        assert found < HEAVY


def test_rewards_of_0_and_1_have_no_tail_and_few_values_neither() -> None:
    weighted = (np.arange(400) % 7 == 0) / 0.3
    assert tail_shape(weighted) is None
    assert tail_shape(np.random.default_rng(0).pareto(1.0, MIN_VALUES - 1)) is None
    assert robust_interval(np.ones(MIN_VALUES - 1), 0.95, 0) is None


def test_equal_values_have_an_interval_of_one_point() -> None:
    found = robust_interval(np.full(200, 3.0), 0.95, 0)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((3.0, 3.0))


def test_it_covers_the_mean_of_a_lognormal_where_percentiles_do_not() -> None:
    """E = exp(sigma^2 / 2). 60 samples of 250: a level of .95 covers 50 or fewer of them in 1 of 10,000 cases."""
    mean, covered, plain = math.exp(2.0), 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        values = rng.lognormal(0.0, 2.0, 250)
        found = robust_interval(values, 0.95, seed)
        assert found is not None
        covered += found.low <= mean <= found.high
        drawn = rng.multinomial(250, np.full(250, 1 / 250), size=400) @ values / 250
        naive = percentile_interval(drawn, 0.95, 250, "")
        plain += naive.low <= mean <= naive.high
    assert covered > 50
    assert plain < covered


def test_costs_are_rewards_turned_round() -> None:
    values = np.random.default_rng(3).lognormal(0.0, 2.0, 300)
    one, other = robust_interval(values, 0.9, 5), robust_interval(-values, 0.9, 5)
    assert one is not None
    assert other is not None
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low))
