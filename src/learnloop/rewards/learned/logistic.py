"""Logistic regression with a ridge penalty, on labels from 0 to 1, by Newton's method.

Source: Hastie, Tibshirani and Friedman 2009, "The Elements of Statistical Learning", section 4.4.1 (Newton steps),
equation 4.31 (penalty), section 18.3.5 (the fit in the space of the rows, where there are fewer rows than columns);
MacKay 1992, "The Evidence Framework Applied to Classification Networks" (uncertainty by the curvature).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F64, Indices

_MAX_STEPS = 100
_TOLERANCE = 1e-13
_MIN_STEP = 1e-10


class Fit(NamedTuple):
    """A fitted model: ``sigmoid(inputs @ coefficients + intercept)``."""

    coefficients: F64
    """Shape ``(num_inputs,)``."""
    intercept: float

    def logits(self, inputs: F64) -> F64:
        """Returns the log odds of each row, shape ``(num_rows,)``."""
        found: F64 = inputs @ self.coefficients + self.intercept
        return found


def sigmoid(logits: F64) -> F64:
    """Returns ``1 / (1 + exp(-logits))`` without overflow."""
    found: F64 = 0.5 * (1.0 + np.tanh(0.5 * logits))
    return found


def cross_entropy(logits: F64, labels: F64) -> float:
    """Returns the mean of ``-label log p - (1 - label) log(1 - p)``."""
    return float(np.mean(np.logaddexp(0.0, logits) - labels * logits))


def fit_logistic(inputs: F64, labels: F64, penalty: float, start: Fit | None = None) -> Fit:
    """Returns the minimum of the sum of cross-entropies and ``penalty / 2`` times the squared coefficients.

    The intercept is not penalised. The problem is convex: each start leads to the same fit.

    Args:
        inputs: shape ``(num_rows, num_inputs)``.
        labels: shape ``(num_rows,)``, from 0 to 1.
        penalty: above 0.
        start: where to begin; None: at 0.
    """
    padded = np.column_stack([inputs, np.ones(len(inputs))])
    ridge = np.full(padded.shape[1], penalty)
    ridge[-1] = 1e-9  # keeps the curvature invertible where all labels are alike
    place = np.zeros(padded.shape[1]) if start is None else np.append(start.coefficients, start.intercept)

    def loss(at: F64) -> float:
        logits = padded @ at
        return float(np.sum(np.logaddexp(0.0, logits) - labels * logits) + 0.5 * np.sum(ridge * at * at))

    now = loss(place)
    for _ in range(_MAX_STEPS):
        chances = sigmoid(padded @ place)
        gradient = padded.T @ (chances - labels) + ridge * place
        step = np.asarray(np.linalg.solve(_curvature(padded, chances, ridge), gradient), dtype=np.float64)
        decrease = float(gradient @ step)
        if decrease < _TOLERANCE * (1.0 + abs(now)):
            break
        size = 1.0
        while (then := loss(place - size * step)) > now - 1e-4 * size * decrease and size > _MIN_STEP:
            size /= 2
        place, now = place - size * step, then
    return Fit(place[:-1], float(place[-1]))


def covariance(inputs: F64, fit: Fit, penalty: float) -> F64:
    """Returns how uncertain the coefficients are (Laplace's approximation), shape ``(num_inputs, num_inputs)``.

    The variance of a row's log odds is ``row @ covariance @ row``.
    """
    chances = sigmoid(fit.logits(inputs))
    found = np.linalg.inv(_curvature(inputs, chances, np.full(inputs.shape[1], penalty)))
    return np.asarray((found + found.T) / 2, dtype=np.float64)


def rotated(inputs: F64) -> tuple[F64, F64]:
    """Returns ``inputs`` in as few columns as they span, and the rotation: ``inputs == first @ second.T``.

    A ridge fit on the first is the same as one on ``inputs``; ``second`` takes its coefficients back.
    """
    left, sizes, right = np.linalg.svd(inputs, full_matrices=False)
    kept = sizes > 1e-10 * max(float(sizes[0]), 1e-300)
    return left[:, kept] * sizes[kept], right[kept].T


def choose_penalty(inputs: F64, labels: F64, folds: Sequence[Indices], penalties: Sequence[float]) -> tuple[float, F64]:
    """Returns the penalty with the least cross-entropy on left-out folds, and the log odds that it gives these.

    Args:
        inputs: shape ``(num_rows, num_inputs)``.
        labels: shape ``(num_rows,)``.
        folds: the rows of each fold; each row is in one.
        penalties: to choose from, at least one.

    Returns:
        The penalty, and for each row the log odds by the model that did not see its fold, shape ``(num_rows,)``.
    """
    ordered = sorted(penalties, reverse=True)
    left_out = np.empty((len(ordered), len(labels)))
    for fold in folds:
        seen = np.ones(len(labels), dtype=bool)
        seen[fold] = False
        fit: Fit | None = None
        for place, penalty in enumerate(ordered):
            fit = fit_logistic(inputs[seen], labels[seen], penalty, fit)
            left_out[place, fold] = fit.logits(inputs[fold])
    losses = [cross_entropy(logits, labels) for logits in left_out]
    best = int(np.argmin(losses))
    return ordered[best], left_out[best]


def _curvature(inputs: F64, chances: F64, ridge: F64) -> F64:
    weighted = inputs * (chances * (1.0 - chances))[:, None]
    found: F64 = inputs.T @ weighted
    found[np.diag_indices_from(found)] += ridge
    return found
