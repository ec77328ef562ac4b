"""The full-text index: which spans hold which words, in which order. What the words of a span are, its caller says.

It is filled from a queue of episodes that have spans it does not know, since indexing at insertion would halve what
can be captured. SQLite keeps words in an FTS5 table without a copy of the text, PostgreSQL as ``tsvector`` with a GIN
index; both hold the words that they are given and nothing else, so that both find the same. All of it can be thrown
away and is made again: after a restore, or by a version that cuts words in another way.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Select, Subquery, column, delete, func, insert, inspect, select, text

from learnloop.core.records import Json, Span
from learnloop.store import schema
from learnloop.store.mapping import insert_values, json_rows, to_record
from learnloop.store.queries.records import is_one_of, query_of

VERSION = 1
"""To be raised when the words of a span change: the index of another version is dropped and made again."""
_TABLE = f"search_words_{VERSION}"
_BITS = 24
"""A span's number in the index: the number of its episode, then that of the span in it, in so many bits."""
_MAX_POSITION = 16_383
"""The last place of a word that PostgreSQL tells from others."""
_WORD = re.compile(r"\w+")


class Document(NamedTuple):
    """A span to be indexed."""

    span_id: str
    episode_id: str
    words: Sequence[str]
    """In their order; of letters and digits only."""


class SpanText(NamedTuple):
    """What the words of a span are made of; one without an episode is not indexed."""

    span_id: str
    episode_id: str
    name: str
    error: str | None
    attributes: Json


class Term(NamedTuple):
    """Words that follow each other."""

    words: tuple[str, ...]
    is_prefix: bool
    """The last of them may go on."""


def queue_episodes(connection: Connection, episode_ids: Collection[str | None]) -> None:
    """Notes that these episodes have spans that are not indexed yet; None is left out."""
    rows = sorted((episode_id,) for episode_id in episode_ids if episode_id is not None)
    if connection.dialect.name == "sqlite":
        insert_values(connection, "INSERT INTO search_queue (episode_id) VALUES {rows} ON CONFLICT DO NOTHING", rows)
    elif rows:
        # An update locks the row: whoever empties the queue meanwhile waits, and then sees the spans.
        connection.exec_driver_sql(
            "INSERT INTO search_queue SELECT * FROM json_to_recordset(%s::json) AS (episode_id text) "
            "ON CONFLICT (episode_id) DO UPDATE SET episode_id = excluded.episode_id",
            (json_rows(("episode_id",), rows),),
        )


def is_waiting(connection: Connection) -> bool:
    """Returns whether some spans are not indexed yet, or there is no index."""
    return not _is_made(connection) or connection.execute(select(schema.search_queue).limit(1)).first() is not None


def prepare_words(connection: Connection) -> None:
    """Makes the index where there is none of this version."""
    if not _is_made(connection):
        reset_words(connection)


def reset_words(connection: Connection) -> None:
    """Throws the index away, makes an empty one and queues all episodes that have spans."""
    for name in _old_tables(connection):
        connection.exec_driver_sql(f"DROP TABLE {name}")
    for table in (schema.search_spans, schema.search_episodes, schema.search_queue):
        connection.execute(delete(table))
    if connection.dialect.name == "sqlite":
        options = "content = '', columnsize = 0, tokenize = 'ascii'"  # what is given is letters and digits already
        connection.exec_driver_sql(f"CREATE VIRTUAL TABLE {_TABLE} USING fts5 (words, {options})")
        fewer_merges = "('automerge', 16), ('crisismerge', 32)"
        connection.exec_driver_sql(f"INSERT INTO {_TABLE} ({_TABLE}, rank) VALUES {fewer_merges}")
    else:
        connection.exec_driver_sql(f"CREATE TABLE {_TABLE} (search_id bigint PRIMARY KEY, words tsvector NOT NULL)")
        connection.exec_driver_sql(f"CREATE INDEX ix_{_TABLE} ON {_TABLE} USING gin (words)")
    episode_id = schema.spans.c.episode_id
    every = select(episode_id).where(episode_id.is_not(None)).distinct()
    connection.execute(insert(schema.search_queue).from_select(["episode_id"], every))


def waiting_episodes(connection: Connection, limit: int) -> list[str]:
    """Returns some episodes of the queue; on PostgreSQL nobody can add to their spans until the transaction ends."""
    query = select(schema.search_queue.c.episode_id).order_by(schema.search_queue.c.episode_id).limit(limit)
    return list(connection.execute(query.with_for_update()).scalars())


