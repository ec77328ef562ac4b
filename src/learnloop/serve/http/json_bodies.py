"""Bodies of JSON: read strictly, and cheap to refuse before anything is built from them; written by msgspec."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from learnloop.serve.http.calls import read_body
from learnloop.serve.http.problems import FieldError, Problem

T = TypeVar("T")

MAX_DEPTH = 32
"""How many arrays and objects may lie in each other."""
_SHORT_BYTES = 4_096
"""Less is sooner decoded and encoded again than searched for its keys."""
_FEW_KEYS = 64
_FEW_TEXTS = 256
_MAX_SPACE = 16
_NO_STRUCTURE = bytes(set(range(256)) - set(b'[]{}":'))
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1
_PLACE = re.compile(r"(.*?)(?: - at `(.*)`)?", re.DOTALL)
_encoder = msgspec.json.Encoder(decimal_format="string")


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Returns ``value``, a msgspec Struct or plain Python values, as a JSON answer."""
    return Response(_encoder.encode(value), status, headers, "application/json")


async def read_json(request: Request, kind: type[T]) -> T:
    """Returns the body of ``request`` as ``kind``, decoded strictly: no unknown type conversions, no NaN.

    Args:
        request: whose route takes JSON.
        kind: a msgspec Struct, or any type that msgspec knows; ``Any`` for plain Python values.

    Raises:
        Problem: 400 where the body is no JSON, is nested more than ``MAX_DEPTH`` deep or has a key twice; 422 where it
            is not what ``kind`` says; 413 and 408 as ``Body``.
    """
    return decode_json(await read_body(request), kind)


def decode_json(data: bytes, kind: type[T]) -> T:
    """Returns JSON text as ``kind``; see ``read_json``."""
    check_json(data)
    wanted: Any = kind
    try:
        value: T = _decoder(wanted).decode(data)
    except msgspec.ValidationError as error:
        raise Problem(422, "the body is not what this route takes", errors=[_field_error(error)]) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from error
    return value


def check_json(data: bytes) -> None:
    """Refuses JSON that is nested too deep or has a key twice in one object, without building it.

    Raises:
        Problem: 400.
    """
    structure = _structure(data)
    if structure.count(b"[") + structure.count(b"{") > MAX_DEPTH:
        _check_depth(structure)
    num_keys = structure.count(b":")
    if num_keys < 2 or (len(data) > _SHORT_BYTES and num_keys <= _FEW_KEYS and _has_distinct_keys(data)):
        return
    try:
        plain = msgspec.json.encode(msgspec.json.decode(data))
    except msgspec.ValidationError:  # a number that is too large: whoever reads the body names its place
        return
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from error
    if _structure(plain).count(b":") != num_keys:
        raise Problem(400, "the body has an object with the same key twice; give each key once")


def _has_distinct_keys(data: bytes) -> bool:
    """Returns whether all keys of all objects are surely different; False where a closer look is needed."""
    if b"\\" in data:
        return False
    keys: list[bytes] = []
    end = -1
    for _ in range(_FEW_TEXTS):
        start = data.find(b'"', end + 1)
        if start < 0:
            return len(set(keys)) == len(keys)
        end = data.find(b'"', start + 1)
        mark = data[end + 1 : end + _MAX_SPACE].lstrip()[:1]
        if end < 0 or not mark:
            return False
        if mark == b":":
            keys.append(data[start:end])
    return False


def _structure(data: bytes) -> bytes:
    """Returns the brackets and colons of JSON text that lie outside of its strings, in their order.

    Source: the grammar of RFC 8259, section 7. Escaped backslashes go first, then escaped quotes; the quotes that are
    left delimit. Two adjacent ones can go: either an empty string, or two strings that become one.
    """
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = data.translate(None, _NO_STRUCTURE).replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


def _check_depth(structure: bytes) -> None:
    depths = np.cumsum(_STEPS[np.frombuffer(structure, np.uint8)], dtype=np.int32)
    if depths.max() > MAX_DEPTH:
        raise Problem(400, f"the body is nested more than {MAX_DEPTH} deep; nest less")


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=True)


def _field_error(error: msgspec.ValidationError) -> FieldError:
    found = _PLACE.fullmatch(str(error))
    detail, pointer = (str(error), None) if found is None else found.groups()
    return FieldError(detail=detail, pointer=pointer or "$")
