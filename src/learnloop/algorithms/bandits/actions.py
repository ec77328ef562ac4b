"""Actions as a bandit takes them: the checks of the input, the best of them, and the draw of one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from learnloop.core.arrays import F64, Bools
from learnloop.core.errors import ActionError, one_of


def check_actions(actions: Sequence[str], mask: Sequence[bool] | None = None) -> None:
    """Returns if ``actions`` can be chosen from: at least one, distinct, and one of them allowed by ``mask``.

    Raises:
        ActionError: there are none, one is not text or is empty or repeated, or the mask does not fit or allows none.
    """
    if isinstance(actions, str) or len(actions) == 0:
        raise ActionError(f"the actions are {actions!r}; give a list of at least 1 name")
    names: Sequence[object] = actions
    for action in names:
        if not isinstance(action, str) or not action:
            raise ActionError(f"{action!r} cannot name an action; give text that is not empty")
    if len(set(actions)) != len(actions):
        repeated = sorted({action for action in actions if list(actions).count(action) > 1})
        raise ActionError(f"the actions {one_of(repeated)} are given more than once; give each once")
    if mask is not None:
        allowed_actions(actions, mask)


def allowed_actions(actions: Sequence[str], mask: Sequence[bool] | None) -> Bools:
    """Returns which of ``actions`` are allowed, shape ``(len(actions),)``.

    Raises:
        ActionError: the mask has another length, holds something else than booleans, or allows no action.
    """
    if mask is None:
        return _all_allowed(len(actions))
    if len(mask) != len(actions):
        raise ActionError(f"the mask has {len(mask)} entries for {len(actions)} actions; give one for each")
    for entry in mask:
        if not isinstance(entry, bool | np.bool_):
            raise ActionError(f"the mask holds {entry!r}; allowed are True and False")
    allowed = np.array(mask, dtype=np.bool_)
    if not allowed.any():
        raise ActionError(f"the mask allows none of {one_of(actions)}; allow at least 1")
    return allowed


@lru_cache(1_000)
def _all_allowed(number: int) -> Bools:
    """Returns that all are allowed; nobody may change the array, which is handed out again."""
    allowed = np.ones(number, dtype=np.bool_)
    allowed.setflags(write=False)
    return allowed


def draw(probabilities: F64 | list[float], rng: np.random.Generator) -> int:
    """Returns the index of an action drawn from ``probabilities``; never one whose probability is 0."""
    point = float(rng.random())
    listed = probabilities if isinstance(probabilities, list) else probabilities.tolist()
    total = 0.0
    last = -1
    for index, probability in enumerate(listed):
        if probability > 0.0:
            total += probability
            last = index
            if point < total:
                return index
    if last < 0:
        raise ActionError(f"no action has a probability above 0: {listed}")
    return last  # the sum fell short of 1 by rounding


def share_among_best(scores: F64) -> F64:
    """Returns 1 shared evenly by the actions of the highest score, shape ``(len(scores),)``; 0 for all others."""
    top = scores == scores.max()
    shares: F64 = top / np.count_nonzero(top)
    return shares
