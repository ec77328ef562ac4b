"""What a caller gives to ``choose``, made plain once: the same object is encoded, kept and logged.

So a context that its caller changes afterwards changes nothing here, numbers of other libraries become Python's, and
what is learned now is what a later process reads from the log.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, TypeGuard, cast

import numpy as np

from learnloop.algorithms.hashed.features import MAX_DEPTH, MAX_VECTOR
from learnloop.core.arrays import F32
from learnloop.core.errors import ActionError, ContextError
from learnloop.store.columns import clean_text

_MAX_INTEGER = 2**63 - 1
"""Larger ones become floats: no database column holds them."""
_SHORT = 100
"""Characters of names that are remembered."""


def plain_context(context: object) -> dict[str, Any]:
    """Returns a copy of ``context`` with plain keys and values.

    Raises:
        ContextError: it is no mapping from text to numbers, booleans, texts, None, and objects and lists of them.
    """
    if type(context) is not dict and not isinstance(context, Mapping):
        raise ContextError(f"the context is {context!r}; give a dict from feature names to numbers, booleans or text")
    return {
        _known_text(name) if type(name) is str and len(name) <= _SHORT else _plain_name(name): value
        if type(value) is float
        else _plain_value(name, value, 0)
        for name, value in context.items()
    }


def plain_vector(vector: object) -> F32:
    """Returns ``vector`` as float32 of shape ``(n,)``.

    Raises:
        ContextError: it is no row of numbers, or too long.
    """
    try:
        found = np.array(vector, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise ContextError(f"the vector cannot be read as numbers ({error}); give a list of them") from error
    if found.ndim != 1 or not 1 <= found.size <= MAX_VECTOR:
        raise ContextError(f"the vector has the shape {found.shape}; give 1 to {MAX_VECTOR} numbers in a row")
    return found


def plain_actions(actions: object) -> list[str]:
    """Returns ``actions`` as a list of plain text, in their order.

    Raises:
        ActionError: they have no order, or one is not text.
    """
    if type(actions) is not list and not _has_order(actions):
        raise ActionError(f"the actions are {actions!r}; give a list of names, in an order that means something to you")
    return [
        _known_text(action) if type(action) is str and len(action) <= _SHORT else _plain_action(action)
        for action in actions
    ]


def plain_mask(mask: Sequence[bool]) -> list[bool]:
    """Returns ``mask`` with Python's booleans; other values stay what they are, for the check that refuses them."""
    entries: list[Any] = list(mask)
    return [bool(entry) if isinstance(entry, np.bool_) else entry for entry in entries]


def _has_order(actions: object) -> TypeGuard[Iterable[object]]:
    return isinstance(actions, Iterable) and not isinstance(actions, str | bytes | Mapping | Set)


def _plain_action(action: object) -> str:
    if not isinstance(action, str):
        raise ActionError(f"{action!r} cannot name an action; give text that is not empty")
    return clean_text(str(action))


def _plain_name(name: object) -> str:
    if not isinstance(name, str):
        raise ContextError(f"context feature {name!r} is not named by text; give names such as 'size'")
    return clean_text(str(name))


@lru_cache(8_192)
def _known_text(name: str) -> str:
    """Returns ``name`` as text that can be stored; the same few names come with each decision.

    It is for short names that are text itself: of two kinds of text that are equal, one may be written otherwise.
    """
    return clean_text(name)


def _plain_value(name: object, value: object, depth: int) -> Any:
    if type(value) is float or type(value) is bool:
        return value
    if type(value) is str:
        return clean_text(value)
    if type(value) is int and -_MAX_INTEGER <= value <= _MAX_INTEGER:
        return value
    if isinstance(value, str):
        return clean_text(str(value))
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral) and -_MAX_INTEGER <= int(value) <= _MAX_INTEGER:
        return int(value)
    if isinstance(value, numbers.Real):
        return _as_float(name, value)
    if depth < MAX_DEPTH and (value is None or isinstance(value, list | tuple | Mapping)):
        return _plain_group(name, value, depth + 1)
    raise ContextError(
        f"context feature {name!r} is {value!r}; allowed are numbers, booleans, text, None, and lists and objects of "
        f"these, at most {MAX_DEPTH} deep"
    )


def _plain_group(name: object, value: object, depth: int) -> Any:
    if isinstance(value, Mapping):
        return {_plain_name(inner): _plain_value(f"{name}.{inner}", each, depth) for inner, each in value.items()}
    return None if value is None else [_plain_value(name, each, depth) for each in cast(Iterable[object], value)]


def _as_float(name: object, value: Any) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise ContextError(f"context feature {name!r} is {value!r}, which is too large for a number") from error
