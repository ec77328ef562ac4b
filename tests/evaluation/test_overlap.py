"""What the weights of a log are worth, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from learnloop.evaluation.overlap import effective_sample_size, overlap_of


@pytest.mark.parametrize(
    ("weights", "expected"),
    [([], 0.0), ([0.0, 0.0], 0.0), ([1.0, 1.0, 1.0], 3.0), ([5.0, 0.0, 0.0], 1.0), ([3.0, 1.0], 1.6)],
)
def test_effective_sample_size(weights: list[float], expected: float) -> None:
    assert effective_sample_size(np.array(weights)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("excess", "expected"),
    [
        ([0.0], 0.0),
        ([0.5], None),
        ([0.0, 0.0], 0.0),
        ([0.5, 0.5], None),
        ([1.0, 3.0], 2.0),  # mean 2, deviation sqrt(2), standard error sqrt(2) / sqrt(2)
    ],
)
def test_the_mean_weight_is_told_in_standard_errors_from_one(excess: list[float], expected: float | None) -> None:
    found = overlap_of(np.array(excess) + 1.0, np.array(excess))
    assert found.mean_weight_z == (None if expected is None else pytest.approx(expected))
    assert (found.num_samples, found.max_weight) == (len(excess), max(excess) + 1.0)


def test_a_log_without_decisions_says_nothing() -> None:
    found = overlap_of(np.zeros(0), np.zeros(0))
    assert (found.num_samples, found.mean_weight, found.mean_weight_z, found.max_weight) == (0, 0.0, None, 0.0)
