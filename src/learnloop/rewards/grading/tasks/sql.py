"""SQL: the answer's query and the ground truth's are run on the same small database, and their rows compared."""

from __future__ import annotations

import math
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import psutil

from learnloop.core.attempts import Attempt, Score
from learnloop.rewards.grading.tasks.answers import answer_part
from learnloop.rewards.grading.tasks.code_answer import fenced_blocks

MAX_ROWS = 10_000
MAX_QUERY_CHARS = 20_000
_SECONDS = 2.0
_MAX_VALUE_BYTES = 100_000
_MAX_RESULT_BYTES = 10_000_000
_MAX_MEMORY_BYTES = 512 * 1024 * 1024
"""By which this process may grow meanwhile."""
_INSTRUCTIONS = 2_000
"""Of SQLite's machine between two looks at the clock."""
_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_BANNED_FUNCTIONS = frozenset(
    {"load_extension", "randomblob", "zeroblob", "random", "readfile", "writefile", "edit", "fts3_tokenizer"}
)
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _MAX_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 50,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_COLUMN: 200,
}
_PIECE = re.compile(r"(?is)'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/|[()]|\border\s+by\b")
_COMMENT = re.compile(r"(?s)\s*(?:--[^\n]*(?:\n|$)|/\*.*?\*/)")
_QUERY = r"(?:select|values|with\s+(?:recursive\s+)?[\w\"]+\s*(?:\([^()]*\)\s*)?as)\b"
_STARTS = re.compile(rf"(?i)\s*{_QUERY}")
_LINE_STARTS = re.compile(rf"(?im)^[ \t]*(?:[^\n:]{{0,80}}:[ \t]*)?`?(?={_QUERY})")
_STATEMENT_ENDS = re.compile(r";[ \t;]*`?[ \t]*(?:\n|$)")
_LANGUAGES = frozenset({"sql", "sqlite", "sqlite3", "postgresql", "postgres", "mysql"})
_DIGITS = 12


class _Result(NamedTuple):
    rows: list[tuple[Any, ...]] | None
    problem: str | None
    tables: frozenset[str]
    """Which it read."""


def score_sql(attempt: Attempt) -> Score:
    """Returns 1 where the answer's query gives the rows that the ground truth's gives, else 0.

    The ground truth is a mapping: ``query``, and ``setup``: a script that makes the tables and rows, or a list of such,
    on each of which both queries must agree. Rows are compared as a multiset, in their order where ``query`` ends with
    ORDER BY (or by ``ordered``); names of columns do not count. Each query may only read, has two seconds of computing,
    and runs in a fresh database in memory. A query that reads no table, where the ground truth does, only repeats a
    result and is wrong.
    """
    truth = attempt.expected
    if not isinstance(truth, Mapping) or not isinstance(truth.get("query"), str):
        return Score.unknown("the ground truth is no mapping with 'query' and 'setup'")
    setups = truth.get("setup", "")
    setups = [setups] if isinstance(setups, str) else setups
    if not isinstance(setups, list) or not setups or not all(isinstance(each, str) for each in setups):
        return Score.unknown("the ground truth's 'setup' is no script and no list of scripts")
    query = _query_of(attempt.output or "")
    if query is None:
        return Score.of(0.0, "the answer has no query")
    is_ordered = truth.get("ordered", _has_order(truth["query"]))
    if not isinstance(is_ordered, bool):
        return Score.unknown(f"the ground truth's 'ordered' is {is_ordered!r}; true or false is needed")
    for setup in setups:
        found = _compared(setup, query, truth["query"], is_ordered)
        if found is not None:
            return found
    return Score.of(1.0, num_databases=len(setups))


def _compared(setup: str, query: str, truth: str, is_ordered: bool) -> Score | None:
    """Returns the score where the two differ on one database; None: they do not."""
    wanted = _run(setup, truth)
    if wanted.rows is None:
        return Score.unknown(f"the ground truth cannot be had: {wanted.problem}")
    found = _run(setup, query)
    if found.rows is None:
        return Score.of(0.0, f"the answer's query {found.problem}")
    if wanted.tables and not found.tables:
        return Score.of(0.0, "the answer's query reads no table")
    rows, others = ([tuple(map(_rounded, row)) for row in each] for each in (found.rows, wanted.rows))
    if rows == others or (not is_ordered and Counter(rows) == Counter(others)):
        return None
    return Score.of(0.0, f"the answer's query gives {len(rows)} rows, not the {len(others)} that are right")


