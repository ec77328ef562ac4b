"""Records to rows and back, and the statements that write them."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from sqlalchemy import Column, Connection, Table

from learnloop.core.errors import UsageError, one_of
from learnloop.core.records import Episode, Event, Memory, Record
from learnloop.store import schema
from learnloop.store.columns import INTEGER, JSON, Processor, StoredType, encode_json
from learnloop.store.schema import TABLES

R = TypeVar("R", bound=Record)
Row = tuple[Any, ...]

EPISODE_CHANGES = (
    "agent_id", "task_id", "attempt", "status", "terminated", "truncated", "error", "started_at", "ended_at",
    "metadata",
)  # fmt: skip
"""The columns of a running episode that a later record of it may change: all but its id, its trace and its source.

Where spans come one after the other, in any order, who did what is known for sure at the end only.
"""

_CONVERSION_ERRORS = (ValueError, TypeError, AttributeError, OverflowError, NotImplementedError, RecursionError)

_ROWS_PER_STATEMENT = (256, 32)
"""SQLite takes 32,766 parameters in a statement, and the widest table has fewer than 32 columns. The rest of the rows
go with one more statement of their number."""


def table_of(kind: type[Record]) -> Table:
    """Returns the table that holds records of ``kind``.

    Raises:
        UsageError: none does.
    """
    table = TABLES.get(kind)
    if table is None:
        raise UsageError(f"{kind!r} is no kind of record; allowed: {one_of(known.__name__ for known in TABLES)}")
    return table


@cache
def fields_of(kind: type[Record]) -> tuple[str, ...]:
    """Returns the names of the fields of ``kind``; the first is its key."""
    table_of(kind)
    return kind.__struct_fields__


def key_column(kind: type[Record]) -> Column[Any]:
    """Returns the column by which records of ``kind`` are known."""
    return table_of(kind).columns[fields_of(kind)[0]]


def record_columns(kind: type[Record]) -> list[Column[Any]]:
    """Returns the columns of a record's fields, in the order of the fields."""
    table = table_of(kind)
    return [table.columns[name] for name in fields_of(kind)]


def written_columns(kind: type[Record], *, sequence: bool = False) -> list[Column[Any]]:
    """Returns the columns that a row of ``kind`` fills: its fields, and what is derived from them.

    Args:
        kind: the kind of record.
        sequence: whether the row brings its own sequence number, last.
    """
    found = record_columns(kind)
    if kind is Memory:
        found.append(schema.agent_memories.c.embedding_dimension)
    if sequence and "sequence" in table_of(kind).columns and kind is not Event:
        found.append(table_of(kind).columns["sequence"])
    return found


@cache
def _enums(kind: type[Record]) -> tuple[tuple[str, type[StrEnum]], ...]:
    """Returns the fields of ``kind`` that hold an enum, or an enum or None, and the enum of each."""
    found = []
    for name, hint in get_type_hints(kind).items():
        for choice in get_args(hint) or (hint,):
            if isinstance(choice, type) and issubclass(choice, StrEnum):
                found.append((name, choice))
    return tuple(found)


def to_record(kind: type[R], row: Sequence[Any]) -> R:
    """Returns the record that a row of ``record_columns(kind)`` holds."""
    values = dict(zip(fields_of(kind), row, strict=False))
    for name, enum in _enums(kind):
        if values[name] is not None:
            values[name] = enum(values[name])
    return kind(**values)


def bind_processor(column: Column[Any], dialect_name: str) -> Processor | None:
    """Returns what turns a value of ``column`` into what the driver takes; None: nothing need be done."""
    return column.type.writer(dialect_name) if isinstance(column.type, StoredType) else None


def _raw_json(value: object) -> msgspec.Raw | None:
    """Returns JSON that ``json_rows`` puts into a row as it is."""
    return None if value is None else msgspec.Raw(encode_json(value).encode())


@cache
def _row_builder(kind: type[Record], dialect_name: str) -> Callable[[Record], list[Any]]:
    getter = attrgetter(*fields_of(kind))
    processors = []
    for index, column in enumerate(record_columns(kind)):
        processor = bind_processor(column, dialect_name)
        if dialect_name == "postgresql" and column.type is JSON:
            processor = _raw_json
        if processor is not None:
            processors.append((index, processor))

    def build(record: Record) -> list[Any]:
        row = list(getter(record))
        for index, processor in processors:
            row[index] = processor(row[index])
        return row

    return build


def _explain(kind: type[Record], record: Record, dialect_name: str) -> UsageError:
    """Returns the error that names the first field of ``record`` that cannot be stored."""
    for column in record_columns(kind):
        processor = bind_processor(column, dialect_name)
        value = getattr(record, column.name)
        try:
            if processor is not None:
                processor(value)
        except _CONVERSION_ERRORS as error:
            return UsageError(f"{kind.__name__}.{column.name} cannot be stored: {error}")
    return UsageError(f"{record!r} cannot be stored")


