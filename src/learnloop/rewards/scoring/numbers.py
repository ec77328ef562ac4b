"""Which values are numbers that can be learned from."""

from __future__ import annotations

from typing import Any

import numpy as np

from learnloop.core.errors import RewardError
from learnloop.core.records import MAX_REWARD


def is_finite_number(value: Any) -> bool:
    """Returns whether something is a number that can be learned from: finite, at most ``MAX_REWARD``, no bool."""
    plain = value.item() if isinstance(value, np.number) else value
    return isinstance(plain, int | float) and not isinstance(plain, bool) and abs(plain) <= MAX_REWARD


def check_number(what: str, value: Any) -> float:
    """Returns ``value`` as a float.

    Raises:
        RewardError: it is None, which is not 0, or no number that can be learned from.
    """
    if not is_finite_number(value):
        raise RewardError(f"{what} is {value!r}; a finite number is needed, and None is never read as 0")
    return float(value)
