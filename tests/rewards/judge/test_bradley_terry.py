"""Bradley-Terry strengths against published figures and against a maximiser that knows nothing of the MM algorithm."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.core.errors import UsageError
from learnloop.rewards.judge.bradley_terry import bradley_terry

BASEBALL = np.array(
    [  # Milwaukee, Detroit, Toronto, New York, Boston, Cleveland, Baltimore
        [0, 7, 9, 7, 7, 9, 11],
        [6, 0, 7, 5, 11, 9, 9],
        [4, 6, 0, 7, 7, 8, 12],
        [6, 8, 6, 0, 6, 7, 10],
        [6, 2, 6, 7, 0, 7, 12],
        [4, 4, 5, 6, 6, 0, 6],
        [2, 4, 1, 3, 1, 7, 0],
    ],
    dtype=float,
)
"""American League East 1987, 13 games of each pair: Agresti, Categorical Data Analysis, 2nd edition, table 10.10."""


def test_published_strengths() -> None:
    """The coefficients that the R package BradleyTerry2 (Turner & Firth 2012, section 3) gives for this table."""
    logs = np.log(bradley_terry(BASEBALL, 1e-4))
    assert logs - logs[-1] == pytest.approx([1.5814, 1.4364, 1.2945, 1.2476, 1.1077, 0.6839, 0.0], abs=2e-4)


def log_posterior(logs: list[float], wins: np.ndarray, prior: float) -> float:
    total = 0.0
    for i, a in enumerate(logs):
        total -= prior / 2 * (math.log1p(math.exp(-a)) + math.log1p(math.exp(a)))
        for j, b in enumerate(logs):
            total -= wins[i, j] * math.log1p(math.exp(b - a))
    return total


def climb(wins: np.ndarray, prior: float) -> list[float]:
    """Returns the maximum by golden section along one coordinate after the other: slow, and sure to be another way."""
    logs = [0.0] * len(wins)
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        for place in range(len(logs)):
            low, high = -12.0, 12.0
            while high - low > 1e-7:
                tried = []
                for point in (high - ratio * (high - low), low + ratio * (high - low)):
                    logs[place] = point
                    tried.append((log_posterior(logs, wins, prior), point))
                if tried[0][0] > tried[1][0]:
                    high = tried[1][1]
                else:
                    low = tried[0][1]
            logs[place] = (low + high) / 2
    return logs


@pytest.mark.parametrize("prior", [0.5, 1.0])
@pytest.mark.parametrize(
    "wins",
    [
        [[0, 1], [0, 0]],
        [[0, 2.5, 1], [0.5, 0, 3], [0, 0, 0]],
        [[0, 4, 0], [1, 0, 0], [0, 0, 0]],
    ],
)
def test_the_maximum(wins: list[list[float]], prior: float) -> None:
    table = np.array(wins, dtype=float)
    assert np.log(bradley_terry(table, prior)) == pytest.approx(climb(table, prior), abs=1e-4)


@given(
    st.integers(2, 7).flatmap(
        lambda num: st.lists(
            st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=num, max_size=num), min_size=num, max_size=num
        )
    )
)
@settings(max_examples=60, deadline=None)
def test_the_equations_hold(rows: list[list[float]]) -> None:
    """Wins are what the strengths let expect, for each player; names and a swap of all results change nothing."""
    wins = np.array(rows)
    np.fill_diagonal(wins, 0.0)
    strengths = bradley_terry(wins, 1.0)
    expected = ((wins + wins.T) * strengths[:, None] / (strengths[:, None] + strengths)).sum(axis=1)
    assert wins.sum(axis=1) + 0.5 == pytest.approx(expected + strengths / (strengths + 1.0), abs=1e-6)
    order = np.arange(len(wins))[::-1]
    assert bradley_terry(wins[np.ix_(order, order)], 1.0) == pytest.approx(strengths[order], rel=1e-6)
    assert bradley_terry(wins.T, 1.0) == pytest.approx(1.0 / strengths, rel=1e-6)


def test_who_always_wins_is_finite_and_who_never_plays_is_average() -> None:
    wins = np.triu(np.ones((20, 20)), 1)
    strengths = bradley_terry(wins, 1.0)
    assert np.isfinite(strengths).all()
    assert (np.diff(strengths) < 0).all()
    assert bradley_terry(np.zeros((3, 3)), 1.0).tolist() == [1.0, 1.0, 1.0]
    assert bradley_terry(np.zeros((0, 0)), 1.0).shape == (0,)


@pytest.mark.parametrize(
    ("wins", "prior"),
    [(np.ones(3), 1.0), (np.ones((2, 3)), 1.0), (np.eye(2), 1.0), (np.zeros((2, 2)), 0.0), (-np.ones((2, 2)), 1.0)],
)
def test_what_has_no_meaning(wins: np.ndarray, prior: float) -> None:
    with pytest.raises(UsageError):
        bradley_terry(wins, prior)


@pytest.mark.parametrize("num", [11, 45])
def test_a_full_order_with_the_smallest_prior_settles_soon(num: int) -> None:
    """Where each beats all who come after, a prior of 0.01 leaves strengths far apart."""
    wins = np.triu(np.ones((num, num)), 1)
    started = time.process_time()
    strengths = bradley_terry(wins, 0.01)
    assert time.process_time() - started < 1
    assert (np.diff(strengths) < 0).all()
    chances = strengths[:, None] / (strengths[:, None] + strengths)
    expected = ((wins + wins.T) * chances).sum(axis=1) + 0.01 * strengths / (strengths + 1)
    np.testing.assert_allclose(expected, wins.sum(axis=1) + 0.005, atol=1e-6)
