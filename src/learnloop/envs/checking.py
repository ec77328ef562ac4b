"""What the constructors of our environments check, and the errors that say what is allowed."""

from __future__ import annotations

import math
import numbers
from typing import Any

from learnloop.core.errors import UsageError, one_of


def check_whole(label: str, name: str, value: object, low: int = 1, high: float = math.inf) -> None:
    """Returns if ``value`` is a whole number from ``low`` to ``high``.

    Raises:
        UsageError: it is not.
    """
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_whole or not low <= int(value) <= high:  # type: ignore[call-overload]
        raise UsageError(f"{name} of {label} is {value!r}; a whole number {_range(low, high)} is needed")


def check_number(label: str, name: str, value: object, low: float = -math.inf, high: float = math.inf) -> None:
    """Returns if ``value`` is a finite number from ``low`` to ``high``.

    Raises:
        UsageError: it is not.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:  # type: ignore[arg-type,operator]
        raise UsageError(f"{name} of {label} is {value!r}; a number {_range(low, high)} is needed")


def check_choice(label: str, name: str, value: object, allowed: tuple[Any, ...]) -> None:
    """Returns if ``value`` is one of ``allowed``.

    Raises:
        UsageError: it is not.
    """
    if value not in allowed:
        raise UsageError(f"{name} of {label} is {value!r}; allowed are {one_of(allowed)}")


def _range(low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return "that is finite"
    if math.isinf(high):
        return f"from {low:g}"
    return f"up to {high:g}" if math.isinf(low) else f"from {low:g} to {high:g}"


def refuse_step(label: str) -> UsageError:
    """Returns the error for a step where no episode runs."""
    return UsageError(f"{label} is stepped while no episode runs; call reset first, and again after each end")
