"""Whether the fenced blocks of an answer are valid in the language that they name. Nothing is ever run.

Each check returns None where the text is valid and else what is wrong. All have a limit on the size of the text, and
come to an end on any text: the parsers that take longer than linear time have a deadline or a lower limit.
"""

from __future__ import annotations

import ast
import importlib
import logging
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache

import msgspec

from learnloop.core.attempts import Attempt, Score
from learnloop.core.decoding import NOT_JSON
from learnloop.core.errors import needs_extra
from learnloop.rewards.grading.tasks.code_answer import fenced_blocks
from learnloop.rewards.scoring.function import MAX_OUTPUT_CHARS, reward_function

MAX_BLOCKS = 100
MAX_BLOCK_CHARS = 200_000
"""Of all blocks of an answer."""
_SECONDS = 2.0
"""For all blocks of an answer; an honest one takes some milliseconds."""
_MAX_TOLD = 3
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


@reward_function("syntax_validation", is_outcome=False)
def syntax_validation(attempt: Attempt) -> Score:
    """Scores the share of fenced blocks that parse: Python, JSON, YAML, SQL, shell, JavaScript. Nothing is run.

    A fence without a language, or with another one, is not checked, so it is never valid: it counts neither way.
    """
    output = attempt.output or ""
    if len(output) > MAX_OUTPUT_CHARS:
        return Score.of(0.0, f"the answer has {len(output)} characters, more than {MAX_OUTPUT_CHARS}")
    blocks = fenced_blocks(output)
    known = [(LANGUAGES[language], content) for language, content in blocks if language in LANGUAGES]
    if not known:
        return Score.not_applicable(f"none of {len(blocks)} fenced blocks names a language that is checked")
    if len(known) > MAX_BLOCKS:
        return Score.of(0.0, f"it has {len(known)} fenced blocks, more than the {MAX_BLOCKS} that are checked")
    if sum(len(content) for _, content in known) > MAX_BLOCK_CHARS:
        return Score.of(0.0, f"its fenced blocks have more than the {MAX_BLOCK_CHARS} characters that are checked")
    deadline = time.thread_time() + _SECONDS  # of this thread's own: a busy machine changes no score
    faults = []
    for number, (language, content) in enumerate(known, 1):
        late = time.thread_time() > deadline
        fault = f"not reached within {_SECONDS:g} seconds" if late else find_fault(content, language)
        if fault is not None:
            faults.append(f"{language} block {number}: {fault}")
    return Score.of(
        1.0 - len(faults) / len(known),
        "; ".join(faults[:_MAX_TOLD]) or None,
        num_checked=len(known),
        num_not_checked=len(blocks) - len(known),
    )


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


def _tree_sitter(text: str, grammar: str) -> str | None:
    """Returns what is wrong with a text by tree-sitter's ``grammar``, a package."""
    with needs_extra(f"{_FEATURE} shell and JavaScript", "rewards"):
        import tree_sitter

        language = tree_sitter.Language(importlib.import_module(grammar).language())
    data = text.encode(errors="replace")
    deadline = time.thread_time() + _PARSE_SECONDS  # of this thread's own: a busy machine changes no score
    parser = tree_sitter.Parser(language)  # a new one: one that gave up keeps its state, and threads may not share one
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


_SILENCE = logging.NullHandler()
_CHECKS: Mapping[str, Callable[[str], str | None]] = {
    "python": _python,
    "json": _json,
    "yaml": _yaml,
    "sql": _sql,
    "shell": lambda text: _tree_sitter(text, "tree_sitter_bash"),
    "javascript": lambda text: _tree_sitter(text, "tree_sitter_javascript"),
}
