"""Transitions on their way into a replay and out of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32, I64, Bools
from learnloop.core.stepping import Actions, Masks

_PART = 256
"""So many observations are compared at once."""


class Entries(NamedTuple):
    """Transitions whose observations the buffer has seen already, known by number. Shapes are ``(batch,)``."""

    first: I64
    """The observation that the action was chosen on."""
    actions: Actions
    rewards: NDArray[Any]
    """Of one step, or the discounted sum of several."""
    following: I64
    """The observation that it led to; where ``terminated``, ``first`` again."""
    discounts: NDArray[Any] | float
    """What the value of ``following`` is worth: gamma, or its k-th power after k steps."""
    terminated: Bools
    truncated: Bools

    def rows(self, chosen: Bools | slice) -> Entries:
        """Returns those that are ``chosen``."""
        return Entries._make([each if isinstance(each, float) else each[chosen] for each in self])


class Transitions(NamedTuple):
    """Transitions with their observations, each of one step, shapes ``(batch, ...)``: such as historical ones."""

    observations: F32
    """Encoded, shape ``(batch, size)``."""
    actions: Actions
    """Counted from 0 for a discrete space, in the units of the space for a box."""
    rewards: NDArray[Any]
    next_observations: F32
    """What each action led to; rows where ``terminated`` are not looked at."""
    terminated: Bools
    truncated: Bools
    masks: Masks | None = None
    """Which choices were allowed, shape ``(batch, num_choices)``; None: all."""
    next_masks: Masks | None = None


class ReplaySample(NamedTuple):
    """Transitions that were drawn. Observations are the buffer's, and valid until its next sample of the same size."""

    numbers: I64
    """Which transitions they are; a number is never used again, so it tells an entry from what overwrites it."""
    following: I64
    """Which observations they led to; equal numbers are the same observation."""
    observations: F32
    actions: Actions
    rewards: F32
    next_observations: F32
    """Where ``terminated``, ``observations`` again."""
    discounts: F32
    terminated: Bools
    truncated: Bools
    masks: Masks | None
    next_masks: Masks | None
    weights: F32 | None
    """Importance weights, at most 1; None: all are 1."""

    def rows(self, rows: slice) -> ReplaySample:
        """Returns a part."""
        return ReplaySample._make([None if each is None else each[rows] for each in self])


def chained(transitions: Transitions) -> Bools:
    """Returns which transitions end with the observation, and the mask, that the one after them begins with."""
    found = np.zeros(len(transitions.rewards), dtype=np.bool_)
    for start in range(0, len(found) - 1, _PART):
        stop = min(start + _PART, len(found) - 1)
        following = transitions.observations[start + 1 : stop + 1]
        found[start:stop] = (transitions.next_observations[start:stop] == following).all(axis=1)
    if transitions.next_masks is not None and transitions.masks is not None:
        found[:-1] &= (transitions.next_masks[:-1] == transitions.masks[1:]).all(axis=1)
    return found & ~(transitions.terminated | transitions.truncated)
