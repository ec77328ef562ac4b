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
from typing import Any

import msgspec
from sqlalchemy import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import TypeEngine, UserDefinedType

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
        return _finite(float(value))
    raise NotImplementedError(f"a {type(value).__name__} is not JSON")


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder = msgspec.json.Decoder()


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
    elif isinstance(value, Mapping):
        for item in value.values():
            _check_finite(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_finite(item)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    return value


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


class TextColumn(UserDefinedType[str]):
    """Text, compared by code point on both back ends."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Returns what turns a value into what the driver takes."""

        def process(value: str | None) -> str | None:
            return None if value is None else clean_text(value)

        return process


class TimeColumn(UserDefinedType[datetime]):
    """A moment: microseconds from 1970 in an integer on SQLite, ``timestamptz`` on PostgreSQL."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Returns what turns a value into what the driver takes."""
        is_sqlite = dialect.name == "sqlite"

        def process(value: datetime | None) -> int | datetime | None:
            if value is None:
                return None
            micros = to_micros(value)
            return micros if is_sqlite else value

        return process

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        """Returns what turns what the driver gives into a value."""
        if dialect.name == "sqlite":
            return lambda value: None if value is None else from_micros(value)
        return lambda value: None if value is None else value.astimezone(UTC)


class JsonColumn(UserDefinedType[Any]):
    """A JSON value: text on SQLite, JSONB on PostgreSQL."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Returns what turns a value into what the driver takes."""

        def process(value: object) -> str | None:
            return None if value is None else encode_json(value)

        return process

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor | None:
        """Returns what turns what the driver gives into a value."""
        if dialect.name != "sqlite":  # the connection decodes it
            return None
        return lambda value: None if value is None else _decoder.decode(value)


class FloatColumn(UserDefinedType[float]):
    """A finite 64-bit number."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Returns what turns a value into what the driver takes."""

        def process(value: float | None) -> float | None:
            return None if value is None else _finite(float(value))

        return process


class IntegerColumn(UserDefinedType[int]):
    """A 64-bit integer."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Returns what turns a value into what the driver takes."""

        def process(value: int | None) -> int | None:
            if value is None:
                return None
            number = int(value)
            if not -_MAX_INTEGER <= number <= _MAX_INTEGER:
                raise ValueError(f"{number} does not fit in 64 bits")
            return number

        return process


class BooleanColumn(UserDefinedType[bool]):
    """True or False: 1 or 0 on SQLite."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Returns what turns a value into what the driver takes."""
        kind = int if dialect.name == "sqlite" else bool
        return lambda value: None if value is None else kind(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        """Returns what turns what the driver gives into a value."""
        return lambda value: None if value is None else bool(value)


class BytesColumn(UserDefinedType[bytes]):
    """Bytes; on PostgreSQL they are brought as the text that its ``bytea`` reads."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Returns what turns a value into what the driver takes."""
        is_sqlite = dialect.name == "sqlite"

        def process(value: bytes | None) -> bytes | str | None:
            if value is None:
                return None
            if not isinstance(value, bytes):
                raise TypeError(f"{type(value).__name__} is not bytes")
            return value if is_sqlite else "\\x" + value.hex()

        return process

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        """Returns what turns what the driver gives into a value."""
        return lambda value: None if value is None else bytes(value)


class EmbeddingColumn(UserDefinedType[list[float]]):
    """A vector in half precision: a blob of little-endian float16 on SQLite, pgvector's ``halfvec`` on PostgreSQL."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Returns what turns a value into what the driver takes."""
        is_sqlite = dialect.name == "sqlite"

        def process(value: list[float] | None) -> bytes | str | None:
            if value is None:
                return None
            numbers_ = [_finite(float(number)) for number in value]
            if not numbers_:
                raise ValueError("an embedding has at least one number")
            packed = struct.pack(f"<{len(numbers_)}e", *numbers_)  # refuses what float16 cannot hold
            return packed if is_sqlite else "[" + ",".join(map(repr, numbers_)) + "]"

        return process

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        """Returns what turns what the driver gives into a value."""

        def unpack(value: bytes | None) -> list[float] | None:
            return None if value is None else list(struct.unpack(f"<{len(value) // 2}e", value))

        def parse(value: str | None) -> list[float] | None:
            if value is None:
                return None
            numbers_ = [float(number) for number in value[1:-1].split(",")]
            return list(struct.unpack(f"<{len(numbers_)}e", struct.pack(f"<{len(numbers_)}e", *numbers_)))

        return unpack if dialect.name == "sqlite" else parse


_NAMES: Mapping[type[TypeEngine[Any]], tuple[str, str]] = {
    TextColumn: ("TEXT", 'TEXT COLLATE "C"'),
    TimeColumn: ("BIGINT", "TIMESTAMP WITH TIME ZONE"),
    JsonColumn: ("TEXT", "JSONB"),
    FloatColumn: ("FLOAT", "DOUBLE PRECISION"),
    IntegerColumn: ("BIGINT", "BIGINT"),
    BooleanColumn: ("BOOLEAN", "BOOLEAN"),
    BytesColumn: ("BLOB", "BYTEA"),
    EmbeddingColumn: ("BLOB", "HALFVEC"),
}
"""The name of each type on SQLite and on PostgreSQL."""


def _register(kind: type[TypeEngine[Any]], sqlite_name: str, postgresql_name: str) -> None:
    def spell_sqlite(element: object, compiler: object, **options: object) -> str:
        return sqlite_name

    def spell_postgresql(element: object, compiler: object, **options: object) -> str:
        return postgresql_name

    compiles(kind, "sqlite")(spell_sqlite)
    compiles(kind, "postgresql")(spell_postgresql)


for _kind, _names in _NAMES.items():
    _register(_kind, *_names)