def to_rows(kind: type[Record], records: Iterable[Record], dialect_name: str) -> list[Row]:
    """Returns the rows of ``written_columns(kind)`` for records of ``kind``, as the driver takes them.

    Raises:
        UsageError: a field holds what cannot be stored; the message names it.
    """
    build = _row_builder(kind, dialect_name)
    rows = []
    for record in records:
        try:
            row = build(record)
        except _CONVERSION_ERRORS as error:
            raise _explain(kind, record, dialect_name) from error
        if isinstance(record, Memory):
            row.append(None if record.embedding is None else len(record.embedding))
        rows.append(tuple(row))
    return rows


def _conflict_clause(kind: type[Record]) -> str:
    key = key_column(kind).name
    if kind is not Episode:
        return f"ON CONFLICT ({key}) DO NOTHING"
    changes = ", ".join(f"{name} = excluded.{name}" for name in EPISODE_CHANGES)
    return f"ON CONFLICT ({key}) DO UPDATE SET {changes} WHERE episodes.status = 'running'"


@cache
def insert_statement(kind: type[Record], dialect_name: str, *, sequence: bool = False) -> str:
    """Returns the driver's SQL that writes rows of ``written_columns(kind)`` and lets existing ones be.

    On SQLite with ``{rows}`` where the rows go (``insert_values``), on PostgreSQL all rows as one JSON text.
    """
    table = table_of(kind)
    written = written_columns(kind, sequence=sequence)
    names = ", ".join(column.name for column in written)
    if dialect_name == "sqlite":
        return f"INSERT INTO {table.name} ({names}) VALUES {{rows}} {_conflict_clause(kind)}"
    forms = [
        column.type.postgresql if isinstance(column.type, StoredType) else INTEGER.postgresql for column in written
    ]
    order = "ORDER BY place " if "sequence" in table.columns else ""
    given = ", ".join(f"{column.name} {form.in_json}" for column, form in zip(written, forms, strict=True))
    values = ", ".join(f"{column.name}{form.cast}" for column, form in zip(written, forms, strict=True))
    return (
        f"INSERT INTO {table.name} ({names}) SELECT {values} "
        f"FROM ROWS FROM (json_to_recordset(%s::json) AS ({given})) WITH ORDINALITY AS given ({names}, place) "
        f"{order}{_conflict_clause(kind)}"
    )


def execute_sqlite(connection: Connection, statement: str, values: Sequence[Any]) -> sqlite3.Cursor:
    """Runs a statement by SQLite's driver alone: SQLAlchemy's part costs more than a small statement itself.

    Its errors are the driver's own, which ``failures.translate`` knows too.
    """
    driver = connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        raise TypeError(f"{driver!r} is not a connection of SQLite")
    return driver.execute(statement, values)


def insert_values(connection: Connection, statement: str, rows: Sequence[Row]) -> None:
    """Writes rows to SQLite, many with each statement.

    The driver lets go of the interpreter at every statement, and gets it back from a busy thread of the agent only
    every 5 ms: row by row, a program that computes in Python would hold the writer to 300 rows a second.
    """
    start = 0
    while start < len(rows):
        left = len(rows) - start
        size = next((size for size in _ROWS_PER_STATEMENT if size <= left), left)
        part = rows[start : start + size]
        execute_sqlite(connection, filled(statement, len(part[0]), size), list(itertools.chain.from_iterable(part)))
        start += size


@lru_cache(maxsize=512)
def filled(statement: str, num_columns: int, num_rows: int) -> str:
    """Returns the statement for so many rows of so many columns."""
    marks = f"({', '.join('?' * num_columns)})"
    return statement.format(rows=", ".join([marks] * num_rows))


def json_rows(names: Sequence[str], rows: Iterable[Row]) -> str:
    """Returns rows as the one parameter that ``json_to_recordset`` takes: psycopg is slow with long arrays."""
    return msgspec.json.encode([dict(zip(names, row, strict=True)) for row in rows]).decode()


def insert_rows(connection: Connection, kind: type[Record], rows: list[Row], *, sequence: bool = False) -> None:
    """Writes rows of ``written_columns(kind)``; those whose key exists stay as they are (running episodes change)."""
    if not rows:
        return
    name = connection.dialect.name
    statement = insert_statement(kind, name, sequence=sequence)
    if name == "sqlite":
        insert_values(connection, statement, rows)
    else:
        names = [column.name for column in written_columns(kind, sequence=sequence)]
        connection.exec_driver_sql(statement, (json_rows(names, rows),))