def take_from_queue(connection: Connection, episode_ids: Collection[str]) -> None:
    """Takes episodes off the queue."""
    connection.execute(delete(schema.search_queue).where(schema.search_queue.c.episode_id.in_(episode_ids)))


def unindexed_spans(connection: Connection, episode_ids: Collection[str], limit: int) -> list[SpanText]:
    """Returns spans of these episodes that are not indexed, at the most so many."""
    spans, known = schema.spans.c, schema.search_spans.c
    query = (
        _texts()
        .select_from(schema.spans.outerjoin(schema.search_spans, known.span_id == spans.span_id))
        .where(spans.episode_id.in_(episode_ids), known.search_id.is_(None))
        .order_by(spans.episode_id)
        .limit(limit)
    )
    return [SpanText(*row) for row in connection.execute(query)]


def add_words(connection: Connection, documents: Sequence[Document]) -> None:
    """Indexes spans that are not indexed yet."""
    following = _next_ids(connection, {document.episode_id for document in documents})
    listed: list[tuple[int, str]] = []
    rows: list[tuple[int, str]] = []
    for document in documents:
        search_id = following[document.episode_id]
        following[document.episode_id] += 1
        listed.append((search_id, document.span_id))
        rows.append((search_id, _encoded(connection, document.words)))
    rows.sort()  # FTS5 closes a part of its index at each number that is lower than the one before
    if connection.dialect.name == "sqlite":
        insert_values(connection, "INSERT INTO search_spans (search_id, span_id) VALUES {rows}", listed)
        insert_values(connection, f"INSERT INTO {_TABLE} (rowid, words) VALUES {{rows}}", rows)
        return
    for table, names, given in (
        ("search_spans", ("search_id", "span_id"), listed),
        (_TABLE, ("search_id", "words"), rows),
    ):
        kind = "text" if table == "search_spans" else "tsvector"
        connection.exec_driver_sql(
            f"INSERT INTO {table} SELECT {names[0]}, {names[1]}::{kind} "
            f"FROM json_to_recordset(%s::json) AS ({names[0]} bigint, {names[1]} text)",
            (json_rows(names, given),),
        )


def indexed_spans(connection: Connection, span_ids: Collection[str]) -> list[tuple[int, SpanText]]:
    """Returns those of the spans that are indexed, each with the number by which it is."""
    spans, known = schema.spans.c, schema.search_spans.c
    query = _texts().add_columns(known.search_id).join(schema.search_spans, known.span_id == spans.span_id)
    rows = connection.execute(query.where(is_one_of(connection, known.span_id, span_ids)))
    return [(row[-1], SpanText(*row[:-1])) for row in rows]


def found_spans(connection: Connection, search_ids: Collection[int]) -> dict[int, Span]:
    """Returns spans by the numbers by which they are indexed."""
    spans, known = schema.spans.c, schema.search_spans.c
    query = query_of(Span).add_columns(known.search_id).join(schema.search_spans, known.span_id == spans.span_id)
    rows = connection.execute(query.where(known.search_id.in_(search_ids)))
    return {row[-1]: to_record(Span, row[:-1]) for row in rows}


def remove_words(connection: Connection, documents: Iterable[tuple[int, Sequence[str]]]) -> None:
    """Takes spans out of the index.

    Args:
        connection: in a transaction.
        documents: the number of each, and the very words that it was indexed with.
    """
    listed = list(documents)
    if connection.dialect.name == "sqlite" and _is_made(connection):
        rows = [("delete", search_id, _encoded(connection, words)) for search_id, words in listed]
        insert_values(connection, f"INSERT INTO {_TABLE} ({_TABLE}, rowid, words) VALUES {{rows}}", rows)
    elif _is_made(connection):
        ids = [search_id for search_id, _ in listed]
        connection.exec_driver_sql(f"DELETE FROM {_TABLE} WHERE search_id = ANY (%s)", (ids,))
    connection.execute(
        delete(schema.search_spans).where(schema.search_spans.c.search_id.in_([row[0] for row in listed]))
    )


def forget_episodes(connection: Connection, episode_ids: Collection[str]) -> None:
    """Takes episodes without spans out of the index and off the queue."""
    for table in (schema.search_queue, schema.search_episodes):
        connection.execute(delete(table).where(table.c.episode_id.in_(episode_ids)))


