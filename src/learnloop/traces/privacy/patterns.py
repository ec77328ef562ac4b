"""Patterns of a user's own: regular expressions that are checked before they meet a text.

Python's matcher cannot be interrupted and holds the interpreter, so a pattern that backtracks without end would stop
the agent. Patterns that can are refused; the others are tried on short pieces, and one that is slow all the same gets
no further text: fail closed, its token stands for what was not looked at.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from re import _constants, _parser  # type: ignore[attr-defined]  # the only reader of Python's own patterns
from typing import Any

from learnloop.core.errors import UsageError

MAX_MATCH = 256
"""Characters that one match may have to be found for sure."""
MAX_PATTERN = 1_000
MAX_REPEATS = 4
"""Repeats without a limit that one pattern may have, possessive ones (``*+``, ``++``) aside."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_SLOW_SECONDS = 0.05
_LIMITED = 64
"""A repeat that ends after so many is counted as one without a limit."""
_PROBES = ("a", "0", " ", "a0", "a ", "-", ".", "@", "\t", "é")


class Pattern:
    """A pattern that was checked."""

    def __init__(self, name: str, compiled: re.Pattern[str]) -> None:
        self.name = name
        self.token = f"[{name}]"
        self._compiled = compiled
        self._is_slow = False

    def find(self, text: str, start: int, end: int) -> list[tuple[int, int]]:
        """Returns where it matches between two places of a text, in pieces that overlap by ``MAX_MATCH``."""
        found: list[tuple[int, int]] = []
        while start < end and not self._is_slow:
            stop = min(end, start + 2 * MAX_MATCH)
            began = time.thread_time()
            found.extend(
                match.span() for match in self._compiled.finditer(text, start, stop) if match.end() > match.start()
            )
            self._is_slow = time.thread_time() - began > _SLOW_SECONDS
            start = end if stop == end else start + MAX_MATCH
        return [*found, (start, end)] if start < end else found


def check_pattern(name: str, source: str) -> Pattern:
    """Returns the pattern called ``name``.

    Raises:
        UsageError: the name cannot be a token, or the expression is wrong, matches nothing at all, or may take
            for ever; the message says what to do.
    """
    if not _NAME.fullmatch(name) or name in ("key", "email"):
        raise UsageError(
            f"the redaction pattern {name!r} needs another name: small letters, digits, - and _, at most 32; not key "
            "or email"
        )
    what = f"the redaction pattern {name!r} ({source!r})"
    if len(source) > MAX_PATTERN:
        raise UsageError(
            f"the redaction pattern {name!r} is longer than {MAX_PATTERN:,} characters; make several of it"
        )
    try:
        compiled = re.compile(source)
        items = _parser.parse(source)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"{what} is no regular expression: {error}") from error
    if compiled.match(""):
        raise UsageError(f"{what} matches an empty text; let it ask for at least one character")
    if _num_repeats(items, what) > MAX_REPEATS:
        raise UsageError(
            f"{what} has more than {MAX_REPEATS} repeats without a limit; give them limits, such as {{1,40}}, or make "
            "them possessive, such as *+"
        )
    _try(compiled, what)
    return Pattern(name, compiled)


def _num_repeats(items: Iterable[Any], what: str, inside: bool = False) -> int:
    """Returns how many repeats without a limit a parsed pattern has that may give back what they took.

    Raises:
        UsageError: one is inside another, or repeats alternatives, or refers back: that may take for ever.
    """
    number = 0
    for operator, argument in items:
        if operator in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            least, most, body = argument
            is_open = most > _LIMITED and most != least
            if inside and most != least and most > 1:
                raise UsageError(
                    f"{what} repeats what repeats, which may take for ever; write (?>...) or a possessive ++"
                )
            number += is_open + _num_repeats(body, what, inside or most > 1)
        elif operator in (_constants.POSSESSIVE_REPEAT, _constants.ATOMIC_GROUP):
            body = argument[2] if operator == _constants.POSSESSIVE_REPEAT else argument
            number += _num_repeats(body, what, False)
        elif operator == _constants.BRANCH:
            if inside:
                raise UsageError(f"{what} repeats alternatives, which may take for ever; write (?>...) around them")
            number += max(_num_repeats(each, what, inside) for each in argument[1])
        elif operator in (_constants.GROUPREF, _constants.GROUPREF_EXISTS):
            raise UsageError(f"{what} refers back to a group, which may take for ever; write it without")
        elif operator == _constants.SUBPATTERN:
            number += _num_repeats(argument[3], what, inside)
        elif operator in (_constants.ASSERT, _constants.ASSERT_NOT):
            number += _num_repeats(argument[1], what, inside)
    return number


def _try(compiled: re.Pattern[str], what: str) -> None:
    """Tries a pattern on texts that make patterns slow, short ones first.

    Raises:
        UsageError: it took too long.
    """
    for size in (16, 24, 36, 54, 81, 121, 182, 273, 2 * MAX_MATCH):
        for probe in _PROBES:
            began = time.thread_time()
            compiled.search((probe * size)[:size] + "\0")
            if time.thread_time() - began > _SLOW_SECONDS:
                raise UsageError(
                    f"{what} is slow on a text of {size} characters; make its repeats possessive, such as ++"
                )
