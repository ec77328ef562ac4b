"""The ridge-logistic fit against torch's optimiser and the equations that its minimum fulfils."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.core.seeding import generator
from learnloop.rewards.learned.logistic import choose_penalty, covariance, cross_entropy, fit_logistic, rotated, sigmoid


def problem(seed: int, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = generator(seed, "problem")
    inputs = rng.normal(size=(rows, columns))
    chances = 1 / (1 + np.exp(-(inputs[:, 0] - 0.5 * inputs[:, 1] + 0.3)))
    labels = np.where(rng.random(rows) < 0.5, (rng.random(rows) < chances).astype(float), rng.random(rows))
    return inputs, labels


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), rows=st.integers(5, 60), columns=st.integers(2, 30), power=st.floats(-2, 3))
def test_it_is_the_minimum(seed: int, rows: int, columns: int, power: float) -> None:
    """The gradient is zero there: of the coefficients with their penalty, and of the intercept without any."""
    inputs, labels = problem(seed, rows, columns)
    penalty = 10.0**power
    fit = fit_logistic(inputs, labels, penalty)
    wrong = 1 / (1 + np.exp(-(inputs @ fit.coefficients + fit.intercept))) - labels
    np.testing.assert_allclose(inputs.T @ wrong + penalty * fit.coefficients, 0.0, atol=1e-3)
    assert abs(wrong.sum()) < 1e-3


def test_torch_finds_the_same() -> None:
    inputs, labels = problem(1, 80, 6)
    place = torch.zeros(7, dtype=torch.float64, requires_grad=True)
    rows, wanted = torch.tensor(inputs), torch.tensor(labels)
    optimizer = torch.optim.LBFGS([place], max_iter=200, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        logits = rows @ place[:6] + place[6]
        total = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted, reduction="sum")
        total = total + 1.5 * (place[:6] ** 2).sum()
        total.backward()
        return total

    optimizer.step(loss)
    fit = fit_logistic(inputs, labels, 3.0)
    np.testing.assert_allclose(np.append(fit.coefficients, fit.intercept), place.detach().numpy(), atol=1e-5)


def test_separable_labels_have_a_finite_fit() -> None:
    inputs = np.array([[-1.0], [-2.0], [1.0], [2.0]])
    fit = fit_logistic(inputs, np.array([0.0, 0.0, 1.0, 1.0]), 1e-6)
    assert np.isfinite(fit.coefficients).all()
    assert (fit.logits(inputs) * [-1, -1, 1, 1] > 5).all()
    alike = fit_logistic(inputs, np.ones(4), 1.0)
    assert np.isfinite(alike.intercept)


def test_fewer_rows_than_columns_fit_the_same_when_turned() -> None:
    inputs, labels = problem(2, 12, 40)
    turned, rotation = rotated(inputs)
    assert turned.shape == (12, 12)
    np.testing.assert_allclose(turned @ rotation.T, inputs, atol=1e-10)
    whole, small = fit_logistic(inputs, labels, 2.0), fit_logistic(turned, labels, 2.0)
    np.testing.assert_allclose(rotation @ small.coefficients, whole.coefficients, atol=1e-6)
    assert small.intercept == pytest.approx(whole.intercept, abs=1e-6)


def test_the_penalty_is_chosen_on_rows_that_were_left_out() -> None:
    """Noise alone asks for the largest penalty, a strong signal for a small one; no row is scored by its own label."""
    rng = generator(3, "noise")
    inputs, labels = rng.normal(size=(60, 20)), (rng.random(60) < 0.5).astype(float)
    folds = np.array_split(np.arange(60), 5)
    assert choose_penalty(inputs, labels, folds, (0.1, 10.0, 1000.0))[0] == 1000.0
    clear = (inputs[:, 0] > 0).astype(float)
    penalty, logits = choose_penalty(inputs, clear, folds, (0.1, 1000.0))
    assert penalty == 0.1
    changed = clear.copy()
    changed[0] = 1 - changed[0]
    assert choose_penalty(inputs, changed, folds, (0.1,))[1][0] == pytest.approx(logits[0], abs=1e-6)


def test_the_covariance_is_that_of_many_samples() -> None:
    """Of the fits to many data sets drawn from one model, each with hardly any penalty."""
    rng = generator(4, "samples")
    inputs = rng.normal(size=(400, 2))
    chances = sigmoid(inputs @ np.array([1.0, -0.5]))
    fits = [fit_logistic(inputs, (rng.random(400) < chances).astype(float), 1e-6) for _ in range(300)]
    sampled = np.cov(np.array([fit.coefficients for fit in fits]).T)
    np.testing.assert_allclose(covariance(inputs, fits[0], 1e-6), sampled, rtol=0.35, atol=0.002)


def test_large_numbers_do_not_overflow() -> None:
    np.testing.assert_allclose(sigmoid(np.array([-1000.0, 0.0, 1000.0])), [0.0, 0.5, 1.0])
    assert cross_entropy(np.array([1000.0]), np.array([0.0])) == pytest.approx(1000.0)
