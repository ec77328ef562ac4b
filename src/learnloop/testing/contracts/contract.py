"""What all contracts share: how a rule says that it is broken, and how the rules of one are checked without pytest.

A contract is a class. Whoever writes an implementation subclasses it in a test file under a name that begins with
``Test``, says how the implementation is made, and pytest runs its rules, the methods ``test_...``. Nothing here needs
pytest: ``check_contract`` runs the same rules.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeVar
from unittest import SkipTest

import numpy as np

from learnloop.core.errors import CheckFailedError

Kind = TypeVar("Kind", bound=Exception)

PREFIX = "test_"


class ContractError(CheckFailedError, AssertionError):
    """An implementation breaks a rule: the message says what is promised, what was found, and why it matters."""


class Contract(ABC):  # noqa: B024 - what is abstract depends on the kind
    """The base of all contracts. Rules are the methods ``test_...``; each gets an object of its own."""


class ContractReport(NamedTuple):
    """What the rules of a contract found."""

    kept: list[str]
    """The rules that were kept."""
    skipped: Mapping[str, str]
    """Rules that do not apply, each with the reason."""
    broken: Mapping[str, str]
    """Rules that were broken, each with what was found."""


def rules_of(contract: type[Contract]) -> list[str]:
    """Returns the names of the rules of ``contract``, in the order of the alphabet."""
    return sorted(name for name in dir(contract) if name.startswith(PREFIX))


def check_contract(contract: type[Contract]) -> ContractReport:
    """Returns which rules an implementation keeps; an error of any kind breaks the rule that it comes from."""
    kept: list[str] = []
    skipped: dict[str, str] = {}
    broken: dict[str, str] = {}
    for rule in rules_of(contract):
        try:
            getattr(contract(), rule)()
        except SkipTest as reason:
            skipped[rule] = str(reason)
        except Exception as error:  # noqa: BLE001 - of the implementation: what it raises is what was found
            broken[rule] = f"{type(error).__name__}: {error}"
        else:
            kept.append(rule)
    return ContractReport(kept, skipped, broken)


def skip(reason: str) -> NoReturn:
    """Ends a rule that does not apply; pytest shows it as skipped."""
    raise SkipTest(reason)


def needs(holds: object, reason: str) -> None:
    """Ends a rule that does not apply, for this reason, unless ``holds``."""
    if not holds:
        skip(reason)


def expect(holds: object, promise: str, found: object, why: str) -> None:
    """Returns if ``holds``.

    Args:
        holds: whether the rule is kept.
        promise: what an implementation promises.
        found: what it did.
        why: what goes wrong without it.

    Raises:
        ContractError: it does not hold.
    """
    if not holds:
        fail(promise, found, why)


def fail(promise: str, found: object, why: str) -> NoReturn:
    """Raises ContractError."""
    raise ContractError(f"promised: {promise}. Found: {found}. Why it matters: {why}")


def same(first: object, second: object, promise: str, why: str) -> None:
    """Returns if both are equal; arrays must be so to the bit, shapes and types included.

    Raises:
        ContractError: they are not.
    """
    if not _equal(first, second):
        fail(promise, f"{_short(first)} and {_short(second)}", why)


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_equal, first, second))
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_equal(first[key], second[key]) for key in first)
    return bool(np.array_equal(first, second)) if isinstance(first, np.ndarray) else bool(first == second)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def refuses(kind: type[Kind], promise: str, why: str, call: Callable[..., object], *given: Any, **named: Any) -> Kind:
    """Returns the error of a ``kind`` with which ``call`` refuses what it is given.

    Raises:
        ContractError: it returns, or raises an error of another kind.
    """
    try:
        result = call(*given, **named)
    except kind as error:
        return error
    except Exception as error:
        raise ContractError(
            f"promised: {promise}. Found: {type(error).__name__}: {error}. Why it matters: {why}"
        ) from error
    fail(promise, f"no error, and {_short(result)}", why)
