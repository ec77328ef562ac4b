"""The sum tree: draws in proportion, never an empty entry, sums that do not drift."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.algorithms.replay.sum_tree import LARGE, MOST_CHANGES, SumTree
from learnloop.core.errors import UsageError
from tests.algorithms.chi_square import fits

ALMOST_ONE = math.nextafter(1.0, 0.0)


def filled(priorities: list[float], capacity: int | None = None) -> SumTree:
    tree = SumTree(capacity or len(priorities))
    tree.set(np.arange(len(priorities)), np.array(priorities))
    return tree


@given(
    st.lists(st.sampled_from([0.0, 1e-12, 1e-3, 1.0, 7.5, 1e9]), min_size=1, max_size=80).filter(any),
    st.lists(st.floats(0, ALMOST_ONE), min_size=1, max_size=20),
)
def test_a_draw_is_where_the_cumulated_priorities_reach_it(priorities: list[float], fractions: list[float]) -> None:
    rows, found = filled(priorities).draw(np.array([*fractions, 0.0, ALMOST_ONE]))
    ends = np.cumsum(priorities)
    places = np.array([*fractions, 0.0, ALMOST_ONE]) * ends[-1]
    slack = 1e-12 * ends[-1]
    assert (found > 0).all()
    np.testing.assert_array_equal(found, np.array(priorities)[rows])
    assert (places <= ends[rows] + slack).all()
    assert (places >= ends[rows] - found - slack).all()


def test_frequencies_are_in_proportion_to_priorities() -> None:
    rng = np.random.default_rng(0)
    priorities = rng.random(1000) ** 3
    priorities[::7] = 0
    tree = SumTree(1000)
    tree.set(np.arange(1000), priorities)
    counts = np.bincount(tree.draw(rng.random(400_000))[0], minlength=1000)
    assert fits(counts, priorities / priorities.sum())
    assert not fits(counts, np.where(priorities > 0, 1 / np.count_nonzero(priorities), 0))


@pytest.mark.parametrize("capacity", [1, 15, 16, 17, 257, LARGE])
def test_sums_stay_exact_over_many_changes(capacity: int) -> None:
    """Errors of rounding do not add up: sums are added up anew."""
    rng = np.random.default_rng(capacity)
    tree, known = SumTree(capacity), np.zeros(capacity)
    for _ in range(300):
        rows = rng.integers(capacity, size=64)
        priorities = 10.0 ** rng.integers(-9, 9, size=64)
        tree.set(rows, priorities)
        known[rows] = priorities  # of a row that is named twice the last one counts
    assert tree.total == pytest.approx(known.sum(), rel=1e-14)
    assert tree.minimum == known[known > 0].min()
    np.testing.assert_array_equal(tree.get(np.arange(capacity)), known)
    rows, _ = tree.draw(rng.random(1000))
    assert (known[rows] > 0).all()


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 19), st.integers(0, 3)), min_size=1, max_size=6), min_size=1, max_size=30
    ),
    st.booleans(),
)
def test_the_minimum_is_followed(changes: list[list[tuple[int, int]]], is_asked_each_time: bool) -> None:
    """Ties, entries named twice, entries emptied: whatever changes, it is the least of what is there."""
    tree, known = SumTree(20), np.zeros(20)
    for change in changes:
        rows, priorities = np.array([row for row, _ in change]), np.array([float(value) for _, value in change])
        tree.set(rows, priorities)
        known[rows] = priorities
        if is_asked_each_time:
            assert tree.minimum == known.min(where=known > 0, initial=math.inf)
    assert tree.minimum == known.min(where=known > 0, initial=math.inf)


def test_an_entry_that_lost_its_priority_is_not_drawn() -> None:
    tree = filled([1.0, 5.0, 1.0, 0.0], capacity=40)
    tree.set(np.array([1]), 0.0)
    rows, _ = tree.draw(np.linspace(0, ALMOST_ONE, 1000))
    assert set(rows.tolist()) == {0, 2}


def test_rounding_cannot_choose_an_empty_entry() -> None:
    tree = filled([0.0, 0.0, 3.0, 0.0])
    rows, found = np.array([0, 2, 3]), np.array([0.0, 3.0, 0.0])
    tree._replace_empty(rows, found)
    assert rows.tolist() == [2, 2, 2]
    assert found.tolist() == [3.0, 3.0, 3.0]


def test_changes_do_not_pile_up_where_nothing_is_drawn() -> None:
    tree = SumTree(100)
    for turn in range(5000):
        tree.set(np.array([turn % 100]), float(turn))
    assert len(tree._changed) <= MOST_CHANGES
    assert tree.total == sum(range(4900, 5000))


def test_nothing_to_draw() -> None:
    assert SumTree(3).minimum == math.inf
    with pytest.raises(UsageError, match="all priorities are 0"):
        SumTree(3).draw(np.array([0.5]))
    with pytest.raises(UsageError, match="capacity 0"):
        SumTree(0)


@pytest.mark.parametrize("capacity", [1, 17, 257])
def test_sums_follow_each_change(capacity: int) -> None:
    """Asked after each change, not only once: what was summed before does not stay in the sums."""
    rng = np.random.default_rng(capacity)
    tree, known = SumTree(capacity), np.zeros(capacity)
    for _ in range(50):
        rows = rng.integers(capacity, size=3)
        known[rows] = priorities = rng.random(3)
        tree.set(rows, priorities)
        assert tree.total == pytest.approx(known.sum(), rel=1e-12)
