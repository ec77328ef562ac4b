"""Strengths from comparisons by pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learnloop.core.errors import DivergedError, UsageError

MAX_ROUNDS = 100_000
_TOLERANCE = 1e-10


def bradley_terry(wins: NDArray[np.float64], prior: float) -> NDArray[np.float64]:
    """Returns the strengths ``(n,)`` by which i beats j with the probability ``s[i] / (s[i] + s[j])``.

    A tie is half a win of each. Each player also plays ``prior`` games against one of strength 1, of which half are
    won. Without such games the strength of who always wins is infinite, and groups that never met cannot be compared;
    with them there is exactly one answer, whatever was played.

    Source: Hunter 2004, "MM algorithms for generalized Bradley-Terry models", section 2, equation (3), on the games
    with those of the prior among them.

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
    strengths: NDArray[np.float64] = np.ones(len(wins))
    for _ in range(MAX_ROUNDS):
        expected = (games / (strengths[:, None] + strengths)).sum(axis=1) + prior / (strengths + 1.0)
        updated: NDArray[np.float64] = _centred(won / expected)
        is_settled = np.abs(np.log(updated / strengths)).max(initial=0.0) < _TOLERANCE
        strengths = updated
        if is_settled:
            return strengths
    raise DivergedError(f"the strengths did not settle in {MAX_ROUNDS} rounds; is the prior ({prior}) very small?")


def _centred(strengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns all strengths times one number, nearer to where the prior's games are won by half.

    That is so at the answer (the sum of its equations says it), and what the games among themselves say stays the same.
    It is a step of Newton's method, at most e wide; without it the rounds move the scale only as fast as the prior is
    large.
    """
    chances = strengths / (strengths + 1.0)
    step = (0.5 - chances).sum() / max(float((chances * (1.0 - chances)).sum()), 1e-300)
    moved: NDArray[np.float64] = strengths * np.exp(min(1.0, max(-1.0, step)))
    return moved
