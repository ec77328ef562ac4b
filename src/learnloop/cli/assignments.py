"""NAME=VALUE as a command line gives it: values by name, and changes of settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from learnloop.core.errors import FormatError, UsageError

if TYPE_CHECKING:
    from msgspec import Struct

_PYTHON = {"True": True, "False": False, "None": None}
"""Words that people write who think in Python; each is JSON in small letters."""


def texts_by_name(given: Iterable[str], option: str, example: str, *, at_last: bool = False) -> dict[str, str]:
    """Returns the values of an option that may be given again, by their names.

    Args:
        given: each as NAME=VALUE.
        option: what it is called, for messages.
        example: how it is written, for messages.
        at_last: whether a name may have a ``=``, which a value then has not.

    Raises:
        UsageError: one is written otherwise, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in given:
        name, sign, value = text.rpartition("=") if at_last else text.partition("=")
        if not sign or not name:
            raise UsageError(f"{option} {text!r} is not NAME=VALUE, such as {example}")
        if name in found:
            raise UsageError(f"{option}: {name!r} is set twice; once is enough")
        found[name] = value
    return found


def numbers_by_name(given: Iterable[str], option: str, example: str) -> dict[str, float]:
    """Returns numbers by their names; raises as ``texts_by_name``, and where one is not a number."""
    found: dict[str, float] = {}
    for name, text in texts_by_name(given, option, example, at_last=True).items():
        try:
            found[name] = float(text)
        except ValueError as error:
            raise UsageError(f"{option} {name}: {text!r} is not a number; write it as in {example}") from error
    return found


def values_by_name(given: Iterable[str], option: str = "--set") -> dict[str, Any]:
    """Returns JSON values by their names, texts where they are not JSON; raises as ``texts_by_name``."""
    from learnloop.core.decoding import json_or

    found = texts_by_name(given, option, "learning_rate=0.01")
    return {name: json_or(text, _PYTHON.get(text, text)) for name, text in found.items()}


def changed_settings(settings: Struct, changes: Sequence[str], file: Path | None) -> dict[str, Any]:
    """Returns the settings of ``file``, or ``settings`` where it is None, with ``changes`` made; not yet checked.

    Raises:
        FormatError: the file is not a JSON object.
        UsageError: a change has no key and value, or lies below a value that is not a group.
    """
    import msgspec

    from learnloop.core.decoding import json_or

    found = msgspec.to_builtins(settings) if file is None else _read(file)
    for key, text in texts_by_name(changes, "--set", "exploration.epsilon=0.1").items():
        _set(found, key.split("."), json_or(text, text))  # a word, such as apprentice, is not JSON
    return found


def _set(target: dict[str, Any], path: Sequence[str], value: object) -> None:
    key = ".".join(path)
    if not all(path):
        raise UsageError(f"--set {key!r} is not a key, such as exploration.epsilon")
    for name in path[:-1]:
        if target.get(name) is None:
            target[name] = {}
        inner = target[name]
        if not isinstance(inner, dict):
            raise UsageError(f"--set {key!r}: {name} is a value, not a group of settings")
        target = inner
    if path[-1] == "kind" and target.get("kind") != value:
        target.clear()  # what was set of the other kind means nothing to this one
    target[path[-1]] = value


def _read(file: Path) -> dict[str, Any]:
    from learnloop.core.decoding import decode_json

    try:
        found = decode_json(file.read_bytes(), f"{file} is not JSON")
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror or error})") from error
    if not isinstance(found, dict):
        raise FormatError(f"{file} holds a JSON {type(found).__name__}; settings are an object")
    return found
