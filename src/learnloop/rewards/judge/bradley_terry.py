"""Strengths from comparisons by pairs."""

from __future__ import annotations

import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.errors import DivergedError, UsageError

MAX_ROUNDS = 1_000
_TOLERANCE = 1e-10
_MAX_STEP = 1.0
"""Of one round, in logarithms: further away the parabola that Newton's method takes for the likelihood is none."""


def bradley_terry(wins: F64, prior: float) -> F64:
    """Returns the strengths ``(n,)`` by which i beats j with the probability ``s[i] / (s[i] + s[j])``.

    A tie is half a win of each. Each player also plays ``prior`` games against one of strength 1, of which half are
    won. Without such games the strength of who always wins is infinite, and groups that never met cannot be compared;
    with them there is exactly one answer, whatever was played.

    Source: Hunter 2004, "MM algorithms for generalized Bradley-Terry models", section 2: the likelihood of equation
    (1), with the games of the prior among the others. It is strictly concave in the logarithms of the strengths, and
    found by Newton's method.

    Args:
        wins: ``(n, n)``, how often i beat j.
        prior: how many games, above 0.

    Raises:
        UsageError: ``wins`` is not square, has negative numbers or games of somebody with himself, or ``prior`` is not
            above 0.
        DivergedError: the strengths do not settle.
    """
    if wins.ndim != 2 or wins.shape[0] != wins.shape[1] or not np.isfinite(wins).all() or (wins < 0).any():
        raise UsageError(f"wins has the shape {wins.shape}; a square of finite numbers from 0 up is needed")
    if wins.diagonal().any() or not 0.0 < prior < np.inf:
        raise UsageError(f"nobody plays against himself, and prior ({prior}) must be above 0")
    games = wins + wins.T
    won = wins.sum(axis=1) + prior / 2
    logs: F64 = np.zeros(len(wins))
    for _ in range(MAX_ROUNDS):
        chances = _logistic(logs[:, None] - logs)
        against_prior = _logistic(logs)
        spread = games * chances * (1.0 - chances)
        slope = won - (games * chances).sum(axis=1) - prior * against_prior
        curvature = np.diag(spread.sum(axis=1) + prior * against_prior * (1.0 - against_prior)) - spread
        step = np.linalg.solve(curvature, slope)
        widest = float(np.abs(step).max(initial=0.0))
        logs = logs + step * min(1.0, _MAX_STEP / max(widest, _TOLERANCE))
        if widest < _TOLERANCE:
            return np.exp(logs)
    raise DivergedError(f"the strengths did not settle in {MAX_ROUNDS} rounds; is the prior ({prior}) very small?")


def _logistic(values: F64) -> F64:
    found: F64 = 0.5 + 0.5 * np.tanh(0.5 * values)  # which never overflows
    return found
