"""AUC, its interval, calibration and correlation, against plain counting."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.core.seeding import generator
from learnloop.rewards.learned.score_quality import auc, auc_interval, brier, calibration_error, platt, rank_correlation

few = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.25, 1.0])), min_size=1, max_size=12)


@given(rows=few)
def test_auc_counts_pairs(rows: list[tuple[int, float]]) -> None:
    scores, labels = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    won = [
        1.0 if first > second else 0.5 if first == second else 0.0
        for (first, better), (second, worse) in itertools.permutations(rows, 2)
        if better > worse
    ]
    expected = sum(won) / len(won) if won else None
    assert auc(scores, labels) == (None if expected is None else pytest.approx(expected))


def test_the_interval_covers_and_knows_groups() -> None:
    """It covers the true value about as often as it says; rows of one group count less than rows of their own."""
    covered, widths = 0, []
    for seed in range(60):
        rng = generator(seed, "auc test")
        labels = (rng.random(120) < 0.5).astype(float)
        scores = rng.normal(size=120) + labels  # the true AUC is Phi(1 / sqrt(2)) = 0.7602
        found = auc_interval(scores, labels, np.arange(120), seed, 0.9, 300)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.7602 <= found.high
        widths.append(found.high - found.low)
    assert 46 <= covered <= 60
    repeated = auc_interval(np.tile(scores[:30], 4), np.tile(labels[:30], 4), np.tile(np.arange(30), 4), 0, 0.9, 300)
    assert repeated.high is not None
    assert repeated.low is not None
    assert repeated.high - repeated.low > 1.5 * float(np.mean(widths))


def test_labels_that_are_alike_have_no_auc() -> None:
    assert auc_interval(np.array([1.0, 2.0]), np.ones(2), np.arange(2), 0, 0.9).value is None


def test_calibration_and_brier() -> None:
    """By hand: two bins, each with its distance; and 0 where each chance is the share of good labels."""
    chances, labels = np.array([0.1, 0.1, 0.8, 0.8]), np.array([0.0, 1.0, 1.0, 1.0])
    assert calibration_error(chances, labels, 2) == pytest.approx(0.5 * 0.4 + 0.5 * 0.2)
    assert brier(chances, labels) == pytest.approx((0.01 + 0.81 + 0.04 + 0.04) / 4)
    assert calibration_error(np.repeat([0.25, 0.75], 4), np.array([0, 0, 0, 1, 0, 1, 1, 1.0]), 2) == 0.0


def test_platt_makes_chances_of_scores() -> None:
    """Scores three times too sure are taken back; scores without an order become the mean, never turned around."""
    rng = generator(1, "platt")
    logits = rng.normal(size=4000) * 2
    labels = (rng.random(4000) < 1 / (1 + np.exp(-(logits + 0.5)))).astype(float)
    slope, shift = platt(3 * logits, labels)
    assert slope == pytest.approx(1 / 3, rel=0.1)
    assert shift == pytest.approx(0.5, abs=0.15)
    slope, shift = platt(-logits, labels)
    assert slope == 0.0
    assert 1 / (1 + np.exp(-shift)) == pytest.approx(labels.mean())
    slope, _ = platt(np.zeros(4), np.array([0.0, 1.0, 1.0, 1.0]))
    assert slope == 0.0


@settings(deadline=None)
@given(values=st.lists(st.integers(-5, 5), min_size=2, max_size=20))
def test_rank_correlation(values: list[int]) -> None:
    numbers = np.array(values, dtype=float)
    if len(set(values)) == 1:
        assert rank_correlation(numbers, np.arange(len(values), dtype=float)) is None
    else:
        assert rank_correlation(numbers, np.exp(numbers)) == pytest.approx(1.0)
        assert rank_correlation(numbers, -(numbers**3)) == pytest.approx(-1.0)
