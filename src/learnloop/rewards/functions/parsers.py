"""Whether a text is what it claims to be: Python, JSON, YAML, SQL, shell or JavaScript. Nothing is ever run.

Each check returns None where the text is valid and else what is wrong. All have a limit on the size of the text, and
come to an end on any text: the parsers that take longer than linear time have a deadline or a lower limit.
"""

from __future__ import annotations

import ast
import logging
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from learnloop.core.decoding import NOT_JSON
from learnloop.core.errors import MissingExtraError, needs_extra

if TYPE_CHECKING:
    from tree_sitter import Parser

MAX_CHARS = 100_000
"""Of one text."""
_MAX_SQL_CHARS = 20_000
_PARSE_SECONDS = 0.5
_CHUNK = 4096
_FEATURE = "Checking the syntax of"
_WARNINGS = threading.Lock()
"""Filters of warnings are the whole process's."""

_LANGUAGES: Mapping[str, tuple[str, ...]] = {
    "python": ("python", "py", "python3", "py3"),
    "json": ("json",),
    "yaml": ("yaml", "yml"),
    "sql": ("sql", "sqlite", "postgresql", "postgres", "mysql"),
    "shell": ("sh", "bash", "shell", "zsh"),
    "javascript": ("javascript", "js", "mjs", "node"),
}
LANGUAGES: Mapping[str, str] = {alias: name for name, aliases in _LANGUAGES.items() for alias in aliases}
"""Which language the word after a fence names."""


def find_fault(text: str, language: str) -> str | None:
    """Returns what is wrong with a text in ``language`` (a value of ``LANGUAGES``); None: it is valid.

    Raises:
        MissingExtraError: the parser of the language is not installed.
    """
    if not text.strip():
        return "it is empty"
    limit = _MAX_SQL_CHARS if language == "sql" else MAX_CHARS
    if len(text) > limit:
        return f"it has {len(text)} characters, more than the {limit} that are checked"
    return _CHECKS[language](text)


def _python(text: str) -> str | None:
    try:
        with _WARNINGS, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is a warning of Python's, not a fault
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        return f"{type(error).__name__}: {error}"
    return None if tree.body else "it has no statement"


def _json(text: str) -> str | None:
    try:
        msgspec.json.decode(text)
    except NOT_JSON as error:
        return str(error)
    return None


def _yaml(text: str) -> str | None:
    with needs_extra(f"{_FEATURE} YAML", "rewards"):
        import yaml
    first = None
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if first is None and isinstance(event, yaml.events.NodeEvent):
                first = event
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        return " ".join(str(error).split())[:200]
    is_collection = isinstance(first, yaml.events.CollectionStartEvent)
    return None if is_collection else "it is no mapping and no list, only a text"


def _sql(text: str) -> str | None:
    with needs_extra(f"{_FEATURE} SQL", "rewards"):
        import sqlglot
        from sqlglot import exp
    logging.getLogger("sqlglot").addHandler(_SILENCE)  # a handler is added once; it says what we return
    try:
        statements = [each for each in sqlglot.parse(text) if each is not None]
        if not statements:
            return "it has no statement"
        known = (exp.Query, exp.DML, exp.DDL, *_other_statements())
        bad = [each for each in statements if not isinstance(each, known) or each == exp.Select()]
        return f"{bad[0].sql()[:80]!r} is no statement" if bad else None
    except (sqlglot.errors.SqlglotError, RecursionError) as error:  # writing it down is recursive, too
        return " ".join(str(error).split())[:200]


@cache
def _other_statements() -> tuple[type, ...]:
    from sqlglot import exp

    transactions = (exp.Transaction, exp.Commit, exp.Rollback)
    changes = (exp.Alter, exp.Drop, exp.Merge, exp.TruncateTable)
    return (*transactions, *changes, exp.Command, exp.Describe, exp.Pragma, exp.Set, exp.Use)


def _shell(text: str) -> str | None:
    return _tree_sitter(text, "shell")


def _javascript(text: str) -> str | None:
    return _tree_sitter(text, "javascript")


def _tree_sitter(text: str, language: str) -> str | None:
    parser = _parser(language)
    data = text.encode(errors="replace")
    deadline = time.thread_time() + _PARSE_SECONDS  # of this thread's own: a busy machine changes no score
    try:
        tree = parser.parse(
            lambda offset, _: data[offset : offset + _CHUNK],
            progress_callback=lambda *_: time.thread_time() > deadline,
        )
    except ValueError:  # what the parser says when it is told to stop
        return f"it cannot be read within {_PARSE_SECONDS:g} seconds"
    if tree.root_node.has_error:
        return "it has a syntax error"
    return None if tree.root_node.named_child_count else "it has no statement"


def _parser(language: str) -> Parser:
    """Returns a new parser: one that gave up keeps its state, and none may be shared by threads."""
    try:
        import tree_sitter

        grammar = _grammar(language)
    except ImportError as error:
        raise MissingExtraError(f"{_FEATURE} {language}", "rewards") from error
    return tree_sitter.Parser(grammar)


@cache
def _grammar(language: str) -> Any:
    import tree_sitter

    if language == "shell":
        import tree_sitter_bash

        return tree_sitter.Language(tree_sitter_bash.language())
    import tree_sitter_javascript

    return tree_sitter.Language(tree_sitter_javascript.language())


_SILENCE = logging.NullHandler()
_CHECKS: Mapping[str, Callable[[str], str | None]] = {
    "python": _python,
    "json": _json,
    "yaml": _yaml,
    "sql": _sql,
    "shell": _shell,
    "javascript": _javascript,
}
