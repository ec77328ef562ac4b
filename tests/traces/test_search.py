"""learnloop.traces.search and store.full_text: every back end finds the same, whatever is asked and happened."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, delete, select

from learnloop.core.records import Span
from learnloop.store import Store, backup, full_text, restore, schema
from learnloop.store.full_text import Term, is_waiting, matches
from learnloop.testing.contracts.store_examples import T0, episode, span
from learnloop.traces.search import (
    MAX_CHARACTERS,
    MAX_WORD,
    catch_up,
    parse_query,
    snippet,
    words_of,
    words_of_span,
)


def found(store: Store, query: str) -> list[str]:
    """Returns the ids of the spans found first in each episode, sorted."""
    terms = parse_query(query)
    if not terms:
        return []
    catch_up(store)

    def read(connection: Connection) -> list[str]:
        hits = matches(store.backend, terms)
        known = schema.search_spans.c
        return list(connection.execute(select(known.span_id).join(hits, hits.c.search_id == known.search_id)).scalars())

    return sorted(store.read(read))


def say(key: str, text: Any, **fields: Any) -> Span:
    return span(key, **{"episode_id": key, "attributes": {"input": text}, **fields})


TEXTS = {
    "refund": "The refund of order 17 was CANCELLED, e-mail me",
    "order": "order 18: get_user_details(café)",
    "long": "a " * 200 + "needle " + "b " * 200,
    "japanese": "東京都で order",
    "german": "Straße und Übung",
    "nested": {"deep": [{"er": ["order", {"x": 17}]}]},
    "empty": "",
}
QUERIES = {
    "order": ["japanese", "nested", "order", "refund"],
    "ORDER 17": ["nested", "refund"],
    '"order 17"': ["nested", "refund"],
    '"17 order"': [],
    "canc*": ["refund"],
    "canc": [],
    "order canc*": ["refund"],
    '"was canc"*': ["refund"],
    "email": [],
    "e-mail": ["refund"],
    '"mail e"': [],
    "cafe": ["order"],
    "CAFÉ": ["order"],
    "user": ["order"],
    "get_user": ["order"],
    "get_user_d*": ["order"],
    "needle": ["long"],
    '"a needle b"': ["long"],
    "東京": ["japanese"],
    "京都": ["japanese"],
    "都東": [],
    "strasse": ["german"],
    "ubung": ["german"],
    "nothing": [],
    "": [],
    "***": [],
    '"': [],
    '""': [],
    '"order': ["japanese", "nested", "order", "refund"],
    "order OR nothing": [],
    "NOT order": [],
    "words:order": [],
    "order AND (17": ["nested"] * 0,
    "ord(er": [],
    "order:17 & | ! <-> ' \\ ; --": ["nested", "refund"],
    "er*": [],
    "NEAR(order 17)": [],
}


def test_the_same_is_found_on_every_back_end(store: Store) -> None:
    store.write([say(key, text) for key, text in TEXTS.items()])
    assert {query: found(store, query) for query in QUERIES} == QUERIES


def test_what_is_said_in_a_span_is_found_and_what_is_counted_is_not(store: Store) -> None:
    messages = [{"role": "user", "parts": [{"type": "text", "content": "hello"}]}]
    counted = {"usage": {"input_tokens": 4711}, "token_ids": {"prompt": [815]}, "flag": True}
    said = {"input": messages, "output": "answer", "call_id": "c9", "field": "value"}
    attributes = {**said, **counted, "tools": [{"name": "definition"}]}
    store.write([span("s", name="gpt-4o", error="boom", attributes=attributes)])
    for query in ("hello", "answer", "gpt", "4o", "boom", "c9", "value"):
        assert found(store, query) == ["s"], query
    for query in ("4711", "815", "definition", "true", "user", "text", "content", "field", "role", "flag"):
        assert found(store, query) == [], query


def test_all_words_must_be_in_one_span_and_the_first_such_span_is_named(store: Store) -> None:
    spans = [span(f"s{number}", attributes={"input": text}) for number, text in enumerate(["a", "b", "a b", "b a"])]
    for each in spans:  # one after the other, so that their order is known
        store.write([each])
        catch_up(store)
    assert found(store, "a b") == ["s2"]
    assert found(store, "b") == ["s1"]


def test_spans_that_come_later_are_found_and_spans_of_no_episode_are_not(store: Store) -> None:
    store.write(
        [span("s1", attributes={"input": "first"}), span("lost", episode_id=None, attributes={"input": "first"})]
    )
    assert found(store, "first") == ["s1"]
    store.offer(span("s2", attributes={"input": "second"}))
    store.flush()
    assert store.read(is_waiting)
    assert found(store, "second") == ["s2"]
    assert not store.read(is_waiting)
    store.write([span("s2", attributes={"input": "other"})])  # it is there already
    assert found(store, "other") == []


def test_many_spans_of_one_episode_and_many_episodes(store: Store) -> None:
    store.write(span(f"s{number:03}", attributes={"input": f"n{number} all"}) for number in range(450))
    store.write(say(f"other{number}", "all") for number in range(250))
    assert len(found(store, "all")) == 251
    for number in (0, 199, 200, 449):
        assert found(store, f"n{number}") == [f"s{number:03}"]


def test_catching_up_can_be_given_a_time(store: Store) -> None:
    store.write([say("s", "text")])
    assert catch_up(store, seconds=0) is False
    assert catch_up(store, seconds=60) is True


def test_an_index_of_another_version_is_made_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write([say("s", "text")])
    assert found(store, "text") == ["s"]
    monkeypatch.setattr(full_text, "_TABLE", "search_words_99")
    assert found(store, "text") == ["s"]
    assert store.read(lambda connection: full_text._old_tables(connection)) == ["search_words_99"]


def test_it_outlives_vacuum_and_restore(tmp_path: Path, sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        store.write([say(key, text) for key, text in TEXTS.items()])
        assert found(store, "refund") == ["refund"]
        backup(sqlite_url, None, tmp_path / "b.tar")
        store.write([say("later", "refund again")])
        store.run(lambda connection: connection.execute(delete(schema.spans).where(schema.spans.c.span_id == "order")))
        assert found(store, "again") == ["later"]
    with sqlite3.connect(tmp_path / "learnloop.db") as connection:
        connection.execute("VACUUM")
    connection.close()
    with Store.open(sqlite_url) as store:
        assert found(store, "refund") == ["later", "refund"]
        store.write([say("latest", "refund")])
        assert found(store, "refund") == ["later", "latest", "refund"]
    restore(tmp_path / "b.tar", sqlite_url, None, force=True)
    with Store.open(sqlite_url) as store:
        assert found(store, "refund") == ["refund"]
        assert found(store, "again") == []
        assert found(store, "cafe") == ["order"]


def test_a_backup_moves_to_postgresql_and_is_searched_there(tmp_path: Path, sqlite_url: str, postgres_url: str) -> None:
    with Store.open(sqlite_url) as store:
        store.write([episode("refund"), say("refund", TEXTS["refund"])])
        assert found(store, "refund") == ["refund"]
    backup(sqlite_url, None, tmp_path / "b.tar")
    restore(tmp_path / "b.tar", postgres_url, None)
    with Store.open(postgres_url) as store:
        assert found(store, '"refund of"') == ["refund"]


ALPHABET = st.sampled_from(list("ab1_-*\"' é東ß()&|!:\\%\0\ud800"))


def test_any_text_is_a_query(store: Store) -> None:
    store.write([say("s", "ab a b é東")])

    @given(st.text(ALPHABET, max_size=30))
    def ask(query: str) -> None:
        assert set(found(store, query)) <= {"s"}

    ask()


@given(st.text(max_size=60))
def test_words_are_found_by_themselves(text: str) -> None:
    """Cutting words again changes nothing, so that a query cuts as a text does."""
    words = words_of(text)
    assert words_of(" ".join(words)) == words
    assert all(0 < len(word) <= MAX_WORD for word in words)


def test_what_a_query_asks_for() -> None:
    assert parse_query('a-b "c d"* e* e*') == [Term(("a", "b"), False), Term(("c", "d"), True), Term(("e",), True)]
    assert parse_query("x" * 100) == [Term(("x" * MAX_WORD,), False)]
    assert len(parse_query(" ".join(map(str, range(100))))) == 32


def test_of_a_long_span_the_answer_and_the_last_messages_count() -> None:
    history = [
        {"role": "user", "parts": [{"type": "text", "content": f"m{number} " + "x " * 1000}]} for number in range(50)
    ]
    words = words_of_span("model", None, {"input": history, "output": "answer"})
    assert words[:2] == ["model", "answer"]
    assert "m49" in words
    assert "m0" not in words
    assert len(words) <= MAX_CHARACTERS
    deep: Any = "bottom"
    for _ in range(500):
        deep = [deep]
    assert words_of_span("n", None, {"a": deep, "b": "top"}) == ["n", "top"]


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("order", "The Order of order", ["Order", "order"]),
        ("canc* café", "was CANCELLED in a Cafe\u0301", ["CANCELLED", "Cafe"]),
        ("strasse", "die Straße", ["Straße"]),
        ("nothing", "text", []),
    ],
)
def test_a_snippet_marks_what_was_asked_for(query: str, text: str, marked: Sequence[str]) -> None:
    found_at = snippet(span("s", attributes={"input": text}), parse_query(query))
    assert [found_at.text[start:end] for start, end in found_at.marks] == marked
    assert found_at.span_id == "s"


def test_a_snippet_is_short() -> None:
    found_at = snippet(span("s", attributes={"input": TEXTS["long"]}), parse_query("needle"))
    assert len(found_at.text) <= 120
    assert [found_at.text[start:end] for start, end in found_at.marks] == ["needle"]


def test_spans_may_come_before_their_episode(store: Store) -> None:
    store.write([say("s", "text")])
    catch_up(store)
    store.write([episode("s", started_at=T0 + timedelta(days=1))])
    assert found(store, "text") == ["s"]
