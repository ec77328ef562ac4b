"""Reading records: conditions, keyset pages and counts, the same on both back ends."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from sqlalchemy import ARRAY, ColumnElement, Connection, any_, bindparam, false, func, or_, select

from learnloop.core.errors import UsageError, one_of
from learnloop.core.records import Record
from learnloop.store.mapping import bind_processor, key_column, record_columns, table_of, to_record

R = TypeVar("R", bound=Record)
Where = Mapping[str, object | Collection[object] | None]

_MAX_LISTED = 500
"""Longer lists go as one parameter: SQLite and PostgreSQL both limit the number of parameters."""
_MAX_PAGE = 10_000


def select_records(
    connection: Connection, kind: type[R], where: Where, after: str | int | None, limit: int, descending: bool
) -> list[R]:
    """Returns one page of records in the order of their key; see ``Store.select``."""
    if not 0 < limit <= _MAX_PAGE:
        raise UsageError(f"limit is {limit}; allowed are 1 to {_MAX_PAGE:,}")
    key = key_column(kind)
    query = select(*record_columns(kind)).where(*_conditions(connection, kind, where))
    if after is not None:
        query = query.where(key < after if descending else key > after)
    query = query.order_by(key.desc() if descending else key).limit(limit)
    return [to_record(kind, row) for row in connection.execute(query)]


def find_record(connection: Connection, kind: type[R], key: str) -> R | None:
    """Returns the record of this key, or None."""
    row = connection.execute(select(*record_columns(kind)).where(key_column(kind) == key)).first()
    return None if row is None else to_record(kind, row)


def count_records(connection: Connection, kind: type[Record], where: Where) -> int:
    """Returns how many records fit ``where``."""
    query = select(func.count()).select_from(table_of(kind)).where(*_conditions(connection, kind, where))
    return int(connection.execute(query).scalar_one())


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
    found = _is_one_of(connection, column, values) if values else false()
    return found if len(values) == len(value) else or_(found, column.is_(None))


def _is_one_of(connection: Connection, column: Any, values: list[object]) -> ColumnElement[bool]:
    if len(values) <= _MAX_LISTED:
        found: ColumnElement[bool] = column.in_(values)
        return found
    if connection.dialect.name == "postgresql":
        same: ColumnElement[bool] = column == any_(bindparam(None, values, type_=ARRAY(column.type)))
        return same
    processor = bind_processor(column, "sqlite")
    listed = json.dumps([processor(value) if processor else value for value in values])
    listed_there: ColumnElement[bool] = column.in_(select(func.json_each(listed).table_valued("value").c.value))
    return listed_there
