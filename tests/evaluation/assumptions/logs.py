"""Logs whose truth is known: what was drawn with which probability, and what was written down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learnloop.core.arrays import F64, Indices
from learnloop.core.protocols import Sample

START = 1_760_000_000.0
GROUPS = ("red", "green", "blue", "grey")


def names_of(number: int) -> list[str]:
    return [chr(ord("a") + place) for place in range(number)]


def drawn(shares: F64, rng: np.random.Generator) -> Indices:
    """Returns an action for each row of probabilities."""
    found: Indices = (shares.cumsum(axis=1) < rng.random((len(shares), 1))).sum(axis=1)
    return np.minimum(found, shares.shape[1] - 1).astype(np.intp)


def make_log(
    true: F64,
    logged: F64,
    rng: np.random.Generator,
    *,
    contexts: Sequence[dict[str, object]] | None = None,
    units: Sequence[str] | None = None,
    rewards: F64 | None = None,
    taken: Indices | None = None,
) -> list[Sample]:
    """Returns a log, a second between rows.

    Args:
        true: the probabilities that actions are drawn with, shape ``(num_rows, num_actions)``.
        logged: those that are written down.
        rng: draws the actions.
        contexts: None: a number and a group, drawn at random.
        units: None: each row is one of its own.
        rewards: None: 0 everywhere.
        taken: the actions, where they are not drawn independently.
    """
    size = len(true)
    names = names_of(true.shape[1])
    taken = drawn(true, rng) if taken is None else taken
    if contexts is None:
        contexts = [{"x": float(x), "group": GROUPS[g]} for x, g in zip(rng.random(size), rng.integers(4, size=size))]  # noqa: B905
    return [
        Sample(
            unit=f"u{row}" if units is None else units[row],
            context=contexts[row],
            actions=names,
            mask=None,
            action=names[action],
            propensity=float(logged[row, action]),
            reward=0.0 if rewards is None else float(rewards[row]),
            made_at=START + row,
        )
        for row, action in enumerate(taken.tolist())
    ]


def rows_of(share: Sequence[float], size: int) -> F64:
    """Returns the same probabilities for each row."""
    return np.tile(np.array(share, dtype=np.float64), (size, 1))
