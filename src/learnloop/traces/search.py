"""Full-text search over spans: what their words are, what a query asks for, and where it is found.

A word is a run of letters and digits, without case and accents; ``get_user`` and ``e-mail`` are two words each, and
each Chinese or Japanese character is one. Words are those of a span's name, error and attributes' values; names of
fields, definitions of tools, counts and ids of tokens are left out. Of a span that holds much (a whole conversation,
say) the first ``MAX_CHARACTERS`` count: what was answered first, then what was said, the last message first.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from learnloop.core.records import Span
from learnloop.store import Connection, Store
from learnloop.store.full_text import (
    Document,
    Term,
    add_words,
    indexed_spans,
    is_waiting,
    prepare_words,
    remove_words,
    take_from_queue,
    unindexed_spans,
    waiting_episodes,
)

MAX_CHARACTERS = 32_000
"""Of a span."""
MAX_WORD = 64
"""Characters of a word; the rest of a longer one is not looked at."""
MAX_TERMS = 32
"""Of a query; further ones are not looked at."""
_SPANS = 500
"""Spans that are indexed at once."""
_EPISODES = 200
_MAX_DEPTH = 100
_SECONDS = 0.08
"""How long the store is held at a time."""
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_SPACED = bytes(code if chr(code).isalnum() and code < 128 else 32 for code in range(256))
"""Each byte of a text, a space where it is no letter or digit."""
_WORD = re.compile(rf"([{_CJK}]|[^\W_{_CJK}]{{1,{MAX_WORD}}})(?:(?<![{_CJK}])[^\W_{_CJK}]*+)?+")
_RUN = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_QUERY = re.compile(r'"([^"]*)"?(\*?)|([^\s"]+)')
_LEFT_OUT = frozenset({"input", "output", "token_ids", "logprobs", "tools", "usage"})
_AROUND = 60
"""Characters of a snippet on each side of the first word that was found."""


class Snippet(msgspec.Struct, frozen=True, kw_only=True):
    """The place where something was found."""

    span_id: str
    text: str
    marks: list[tuple[int, int]]
    """Start and end of each word that was asked for, in ``text``."""


def words_of(text: str) -> list[str]:
    """Returns the words of ``text`` in their order."""
    if text.isascii():
        words = text.lower().encode().translate(_SPACED).decode().split()
        if max(map(len, words), default=0) <= MAX_WORD:
            return words
        return [word[:MAX_WORD] for word in words]
    letters = unicodedata.normalize("NFKD", text)
    return _WORD.findall("".join(each for each in letters if not unicodedata.combining(each)).casefold())


def words_of_span(name: str, error: str | None, attributes: Mapping[str, Any]) -> list[str]:
    """Returns the words by which a span is found, at most those of ``MAX_CHARACTERS``."""
    return words_of(" ".join(span_texts(name, error, attributes))[:MAX_CHARACTERS])


def span_texts(name: str, error: str | None, attributes: Mapping[str, Any]) -> list[str]:
    """Returns the texts of a span, the most telling ones first, as far as ``MAX_CHARACTERS`` go."""
    texts = [name]
    if error:
        texts.append(error)
    given = attributes.get("input")
    others = [value for key, value in attributes.items() if key not in _LEFT_OUT]
    left = MAX_CHARACTERS
    for value in (attributes.get("output"), others, given[::-1] if isinstance(given, list) else given):
        left = _add_texts(value, texts, left, 0)
    return texts


def parse_query(query: str) -> list[Term]:
    """Returns what a query asks for: words, ``"phrases"`` and beginnings``*``. Any text is a query."""
    terms: list[Term] = []
    for match in _QUERY.finditer(query):
        phrase, phrase_star, bare = match.groups()
        given = bare if phrase is None else phrase
        words = tuple(words_of(given))
        if words:
            terms.append(Term(words, bool(phrase_star) or (phrase is None and bare.endswith("*"))))
    return list(dict.fromkeys(terms))[:MAX_TERMS]


def catch_up(store: Store, *, seconds: float | None = None) -> bool:
    """Indexes what is not indexed yet, in small steps that let others write in between.

    Args:
        store: whose spans.
        seconds: how long at most; None: until all is done.

    Returns:
        Whether all is indexed.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while store.read(is_waiting):
        if end is not None and time.monotonic() >= end:
            return False
        store.run(_index_some)
    return True


def forget_words(connection: Connection, span_ids: Sequence[str]) -> set[str]:
    """Takes spans that are about to change, or to go, out of the full-text index; returns the ids of their episodes."""
    found = indexed_spans(connection, span_ids)
    remove_words(connection, [(number, words_of_span(*span[2:])) for number, span in found])
    return {span.episode_id for _, span in found}


def snippet(span: Span, terms: Sequence[Term]) -> Snippet:
    """Returns the place in ``span`` where the first of the terms' words is, with all such words marked."""
    text, place = next(_places(span, terms), (span.name, 0))
    start = max(0, place - _AROUND)
    shown = text[start : place + _AROUND]
    marks = [(each.start(), each.end()) for each in _RUN.finditer(shown) if _is_asked(each[0], terms)]
    return Snippet(span_id=span.span_id, text=shown, marks=marks)


def _index_some(connection: Connection) -> None:
    """Indexes for as long as the store may be held."""
    end = time.monotonic() + _SECONDS
    prepare_words(connection)
    while time.monotonic() < end and (episode_ids := waiting_episodes(connection, _EPISODES)):
        number = _SPANS
        while number == _SPANS and time.monotonic() < end:
            spans = unindexed_spans(connection, episode_ids, _SPANS)
            add_words(connection, [Document(*span[:2], words_of_span(*span[2:])) for span in spans])
            number = len(spans)
        if number < _SPANS:
            take_from_queue(connection, episode_ids)


def _add_texts(value: Any, texts: list[str], left: int, depth: int) -> int:
    """Adds the texts and numbers of a JSON value, without names of fields; returns how many characters are left."""
    if isinstance(value, str):
        texts.append(value)
        return left - len(value)
    if isinstance(value, dict):
        items: Iterable[Any] = value.values() if "role" not in value else _contents_of(value)
    elif isinstance(value, list):
        items = value
    else:
        if isinstance(value, int | float) and not isinstance(value, bool):
            texts.append(str(value))
        return left
    for item in items if depth < _MAX_DEPTH else ():
        if left <= 0:
            break
        left = _add_texts(item, texts, left, depth + 1)
    return left


def _contents_of(message: dict[str, Any]) -> list[Any]:
    """Returns what is said in a message: not its role, nor of which types its parts are."""
    found = [item for name, item in message.items() if name not in ("role", "parts")]
    parts = message.get("parts")
    for part in parts if isinstance(parts, list) else [parts]:
        if isinstance(part, dict):
            found.extend(item for name, item in part.items() if name != "type")
        else:
            found.append(part)
    return found


def _places(span: Span, terms: Sequence[Term]) -> Iterator[tuple[str, int]]:
    for text in span_texts(span.name, span.error, span.attributes):
        for match in _RUN.finditer(text):
            if _is_asked(match[0], terms):
                yield text, match.start()


def _is_asked(word: str, terms: Sequence[Term]) -> bool:
    """Returns whether a word of a text is one of those that were asked for."""
    for cut in words_of(word):
        for term in terms:
            if cut in term.words or (term.is_prefix and cut.startswith(term.words[-1])):
                return True
    return False
