"""Changes of settings as a command line gives them: ``exploration.epsilon=0.1``, or a whole file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from learnloop.core.decoding import decode_json, json_or
from learnloop.core.errors import FormatError, UsageError


def changed(settings: msgspec.Struct, changes: Sequence[str], file: Path | None) -> dict[str, Any]:
    """Returns the settings of ``file``, or ``settings`` where it is None, with ``changes`` made; not yet checked.

    Raises:
        FormatError: the file is no JSON object.
        UsageError: a change has no key and value, or lies below a value that is no group.
    """
    found = msgspec.to_builtins(settings) if file is None else _read(file)
    for change in changes:
        key, sign, value = change.partition("=")
        if not sign or not all(key.split(".")):
            raise UsageError(f"{change!r} is no change; give KEY=VALUE, such as exploration.epsilon=0.1")
        _set(found, key.split("."), _value(value), change)
    return found


def _set(target: dict[str, Any], path: Sequence[str], value: object, change: str) -> None:
    for name in path[:-1]:
        if target.get(name) is None:
            target[name] = {}
        inner = target[name]
        if not isinstance(inner, dict):
            raise UsageError(f"{change!r}: {name} is a value, not a group of settings")
        target = inner
    if path[-1] == "kind" and target.get("kind") != value:
        target.clear()  # what was set of the other kind means nothing to this one
    target[path[-1]] = value


def _value(text: str) -> object:
    return json_or(text, text)  # a word, such as apprentice


def _read(file: Path) -> dict[str, Any]:
    try:
        found = decode_json(file.read_bytes(), f"{file} is not JSON")
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror or error})") from error
    if not isinstance(found, dict):
        raise FormatError(f"{file} holds a JSON {type(found).__name__}; settings are an object")
    return found