def merge_words(connection: Connection, first: bool, *, pages: int = 64) -> bool:
    """Rewrites a part of SQLite's index without what was taken out of it; returns whether there is more to do.

    Args:
        connection: in a transaction.
        first: whether it begins.
        pages: how much to write.
    """
    if connection.dialect.name != "sqlite" or not _is_made(connection):
        return False
    driver: Any = connection.connection.dbapi_connection
    before = driver.total_changes
    size = -pages if first else pages  # a negative number makes all parts one, whatever their sizes
    connection.exec_driver_sql(f"INSERT INTO {_TABLE} ({_TABLE}, rank) VALUES ('merge', ?)", (size,))
    return bool(driver.total_changes - before >= 2)


def matches(dialect_name: str, terms: Sequence[Term]) -> Subquery:
    """Returns a subquery of the episodes that have a span with all of the terms.

    Its columns: ``number``, of the table ``search_episodes``, and ``search_id``, the first such span's.
    """
    if dialect_name == "sqlite":
        source = f"SELECT rowid >> {_BITS} AS number, min(rowid) AS search_id FROM {_TABLE} WHERE {_TABLE} MATCH :words"
    else:
        source = (
            f"SELECT search_id >> {_BITS} AS number, min(search_id) AS search_id FROM {_TABLE} "
            "WHERE words @@ CAST(:words AS tsquery)"
        )
    given = _fts5_query(terms) if dialect_name == "sqlite" else _tsquery(terms)
    query = text(f"{source} GROUP BY 1").bindparams(words=given)
    return query.columns(column("number", BigInteger), column("search_id", BigInteger)).subquery("found")


def _texts() -> Select[Any]:
    """Returns the query of the columns of ``SpanText``."""
    return select(*(schema.spans.columns[name] for name in SpanText._fields))


def _is_made(connection: Connection) -> bool:
    if connection.dialect.name == "sqlite":
        query = f"SELECT 1 FROM sqlite_master WHERE name = '{_TABLE}'"
    else:
        query = f"SELECT 1 WHERE to_regclass('{_TABLE}') IS NOT NULL"
    return connection.exec_driver_sql(query).first() is not None


def _old_tables(connection: Connection) -> list[str]:
    """Returns the names of the index's tables, of any version, without those that FTS5 keeps below them."""
    names = inspect(connection).get_table_names(schema=connection.dialect.default_schema_name)
    return [name for name in names if re.fullmatch(r"search_words_\d+", name)]


def _next_ids(connection: Connection, episode_ids: Collection[str]) -> dict[str, int]:
    """Returns the number that the next span of each episode gets."""
    numbers, ids = schema.search_episodes.c, schema.search_spans.c.search_id
    wanted = select(numbers.episode_id, numbers.number).where(numbers.episode_id.in_(episode_ids))
    following: dict[str, int] = {}
    for episode_id, number in connection.execute(wanted).all():
        start = number << _BITS
        last = connection.execute(
            select(func.max(ids)).where(ids.between(start, start + (1 << _BITS) - 1))
        ).scalar_one()
        following[episode_id] = start if last is None else last + 1
    fresh = sorted(set(episode_ids) - following.keys())
    if fresh:
        connection.execute(insert(schema.search_episodes), [{"episode_id": episode_id} for episode_id in fresh])
        rows = connection.execute(wanted.where(numbers.episode_id.in_(fresh))).all()
        following.update((episode_id, number << _BITS) for episode_id, number in rows)
    return following


def _encoded(connection: Connection, words: Sequence[str]) -> str:
    """Returns words as the index takes them."""
    if connection.dialect.name == "sqlite":
        return " ".join(words)
    places: dict[str, list[str]] = {}
    for place, word in enumerate(words, start=1):
        places.setdefault(word, []).append(str(min(place, _MAX_POSITION)))
    return " ".join(f"'{word}':{','.join(found)}" for word, found in places.items())


def _fts5_query(terms: Sequence[Term]) -> str:
    return " ".join(f'"{" ".join(_plain(term))}"{" *" if term.is_prefix else ""}' for term in terms)


def _tsquery(terms: Sequence[Term]) -> str:
    return " & ".join(
        "(" + " <-> ".join(f"'{word}'" for word in _plain(term)) + (":*" if term.is_prefix else "") + ")"
        for term in terms
    )


def _plain(term: Term) -> tuple[str, ...]:
    """Returns the words of a term; it is part of a query's text, so none may hold anything else than letters."""
    if not term.words or not all(_WORD.fullmatch(word) for word in term.words):
        raise ValueError(f"{term.words!r} are not words")
    return term.words
