"""The column types: what a Python value is on SQLite and on PostgreSQL.

What does not come back as it was written, and why: NUL and lone surrogates become U+FFFD (PostgreSQL's text holds
neither); an embedding is rounded to float16; on PostgreSQL a number without a fraction from 1e16 on inside JSON
comes back as an integer, since JSONB keeps the number and not its spelling. NaN and infinity are refused.
"""

from __future__ import annotations

import math
import numbers
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import UserDefinedType

from learnloop.core.clock import from_micros, to_micros

Processor = Callable[[Any], Any]

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_MAX_INTEGER = 2**63 - 1


def clean_text(value: str) -> str:
    """Returns ``value`` with U+FFFD in place of NUL and lone surrogates."""
    if value.isascii() and "\0" not in value:
        return value if type(value) is str else str(value)
    return _UNSTORABLE.sub("\ufffd", value)


def _plain(value: object) -> object:
    """Returns what msgspec can encode for a mapping or a number that is not Python's own (numpy's are such)."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return _finite(value)
    raise NotImplementedError(f"a {type(value).__name__} is not JSON")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def _cleaned(value: object) -> object:
    """Returns a copy of a JSON value in which each text can be stored."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(item) for item in value]
    return value


def _check_finite(value: object) -> None:
    if isinstance(value, float):
        _finite(value)
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            _check_finite(item)


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is not a finite number")
    return number


def encode_json(value: object) -> str:
    """Returns ``value`` as JSON text.

    Raises:
        ValueError: it holds NaN or infinity.
        TypeError, RecursionError: it holds something that is not JSON, or holds itself.
    """
    try:
        data = _encoder.encode(value)
    except UnicodeEncodeError:
        data = _encoder.encode(_cleaned(value))
    if b"null" in data:  # msgspec writes NaN as null
        _check_finite(value)
    if b"\\u0000" in data:
        data = _encoder.encode(_cleaned(value))
    return data.decode()


# What drivers take and give, of values that are not None ----------------------------------------------------------


def _aware(moment: datetime) -> datetime:
    to_micros(moment)  # refuses one without a time zone
    return moment


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _integer(value: Any) -> int:
    number = int(value)
    if not -_MAX_INTEGER <= number <= _MAX_INTEGER:
        raise ValueError(f"{number} does not fit in 64 bits")
    return number


def _only_bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} is not bytes")
    return value


def _pack(vector: list[float]) -> bytes:
    found = [*map(_finite, vector)]
    if not found:
        raise ValueError("an embedding has at least one number")
    return struct.pack(f"<{len(found)}e", *found)  # refuses what float16 cannot hold


def _unpack(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 2}e", data))


def _spell(vector: list[float]) -> str:
    _pack(vector)
    return "[" + ",".join(repr(float(number)) for number in vector) + "]"


def _parse(text: str) -> list[float]:
    return _unpack(_pack([float(number) for number in text[1:-1].split(",")]))


class Form(NamedTuple):
    """What a type of column is on one database."""

    name: str
    write: Processor
    """Turns a value into what the driver takes."""
    read: Processor | None = None
    """Turns what the driver gives into a value; None: it is one."""
    in_json: str = ""
    """PostgreSQL's type of it in the JSON that brings rows."""
    cast: str = ""
    """What makes that the type of the column, where it is another."""


class StoredType(UserDefinedType[Any]):
    """A type of column; None is NULL in each.

    Attributes:
        sqlite: what it is on SQLite.
        postgresql: what it is on PostgreSQL.
    """

    cache_ok = True

    def __init__(self, sqlite: Form, postgresql: Form) -> None:
        self.sqlite = sqlite
        self.postgresql = postgresql

    def writer(self, dialect_name: str) -> Processor:
        """Returns what turns a value into what the driver takes."""
        return _or_none((self.sqlite if dialect_name == "sqlite" else self.postgresql).write)

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Returns ``writer``, for SQLAlchemy."""
        return self.writer(dialect.name)

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor | None:
        """Returns what turns what the driver gives into a value."""
        read = (self.sqlite if dialect.name == "sqlite" else self.postgresql).read
        return None if read is None else _or_none(read)


def _or_none(process: Processor) -> Processor:
    return lambda value: None if value is None else process(value)


@compiles(StoredType, "sqlite")
def _spell_sqlite(element: StoredType, compiler: object, **options: object) -> str:
    return element.sqlite.name


@compiles(StoredType, "postgresql")
def _spell_postgresql(element: StoredType, compiler: object, **options: object) -> str:
    return element.postgresql.name


TEXT = StoredType(Form("TEXT", clean_text), Form('TEXT COLLATE "C"', clean_text, None, "text"))
"""Compared by code point on both back ends."""
TIME = StoredType(
    Form("BIGINT", to_micros, from_micros), Form("TIMESTAMP WITH TIME ZONE", _aware, _in_utc, "timestamptz")
)
"""A moment: microseconds from 1970 in an integer on SQLite."""
JSON = StoredType(Form("TEXT", encode_json, msgspec.json.Decoder().decode), Form("JSONB", encode_json, None, "jsonb"))
"""PostgreSQL's connection decodes it."""
FLOAT = StoredType(Form("FLOAT", _finite), Form("DOUBLE PRECISION", _finite, None, "float8"))
"""A finite 64-bit number."""
INTEGER = StoredType(Form("BIGINT", _integer), Form("BIGINT", _integer, None, "bigint"))
"""A 64-bit integer."""
BOOLEAN = StoredType(Form("BOOLEAN", int, bool), Form("BOOLEAN", bool, bool, "boolean"))
"""True or False: 1 or 0 on SQLite."""
BYTES = StoredType(
    Form("BLOB", _only_bytes, bytes),
    Form("BYTEA", lambda value: "\\x" + _only_bytes(value).hex(), bytes, "text", "::bytea"),
)
"""On PostgreSQL they are brought as the text that its ``bytea`` reads."""
EMBEDDING = StoredType(Form("BLOB", _pack, _unpack), Form("HALFVEC", _spell, _parse, "text", "::halfvec"))
"""A vector in half precision: a blob of little-endian float16 on SQLite, pgvector's ``halfvec`` on PostgreSQL."""