def _query_of(output: str) -> str | None:
    """Returns the query of an answer: its last block of SQL, or the text from the first line that begins a query."""
    text = answer_part(output)
    blocks = fenced_blocks(text)
    named = [content for language, content in blocks if language in _LANGUAGES]
    unnamed = [content for language, content in blocks if not language and _is_query(content)]
    query = _cut_out((named or unnamed or ["" if blocks else text])[-1])
    return query if query and len(query) <= MAX_QUERY_CHARS else None


def _cut_out(text: str) -> str | None:
    """Returns a query without what stands around it; what has another query after its end is returned as a whole."""
    begin = 0 if _is_query(text) else None
    if begin is None:
        line = _LINE_STARTS.search(text)
        begin = None if line is None else line.end()
    if begin is None:
        return None
    end = _STATEMENT_ENDS.search(text, begin)
    if end is not None and not _LINE_STARTS.search(text, end.end()):
        text = text[: end.start()]
    return text[begin:].strip().strip("`")


def _is_query(text: str) -> bool:
    place = 0
    while comment := _COMMENT.match(text, place):
        place = comment.end()
    return _STARTS.match(text, place) is not None


def _has_order(query: str) -> bool:
    """Returns whether a query has an ORDER BY that is not within brackets, where it would order a part of it only."""
    depth = 0
    for piece in _PIECE.finditer(query):
        text = piece.group()
        depth += (text == "(") - (text == ")")
        if depth == 0 and text[0] in "oO":
            return True
    return False


def _run(setup: str, query: str) -> _Result:
    tables: set[str] = set()
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    try:
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        watch = _Watch()
        connection.set_progress_handler(watch.is_over, _INSTRUCTIONS)
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.set_authorizer(_authorize_setup)
        connection.executescript(setup)
        connection.set_authorizer(_reader(tables))
        return _fetched(connection, query, watch, tables)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        return _Result(None, f"failed: {error}", frozenset(tables))
    finally:
        connection.close()


def _fetched(connection: sqlite3.Connection, query: str, watch: _Watch, tables: set[str]) -> _Result:
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in connection.execute(query):  # refuses several statements
        rows.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(rows) > MAX_ROWS or size > _MAX_RESULT_BYTES:
            return _Result(None, f"gives more than {MAX_ROWS} rows or {_MAX_RESULT_BYTES} bytes", frozenset(tables))
        if watch.is_over():
            return _Result(None, f"takes more than {_SECONDS:g} seconds", frozenset(tables))
    return _Result(rows, None, frozenset(tables))


class _Watch:
    """Says when a query has had its time or memory; the time is this thread's own, whatever others do meanwhile."""

    def __init__(self) -> None:
        self._deadline = time.thread_time() + _SECONDS
        self._process = psutil.Process()
        self._limit = self._process.memory_info().rss + _MAX_MEMORY_BYTES

    def is_over(self) -> bool:
        return time.thread_time() > self._deadline or self._process.memory_info().rss > self._limit


def _reader(tables: set[str]) -> Any:
    def authorize(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
        if action not in _READING or (action == sqlite3.SQLITE_FUNCTION and str(second).lower() in _BANNED_FUNCTIONS):
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_READ and first and not first.startswith("sqlite_"):
            tables.add(first)
        return sqlite3.SQLITE_OK

    return authorize


def _authorize_setup(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    is_banned = action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA)
    is_banned = is_banned or (action == sqlite3.SQLITE_FUNCTION and str(second).lower() == "load_extension")
    return sqlite3.SQLITE_DENY if is_banned else sqlite3.SQLITE_OK


def _rounded(value: Any) -> Any:
    """Returns a value so that 2 and 2.0 are the same, and sums in another order too; None is NULL."""
    if isinstance(value, float) and math.isfinite(value) and not value.is_integer():
        return float(f"{value:.{_DIGITS}g}")
    return value
