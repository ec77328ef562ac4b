"""Turns what an agent passes around into JSON that is bounded in depth and size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MAX_TEXT = 65_536
"""Characters of one text; the rest is cut and the cut is said."""
MAX_ITEMS = 1_000
MAX_DEPTH = 8


def plain(value: object, depth: int = 0) -> Any:
    """Returns ``value`` as JSON: text, numbers, lists and objects as they are, anything else by its ``repr``.

    Texts are cut after ``MAX_TEXT`` characters, collections after ``MAX_ITEMS`` items and at depth ``MAX_DEPTH``, and
    each cut is written where it was made. NaN and infinities, which JSON does not have, become text.
    """
    if value is None or value is True or value is False:
        return value
    if type(value) is str:
        return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}... [{len(value)} characters]"
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else str(value)
    if type(value) is float:
        return value if math.isfinite(value) else repr(value)
    if depth >= MAX_DEPTH:
        return f"... [deeper than {MAX_DEPTH}]"
    if isinstance(value, Mapping):
        return _plain_mapping(value, depth)
    if isinstance(value, list | tuple | set | frozenset):
        items = [plain(item, depth + 1) for _, item in zip(range(MAX_ITEMS), value, strict=False)]
        return items if len(value) <= MAX_ITEMS else [*items, f"... [{len(value)} items]"]
    return plain(repr(value), depth)


def _plain_mapping(value: Mapping[Any, object], depth: int) -> dict[str, Any]:
    result = {str(key): plain(item, depth + 1) for _, (key, item) in zip(range(MAX_ITEMS), value.items(), strict=False)}
    if len(value) > MAX_ITEMS:
        result["..."] = f"[{len(value)} items]"
    return result
