"""Records by the values of their columns: read in pages or whole, counted, changed and removed; on both back ends.

Nothing is reported of what is changed or removed here, and nothing is redacted: whoever calls it does that.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    FromClause,
    Select,
    any_,
    bindparam,
    delete,
    false,
    func,
    or_,
    select,
    update,
)

from learnloop.core.checks import check_range
from learnloop.core.errors import UsageError, one_of
from learnloop.core.records import Record
from learnloop.store.mapping import bind_processor, key_column, record_columns, table_of, to_record

R = TypeVar("R", bound=Record)
Where = Mapping[str, object | Collection[object] | None]
"""The value of each named column; a list, tuple or set: one of these; None: not known."""
ANY: Where = MappingProxyType({})

_MAX_LISTED = 500
"""Longer lists go as one parameter: SQLite and PostgreSQL both limit the number of parameters."""
_MAX_PAGE = 10_000


def select_records(
    connection: Connection, kind: type[R], where: Where, after: str | int | None, limit: int, descending: bool
) -> list[R]:
    """Returns one page of records in the order of their key; see ``Store.select``."""
    check_range("limit", limit, 1, _MAX_PAGE)
    key = key_column(kind)
    query = query_of(kind).where(*_conditions(connection, kind, where))
    if after is not None:
        query = query.where(key < after if descending else key > after)
    return fetch(connection, kind, query.order_by(key.desc() if descending else key).limit(limit))


def newest_records(
    connection: Connection, kind: type[R], where: Where, before: int | None, limit: int
) -> list[tuple[int, R]]:
    """Returns a page of the records that fit ``where``, each with its sequence, what became durable last first.

    Args:
        connection: in a transaction.
        kind: which records; they have a sequence.
        where: as of ``Store.select``.
        before: the sequence of the last one on the page before; None: begin.
        limit: the most to return.
    """
    place = table_of(kind).columns["sequence"]
    query = query_of(kind).where(*_conditions(connection, kind, where))
    if before is not None:
        query = query.where(place < before)
    return fetch_numbered(connection, kind, query.order_by(place.desc()).limit(limit))


def all_records(connection: Connection, kind: type[R], where: Where = ANY, *, order: str | None = None) -> list[R]:
    """Returns all records that fit ``where``, in the order of a column where one is named."""
    query = query_of(kind).where(*_conditions(connection, kind, where))
    return fetch(connection, kind, query if order is None else query.order_by(table_of(kind).columns[order]))


def find_record(connection: Connection, kind: type[R], key: str) -> R | None:
    """Returns the record of this key, or None."""
    row = connection.execute(query_of(kind).where(key_column(kind) == key)).first()
    return None if row is None else to_record(kind, row)


def count_records(connection: Connection, kind: type[Record], where: Where) -> int:
    """Returns how many records fit ``where``."""
    query = select(func.count()).select_from(table_of(kind)).where(*_conditions(connection, kind, where))
    return int(connection.execute(query).scalar_one())


def last_sequence(connection: Connection, kind: type[Record]) -> int:
    """Returns the sequence of the record that became durable last; 0 where there is none."""
    query = select(func.coalesce(func.max(table_of(kind).columns["sequence"]), 0))
    return int(connection.execute(query).scalar_one())


def change_records(connection: Connection, kind: type[Record], where: Where, changes: Mapping[str, object]) -> int:
    """Writes new values into the records that fit ``where`` and returns how many that were.

    Raises:
        UsageError: a column is unknown, or ``where`` names none.
    """
    query = update(table_of(kind)).where(*_narrowed(connection, kind, where)).values(**changes)
    return connection.execute(query).rowcount


def remove_records(connection: Connection, kind: type[Record], where: Where) -> int:
    """Removes the records that fit ``where`` and returns how many that were.

    Raises:
        UsageError: a column is unknown, or ``where`` names none.
    """
    return connection.execute(delete(table_of(kind)).where(*_narrowed(connection, kind, where))).rowcount


# For the other files of this folder ---------------------------------------------------------------------------------


def query_of(kind: type[Record]) -> Select[Any]:
    """Returns the query of whole records, for ``fetch`` and ``fetch_numbered`` to be narrowed and put in order."""
    return select(*record_columns(kind))


def fetch(connection: Connection, kind: type[R], query: Select[Any]) -> list[R]:
    """Returns the records of a query that ``query_of`` gave."""
    return [to_record(kind, row) for row in connection.execute(query)]


def fetch_numbered(connection: Connection, kind: type[R], query: Select[Any]) -> list[tuple[int, R]]:
    """Returns the records of a query that ``query_of`` gave, each with its sequence."""
    rows = connection.execute(query.add_columns(table_of(kind).columns["sequence"]))
    return [(row[-1], to_record(kind, row[:-1])) for row in rows]


def is_one_of(connection: Connection, column: Any, values: Collection[object]) -> ColumnElement[bool]:
    """Returns the condition that a column has one of these values, however many they are."""
    if len(values) <= _MAX_LISTED:
        found: ColumnElement[bool] = column.in_(values)
        return found
    if connection.dialect.name == "postgresql":
        same: ColumnElement[bool] = column == any_(bindparam(None, list(values), type_=ARRAY(column.type)))
        return same
    processor = bind_processor(column, "sqlite")
    listed = json.dumps([processor(value) if processor else value for value in values])
    listed_there: ColumnElement[bool] = column.in_(select(func.json_each(listed).table_valued("value").c.value))
    return listed_there


def equals(table: FromClause, asked: object, *names: str) -> list[ColumnElement[bool]]:
    """Returns the conditions that columns are what ``asked`` says under their names; what is None narrows nothing."""
    given = {name: getattr(asked, name) for name in names}
    return [table.c[name] == value for name, value in given.items() if value is not None]


def _narrowed(connection: Connection, kind: type[Record], where: Where) -> list[ColumnElement[bool]]:
    """As ``_conditions``, but never none: a change of all rows is asked for by mistake."""
    if not where:
        raise UsageError(f"where is empty, which means each {kind.__name__}; name at least one column")
    return _conditions(connection, kind, where)


def _conditions(connection: Connection, kind: type[Record], where: Where) -> list[ColumnElement[bool]]:
    columns = table_of(kind).columns
    unknown = [name for name in where if name not in columns]
    if unknown:
        raise UsageError(f"{kind.__name__} has no column {one_of(unknown)}; allowed: {one_of(columns.keys(), 40)}")
    return [_condition(connection, columns[name], value) for name, value in where.items()]


def _condition(connection: Connection, column: ColumnElement[Any], value: object) -> ColumnElement[bool]:
    if value is None:
        return column.is_(None)
    if not isinstance(value, (list, tuple, set, frozenset)):
        return column == value
    values = [item for item in value if item is not None]
    found = is_one_of(connection, column, values) if values else false()
    return found if len(values) == len(value) else or_(found, column.is_(None))
