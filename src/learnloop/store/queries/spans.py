"""Spans: their number, those of a response, and many of them without what was said in them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, String, Text, case, cast, func, null, select

from learnloop.core.records import Json, Span, SpanStatus
from learnloop.store import schema
from learnloop.store.queries.records import fetch, is_one_of, query_of

_STATUSES = {status.value: status for status in SpanStatus}


class SpanOutline(msgspec.Struct, frozen=True):
    """A span without what was said in it; positional, since there may be many."""

    span_id: str
    parent_id: str | None
    operation: str
    name: str
    status: SpanStatus
    error: str | None
    started_at: datetime
    ended_at: datetime


def span_outlines(connection: Connection, episode_id: str) -> list[SpanOutline]:
    """Returns the spans of an episode without their attributes, in the order in which they started."""
    table = schema.spans.c
    columns = [table[name] for name in SpanOutline.__struct_fields__]
    query = select(*columns).where(table.episode_id == episode_id).order_by(table.started_at, table.span_id)
    return [
        SpanOutline(span_id, parent_id, operation, name, _STATUSES[status], error, started_at, ended_at)
        for span_id, parent_id, operation, name, status, error, started_at, ended_at in connection.execute(query)
    ]


def bare_spans(connection: Connection, episode_ids: Collection[str], usage_of: Collection[str] = ()) -> list[Span]:
    """Returns the spans of episodes, those of one together, with no error and of their attributes ``usage`` alone.

    Args:
        connection: in a transaction.
        episode_ids: of the episodes.
        usage_of: the operations whose usage is read, empty where it is not known; others have no attributes.
    """
    table = schema.spans.c
    columns = (table.span_id, table.trace_id, table.episode_id, table.parent_id, table.operation, table.name)
    usage = case((table.operation.in_(usage_of), _usage(connection))) if usage_of else null()
    query = select(*columns, table.status, table.started_at, table.ended_at, usage)
    query = query.where(is_one_of(connection, table.episode_id, episode_ids)).order_by(table.episode_id)
    return [
        Span(
            span_id=span_id,
            trace_id=trace_id,
            episode_id=episode_id,
            parent_id=parent_id,
            operation=operation,
            name=name,
            status=_STATUSES[status],
            started_at=started_at,
            ended_at=ended_at,
            attributes={"usage": _counts(used)} if operation in usage_of else {},
        )
        for span_id, trace_id, episode_id, parent_id, operation, name, status, started_at, ended_at, used
        in connection.execute(query)
    ]  # fmt: skip


def span_usage(connection: Connection, episode_id: str, operations: Collection[str]) -> dict[str, Json]:
    """Returns what is known of the tokens of an episode's spans with these operations, by the id of the span."""
    table = schema.spans.c
    chosen = (table.episode_id == episode_id, table.operation.in_(operations))
    rows = connection.execute(select(table.span_id, _usage(connection)).where(*chosen))
    return {row[0]: usage for row in rows if (usage := _counts(row[1]))}


def span_counts(connection: Connection, trace_ids: Collection[str]) -> dict[str, int]:
    """Returns how many spans each trace has, of those that have some."""
    column = schema.spans.c.trace_id
    query = select(column, func.count()).where(is_one_of(connection, column, trace_ids)).group_by(column)
    return {row[0]: row[1] for row in connection.execute(query)}


def spans_of_responses(
    connection: Connection, operations: Collection[str], response_ids: Collection[str]
) -> list[Span]:
    """Returns the spans with one of these operations and of these response ids, in the order of their ids.

    There is no index on response ids: this reads all spans with these operations.
    """
    table = schema.spans.c
    if connection.dialect.name == "sqlite":
        response_id: ColumnElement[str] = func.json_extract(table.attributes, "$.response_id", type_=String)
    else:
        response_id = func.jsonb_extract_path_text(table.attributes, "response_id", type_=String)
    chosen = (table.operation.in_(operations), is_one_of(connection, response_id, response_ids))
    return fetch(connection, Span, query_of(Span).where(*chosen).order_by(table.span_id))


def _usage(connection: Connection) -> ColumnElement[Any]:
    """Returns a column of what spans say of their tokens, for ``_counts``: the rest of them is not read."""
    attributes = schema.spans.c.attributes
    if connection.dialect.name == "sqlite":
        return func.json_quote(func.json_extract(attributes, "$.usage"))
    return cast(func.jsonb_extract_path(attributes, "usage"), Text)


def _counts(value: str | None) -> Json:
    """Returns the counts in a value of ``_usage``; none where there are none."""
    usage = None if value is None else msgspec.json.decode(value)
    return usage if isinstance(usage, dict) else {}
