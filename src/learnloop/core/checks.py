"""Checks of values that callers give: each error names the value, what is allowed, and so what to do."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Collection
from typing import TypeGuard, TypeVar

from learnloop.core.errors import LearnloopError, UsageError, one_of

T = TypeVar("T")
Kind = type[LearnloopError]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_range(
    name: str,
    value: float,
    low: float | None = None,
    high: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    error: Kind = UsageError,
) -> None:
    """Returns if a number lies where it may; NaN lies nowhere.

    Args:
        name: how the message calls it.
        value: the number.
        low: the lowest that is allowed.
        high: the highest that is allowed.
        above: it must be above this.
        below: it must be below this.
        error: what is raised.

    Raises:
        LearnloopError: ``error``, where it lies elsewhere.
    """
    if not _lies_in(value, low, high, above, below):
        raise error(f"{name} is {value!r}; allowed is {_words(low, high, above, below)}")


def check_whole(
    name: str, value: object, low: int | None = 1, high: int | None = None, *, error: Kind = UsageError
) -> int:
    """Returns ``value`` if it is a whole number from ``low`` to ``high``; a boolean is none.

    Raises:
        LearnloopError: ``error``, where it is not.
    """
    is_whole = not isinstance(value, bool) and isinstance(value, numbers.Integral)
    if is_whole and _lies_in(int(value), low, high, None, None):  # type: ignore[call-overload]
        return int(value)  # type: ignore[call-overload,no-any-return]
    where = _words(low, high, None, None)
    raise error(f"{name} is {value!r}; a whole number{where and f' {where}'} is needed")


def check_number(
    name: str,
    value: object,
    low: float | None = None,
    high: float | None = None,
    *,
    above: float | None = None,
    error: Kind = UsageError,
) -> float:
    """Returns ``value`` if it is a finite number that lies where it may, see ``check_range``; a boolean is none.

    Raises:
        LearnloopError: ``error``, where it is not.
    """
    if is_number(value) and _lies_in(float(value), low, high, above, None):
        return float(value)
    where = _words(low, high, above, None)
    raise error(f"{name} is {value!r}; {f'a number {where}' if where else 'a finite number'} is needed")


def check_choice(name: str, value: T, allowed: Collection[T], *, error: Kind = UsageError) -> T:
    """Returns ``value`` if it is one of ``allowed``.

    Raises:
        LearnloopError: ``error``, where it is not.
    """
    if value not in allowed:
        raise error(f"{name} is {value!r}; allowed are {one_of(allowed, 30)}")
    return value


def check_name(kind: str, name: object) -> str:
    """Returns ``name`` if it can name a ``kind`` (an agent, a policy, an alias): safe in a path, a URL and a log.

    Raises:
        UsageError: it is not 1 to 100 letters, digits, dots, dashes and underscores that start with a letter or digit.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name {kind}: allowed are 1 to 100 letters, digits, '.', '_' and '-', "
            "of which the first is a letter or a digit"
        )
    return name


def is_number(value: object) -> TypeGuard[float]:
    """Returns whether ``value`` is a finite number, of Python or numpy, and no boolean."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value)


def _lies_in(value: float, low: float | None, high: float | None, above: float | None, below: float | None) -> bool:
    return (
        (low is None or value >= low)
        and (high is None or value <= high)
        and (above is None or value > above)
        and (below is None or value < below)
        and not math.isnan(value)
    )


def _words(low: float | None, high: float | None, above: float | None, below: float | None) -> str:
    """Returns what is allowed, such as ``from 0 to 1`` or ``above 0 and below 1``."""
    if low is not None and high is not None:
        return f"from {_shown(low)} to {_shown(high)}"
    bounds = (("from", low), ("above", above), ("up to", high), ("below", below))
    return " and ".join(f"{word} {_shown(bound)}" for word, bound in bounds if bound is not None)


def _shown(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
