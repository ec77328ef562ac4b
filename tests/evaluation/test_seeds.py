"""Statistics over seeds against hand computation, brute force and the coverage that intervals claim."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.errors import UsageError
from learnloop.evaluation.seeds import SeedStatistics, interquartile_mean, probability_of_improvement, summarise_seeds

numbers = st.floats(-1e3, 1e3)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1, 2, 3, 100], 2.5),
        ([100, 3, 2, 1], 2.5),
        ([5], 5),
        ([1, 2, 9], 4),  # floor(3 / 4) = 0: nothing is left out
        ([1, 2, 3, 4, 50], 3),  # one at each end
        ([0, 1, 2, 3, 4, 5, 6, 700], 3.5),  # two at each end
        ([[1, 2], [3, 100]], 2.5),  # all tasks and seeds together
    ],
)
def test_interquartile_mean_by_hand(values: Any, wanted: float) -> None:
    assert interquartile_mean(values) == pytest.approx(wanted)


@given(st.lists(numbers, min_size=1, max_size=30))
def test_interquartile_mean_lies_in_the_middle(values: list[float]) -> None:
    ordered = sorted(values)
    cut = len(values) // 4
    kept = ordered[cut : len(values) - cut]
    assert interquartile_mean(values) == pytest.approx(math.fsum(kept) / len(kept), abs=1e-9)
    assert kept[0] - 1e-9 <= interquartile_mean(values) <= kept[-1] + 1e-9


def test_few_seeds_give_their_values_and_no_interval() -> None:
    found = summarise_seeds([475.0, 500.0, 300.0])
    assert found.tasks["values"].values == (475.0, 500.0, 300.0)
    assert found.mean == pytest.approx(425.0)
    assert found.tasks["values"].std == pytest.approx(math.sqrt((50**2 + 75**2 + 125**2) / 2))
    assert (found.mean_interval, found.iqm_interval) == (None, None)
    assert found.reason == "3 seeds are too few for an interval; 20 are needed"
    assert summarise_seeds([1.0]).tasks["values"].std is None
    assert summarise_seeds(list(range(19))).reason is not None
    assert summarise_seeds({"a": range(19), "b": range(19)}).iqm_interval is None, "38 values are still 19 seeds"


def test_twenty_seeds_give_intervals() -> None:
    values = np.random.default_rng(0).normal(10, 2, size=20)
    found = summarise_seeds(values.tolist(), level=0.9, seed=3)
    assert found.reason is None
    assert found.mean_interval is not None
    assert found.iqm_interval is not None
    assert found.mean_interval.low < found.mean < found.mean_interval.high
    assert found.iqm_interval.low < found.iqm < found.iqm_interval.high
    # The bootstrap of a mean is normal: mean +- 1.645 s / sqrt(n).
    half = 1.645 * values.std() / math.sqrt(20)
    assert found.mean_interval.high - found.mean_interval.low == pytest.approx(2 * half, rel=0.1)
    assert (found.mean_interval.level, found.mean_interval.num_units) == (0.9, 20)
    assert summarise_seeds(values.tolist(), level=0.9, seed=3) == found
    assert summarise_seeds(values.tolist(), level=0.9, seed=4) != found
    assert msgspec.json.decode(msgspec.json.encode(found), type=SeedStatistics) == found


def test_tasks_are_strata() -> None:
    """Seeds are drawn within each task: what differs between tasks does not widen the interval."""
    rng = np.random.default_rng(1)
    near = {f"task {k}": rng.normal(0, 1, 20).tolist() for k in range(3)}
    far = {name: [value + 1000.0 * k for value in values] for k, (name, values) in enumerate(near.items())}
    one, two = summarise_seeds(near), summarise_seeds(far)
    assert one.mean_interval is not None
    assert two.mean_interval is not None
    widths = [each.high - each.low for each in (one.mean_interval, two.mean_interval)]
    assert widths[0] == pytest.approx(widths[1])
    assert two.mean == pytest.approx(one.mean + 1000)
    assert list(two.tasks) == ["task 0", "task 1", "task 2"]
    assert two.iqm == pytest.approx(interquartile_mean([value for values in far.values() for value in values]))


@pytest.mark.slow
def test_intervals_cover_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for repetition in range(300):
        found = summarise_seeds(rng.normal(5, 3, size=20).tolist(), seed=repetition, num_resamples=400)
        assert found.iqm_interval is not None
        covered += found.iqm_interval.low <= 5 <= found.iqm_interval.high
    assert 0.90 <= covered / 300 <= 0.98


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=8), st.lists(st.integers(-3, 3), min_size=1, max_size=8))
def test_probability_of_improvement_counts_pairs(ours: list[int], theirs: list[int]) -> None:
    won = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(ours, theirs)]
    found = probability_of_improvement(ours, theirs)
    assert found.probability == pytest.approx(sum(won) / len(won))
    assert found.interval is None
    assert found.reason is not None
    assert probability_of_improvement(theirs, ours).probability == pytest.approx(1 - found.probability)


def test_probability_of_improvement_averages_tasks() -> None:
    ours = {"easy": [2.0, 3.0], "hard": [0.0, 0.0]}
    theirs = {"hard": [1.0, 1.0, 1.0], "easy": [1.0, 1.0, 2.0]}
    # easy: 5 of 6 pairs won and one tied; hard: none.
    assert probability_of_improvement(ours, theirs).probability == pytest.approx((5.5 / 6 + 0) / 2)


def test_probability_of_improvement_with_an_interval() -> None:
    rng = np.random.default_rng(2)
    ours, theirs = rng.normal(1, 1, 40).tolist(), rng.normal(0, 1, 30).tolist()
    found = probability_of_improvement(ours, theirs, seed=1)
    assert found.interval is not None
    assert found.interval.low < found.probability < found.interval.high
    assert found.interval.low > 0.5, "a difference of one deviation is seen with 30 seeds: P = .76"
    assert found.interval.num_units == 30
    assert probability_of_improvement(ours, theirs, seed=1) == found
    same = probability_of_improvement(ours, ours)
    assert same.probability == 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: summarise_seeds([]), "task 'values' has no value"),
        (lambda: summarise_seeds({}), "there is no task"),
        (lambda: summarise_seeds([1.0, math.nan]), "1 of 2 values of task 'values' are not finite"),
        (lambda: summarise_seeds({"a": [1.0], "b": [1.0, 2.0]}), r"the tasks have \{'a': 1, 'b': 2\} seeds"),
        (lambda: summarise_seeds([1.0], level=1.0), "level is 1.0"),
        (lambda: summarise_seeds([1.0], num_resamples=0), "num_resamples is 0"),
        (lambda: interquartile_mean([]), "values has no value"),
        (lambda: probability_of_improvement({"a": [1.0]}, {"b": [1.0]}), r"\['a'\] on one side and \['b'\]"),
    ],
)
def test_wrong_values(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()
