"""Turns what clients pass around, which are objects of many libraries, into the JSON that was on the wire."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from learnloop.core.decoding import json_or

_MAX_DEPTH = 32


def body_of(value: Any) -> Mapping[str, Any] | None:
    """Returns a request, a response or a chunk as a JSON object; None where it is not one.

    Objects are read by their own ``model_dump`` where they have one (pydantic), else by their fields.
    """
    found = _plain(value, 0)
    return found if isinstance(found, Mapping) else None


def decoded(data: bytes) -> dict[str, Any] | None:
    """Returns the JSON object that a body's bytes hold; None where they hold none."""
    value = json_or(data, None)
    return value if isinstance(value, dict) else None


def events_of(data: bytes) -> list[dict[str, Any]]:
    """Returns the JSON objects of a stream of server-sent events."""
    found: list[dict[str, Any]] = []
    for block in data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n"):
        lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
        event = decoded(b"\n".join(lines))
        if event is not None:
            found.append(event)
    return found


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if depth > _MAX_DEPTH:
        return repr(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each, depth + 1) for key, each in value.items() if not _is_unset(each)}
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return _dumped(dump)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name), depth + 1) for field in dataclasses.fields(value)}
    fields = getattr(value, "__dict__", None)
    if isinstance(fields, dict) and not isinstance(value, type):
        return {key: _plain(each, depth + 1) for key, each in fields.items() if not key.startswith("_")}
    return repr(value)


def _dumped(dump: Any) -> Any:
    """Returns what a model holds; a response whose parsed content fits no declared type is dumped without a warning."""
    try:
        return dump(mode="json", exclude_none=True, warnings=False)
    except TypeError:  # another library's own ``model_dump``
        return dump()


def _is_unset(value: object) -> bool:
    """Returns whether a client's request leaves a value out: each client has an object of its own that says so."""
    return type(value).__name__ in ("NotGiven", "Omit", "Unset", "UnsetType")
