"""The one way from untrusted JSON, or what was read of it, to records: what does not fit is an error with a message."""

from __future__ import annotations

from typing import Any, Final, TypeVar, overload

import msgspec

from learnloop.core.errors import FormatError, LearnloopError, UsageError

T = TypeVar("T")

NOT_JSON: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What decoding raises: no JSON or not of this kind, no UTF-8, nested too deeply."""


@overload
def decode_json(
    data: bytes | str, what: str, kind: type[T], *, error: type[LearnloopError] = FormatError, hint: str = ""
) -> T: ...


@overload
def decode_json(data: bytes | str, what: str, *, error: type[LearnloopError] = FormatError, hint: str = "") -> Any: ...


def decode_json(
    data: bytes | str, what: str, kind: Any = Any, *, error: type[LearnloopError] = FormatError, hint: str = ""
) -> Any:
    """Returns what a JSON text holds, as ``kind``.

    Args:
        data: the text.
        what: how the message begins, such as ``line 3 is no task``; the cause follows.
        kind: a record or another type that msgspec knows; anything where left out.
        error: what is raised.
        hint: how the message ends, such as ``; remove it``.

    Raises:
        LearnloopError: ``error``, where it is not JSON or does not fit ``kind``.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except NOT_JSON as cause:
        raise error(f"{what}: {cause}{hint}") from cause
    except UsageError as cause:  # of the record itself, which names its field
        if issubclass(error, UsageError):
            raise
        raise error(f"{what}: {cause}{hint}") from cause


def convert_record(
    value: object,
    what: str,
    kind: type[T],
    *,
    error: type[LearnloopError] = UsageError,
    hint: str = "",
    strict: bool = True,
) -> T:
    """Returns plain values, such as those of a JSON object, as ``kind``; see ``decode_json``.

    Args:
        value: what is read.
        what: how the message begins.
        kind: the record.
        error: what is raised.
        hint: how the message ends.
        strict: False: a text that says a number is taken for it.

    Raises:
        LearnloopError: ``error``, where it does not fit ``kind``; what the record itself refuses is told as it tells it
            where ``error`` is a ``UsageError``.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except (*NOT_JSON, TypeError) as cause:
        raise error(f"{what}: {cause}{hint}") from cause
    except UsageError as cause:  # of the record itself, which names its field
        if issubclass(error, UsageError):
            raise
        raise error(f"{what}: {cause}{hint}") from cause


def json_or(data: bytes | str, default: Any) -> Any:
    """Returns what a JSON text holds, or ``default`` where it is not JSON."""
    try:
        return msgspec.json.decode(data)
    except NOT_JSON:
        return default
