"""learnloop.store.full_text: the queue knows of every span that is not indexed, however it came."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import select

from learnloop.core.records import Record, Span
from learnloop.store import Store, insert_records, migrate, schema
from learnloop.store.engine import Connections, parse_url
from learnloop.store.full_text import Document, Term, add_words, is_waiting, matches, prepare_words, remove_words
from learnloop.testing.contracts.store_examples import span


def queued(store: Store) -> list[str]:
    return store.read(lambda connection: list(connection.execute(select(schema.search_queue.c.episode_id)).scalars()))


def test_every_way_in_queues_the_episode(store: Store) -> None:
    store.write([span("a", episode_id="w"), span("b", episode_id="w"), span("c", episode_id=None)])
    store.offer(span("d", episode_id="o"))
    store.flush()
    store.run(lambda connection: insert_records(connection, [span("e", episode_id="r")]))
    assert sorted(queued(store)) == ["o", "r", "w"]
    assert store.read(is_waiting)


def test_a_span_that_is_taken_out_can_come_again(store: Store) -> None:
    terms = [Term(("one", "two"), False)]

    def hits() -> int:
        return len(store.read(lambda connection: connection.execute(select(matches(store.backend, terms))).all()))

    store.run(prepare_words)
    for _ in range(3):
        store.run(lambda connection: add_words(connection, [Document("s", "e", ["one", "two", "one"])]))
        assert hits() == 1
        number = store.read(lambda connection: connection.execute(select(schema.search_spans.c.search_id)).scalar_one())
        store.run(lambda connection, number=number: remove_words(connection, [(number, ["one", "two", "one"])]))  # type: ignore[misc]
        assert hits() == 0
    assert number == 1 << 24


@pytest.mark.parametrize("words", [(), ("a b",), ("a'",), ('"',), ("a", "")])
def test_what_is_no_word_never_gets_into_a_query(words: tuple[str, ...]) -> None:
    for backend in ("sqlite", "postgresql"):
        with pytest.raises(ValueError, match="are not words"):
            matches(backend, [Term(words, False)])


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_store_of_before_queues_what_it_holds(request: pytest.FixtureRequest, tmp_path: Path, backend: str) -> None:
    url = f"sqlite:///{tmp_path}/o.db" if backend == "sqlite" else request.getfixturevalue("empty_postgres_url")
    config = Config()
    config.set_main_option("script_location", "learnloop.store:migrations")
    config.set_main_option("path_separator", "os")
    connections = Connections(parse_url(url))
    moment = "1" if backend == "sqlite" else "now()"
    with connections.writing() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        for key, episode_id in (("a", "'e1'"), ("b", "'e1'"), ("c", "'e2'"), ("d", "NULL")):
            connection.exec_driver_sql(
                f"INSERT INTO spans VALUES ('{key}', 't', {episode_id}, NULL, 'chat', 'm', 'ok', NULL, "
                f"{moment}, {moment}, '{{}}')"
            )
    connections.close()
    assert migrate.current(url) == "0002"
    with Store.open(url) as store:
        assert store.revision == migrate.HEAD
        assert sorted(queued(store)) == ["e1", "e2"]
        assert store.count(Span) == 4


def test_what_records_become_is_what_is_stored_and_indexed(store_url: str) -> None:
    def shout(record: Record) -> Record:
        return span(record.span_id, name="LOUD") if isinstance(record, Span) else record

    with Store.open(store_url, transform=shout) as store:
        store.write([span("a")])
        store.run(lambda connection: insert_records(connection, [span("b")]))
        store.offer(span("c"))
        store.flush()
        assert [each.name for each in store.select(Span)] == ["LOUD"] * 3
        assert store.scrub()


def test_a_log_that_somebody_reads_is_not_emptied(tmp_path: Path, sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        reader = sqlite3.connect(tmp_path / "learnloop.db")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM spans").fetchone()
        store.write([span("a")])
        assert not store.scrub()
        reader.close()
        assert store.scrub()
        assert (tmp_path / "learnloop.db-wal").stat().st_size == 0
