"""Turns what an agent passes around into JSON that is bounded in depth and size."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any

MAX_TEXT = 262_144
"""Characters of one text; the rest is cut and the cut is said."""
MAX_ITEMS = 1_000
"""Items of one collection."""
MAX_DEPTH = 32
"""Of lists and objects in each other: schemas of tools and their arguments are often ten deep."""
MAX_NODES = 50_000
"""Values in all."""
MAX_CHARACTERS = 1_048_576
"""Characters in all."""

_MAX_KEY = 256
_MAX_INTEGER = 2**63 - 1


def plain(value: object) -> Any:
    """Returns ``value`` as JSON: text, numbers, lists and objects as they are, else its ``repr``.

    Dataclasses become objects. What is too long, too deep or too much is cut, and each cut is written where it was
    made. NaN and infinities, which JSON does not have, become text.
    """
    return _Budget().plain(value, 0)


class _Budget:
    """What one value may still cost."""

    def __init__(self) -> None:
        self.nodes = MAX_NODES
        self.characters = MAX_CHARACTERS

    def plain(self, value: object, depth: int) -> Any:
        self.nodes -= 1
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, numbers.Real):
            return _number(value)
        if depth >= MAX_DEPTH:
            return f"... [deeper than {MAX_DEPTH}]"
        if self.nodes <= 0 or self.characters <= 0:
            return "... [too large]"
        if isinstance(value, Mapping):
            return self.mapping(value.items(), len(value), depth)
        if isinstance(value, list | tuple | set | frozenset):
            return self.items(value, len(value), depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [field.name for field in dataclasses.fields(value) if field.repr]
            return self.mapping(((name, getattr(value, name, None)) for name in fields), len(fields), depth)
        if isinstance(value, bytes | bytearray):
            return f"{bytes(value[:MAX_ITEMS])!r}" + (f"... [{len(value)} bytes]" if len(value) > MAX_ITEMS else "")
        return self.text(repr(value))

    def text(self, value: str) -> str:
        limit = min(MAX_TEXT, max(0, self.characters))
        self.characters -= min(len(value), limit)
        return str(value) if len(value) <= limit else f"{value[:limit]}... [{len(value)} characters]"

    def items(self, values: Iterable[object], count: int, depth: int) -> list[Any]:
        result: list[Any] = []
        for value in values:
            if len(result) >= MAX_ITEMS or self.nodes <= 0:
                return [*result, f"... [{count} items]"]
            result.append(self.plain(value, depth + 1))
        return result

    def mapping(self, pairs: Iterable[tuple[object, object]], count: int, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if len(result) >= MAX_ITEMS or self.nodes <= 0:
                result["..."] = f"[{count} items]"
                return result
            result[_key(key, result)] = self.plain(value, depth + 1)
        return result


def _number(value: numbers.Real) -> Any:
    if isinstance(value, numbers.Integral):
        integer = int(value)
        return integer if -_MAX_INTEGER - 1 <= integer <= _MAX_INTEGER else _large(integer)
    try:
        number = float(value)
    except OverflowError:
        return repr(value)
    return number if math.isfinite(number) else repr(number)


def _large(value: int) -> str:
    """Returns a large integer as text; one with thousands of digits by its size, which is quick."""
    return str(value) if value.bit_length() < 10_000 else f"... [an integer of {value.bit_length()} bits]"


def _key(key: object, taken: Mapping[str, Any]) -> str:
    """Returns a key as text, its type with it where another key has the same text."""
    text = str(key)[:_MAX_KEY]
    return text if text not in taken else f"{text} ({type(key).__name__})"
