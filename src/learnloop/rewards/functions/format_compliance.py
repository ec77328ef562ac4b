"""Whether an answer has the form that its task asks for."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from learnloop.core.attempts import Attempt, Score
from learnloop.core.decoding import NOT_JSON
from learnloop.core.errors import needs_extra, one_of
from learnloop.rewards.functions.json_shapes import find_shape_fault, unknown_keyword
from learnloop.rewards.grading.tasks.code_answer import fenced_blocks
from learnloop.rewards.scoring.function import MAX_OUTPUT_CHARS, reward_function, without_output

_REGEX_SECONDS = 0.2
"""Processor time that a pattern may take on one answer."""
_PATIENCE = 1.25
"""Of the first try, as a multiple: enough that what runs away on a quiet machine has used its time."""
_MAX_PATTERN_CHARS = 100_000
_MAX_PATTERN = 10_000
_MAX_REPEATS = 1_000_000
"""More, one in another, and making the pattern takes all memory."""
_REPEATS = re.compile(r"\{(?:[1-9]\d{0,8},?\d{0,9}|0?,[1-9]\d{0,8})\}")
_DIGITS = re.compile(r"\d+")
_MAX_TOLD = 5
_CLOSING = re.compile(r"</[A-Za-z_][\w.:-]*\s{0,99}>")
_OPENING = re.compile(
    r"""(?<![\w)\]])<[A-Za-z_][\w.:-]*(?:\s[^<>]*)?(?:/|\s[\w.:-]+=(?:"[^<>"]*"|'[^<>']*')\s{0,99})>"""
)
"""One that is empty, or has an attribute."""


@reward_function("format_compliance", is_outcome=False)
def format_compliance(attempt: Attempt) -> Score:
    """Scores the share of the requirements in ``metadata["format"]`` that the answer meets; an empty answer meets none.

    Requirements: ``json`` (true, or a schema: type, properties, required, items, enum, minimum, maximum,
    additionalProperties), ``pattern`` (a regular expression for the whole answer), ``min_chars``, ``max_chars``,
    ``max_words``, ``must_contain`` (texts), ``no_xml_tags``.
    """
    wanted = attempt.metadata.get("format")
    if not wanted:
        return Score.not_applicable("the task states no format (metadata['format'])")
    problem = _find_problem(wanted)
    if problem is not None:
        return Score.unknown(problem)
    output = attempt.output
    if output is None:
        return without_output("format_compliance", attempt)
    if len(output) > MAX_OUTPUT_CHARS:
        return Score.of(0.0, f"the answer has {len(output)} characters, more than {MAX_OUTPUT_CHARS}")
    if not output.strip():
        return Score.of(0.0, "the answer is empty")
    faults = {name: fault for name, value in wanted.items() if (fault := _CHECKS[name](output, value)) is not None}
    told = "; ".join(f"{name}: {fault}" for name, fault in list(faults.items())[:_MAX_TOLD])
    return Score.of(1.0 - len(faults) / len(wanted), told or None, num_requirements=len(wanted))


def has_xml_elements(text: str) -> bool:
    """Returns whether a text has elements of XML: closed ones, empty ones, or such with attributes.

    ``List<int>`` and ``a<b and c>d`` are not: the name before a bracket makes it a type or a comparison, and nothing
    closes them. It takes time that is linear in the text.
    """
    return _CLOSING.search(text) is not None or _OPENING.search(text) is not None


def _find_problem(wanted: object) -> str | None:
    """Returns why requirements cannot be checked."""
    if not isinstance(wanted, Mapping):
        return f"metadata['format'] is {str(wanted)[:80]!r}; a mapping of requirements is needed"
    for name, value in wanted.items():
        if name not in _CHECKS:
            return f"metadata['format'] has {name!r}; known are {one_of(_CHECKS)}"
        if not _is_fine(name, value):
            return f"metadata['format'] has {str(value)[:80]!r} for {name}, which has no meaning there"
    fault = _find_pattern_fault(wanted["pattern"]) if "pattern" in wanted else None
    if fault is not None:
        return fault
    keyword = unknown_keyword(wanted.get("json"))
    return None if keyword is None else f"metadata['format'] has a schema with {keyword!r}, which is not checked"


def _is_fine(name: str, value: Any) -> bool:
    if name == "json":
        return value is True or isinstance(value, Mapping)
    if name == "no_xml_tags":
        return value is True
    if name == "must_contain":
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if name == "pattern":
        return isinstance(value, str)
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_json(output: str, schema: Any) -> str | None:
    text = output.strip()
    blocks = fenced_blocks(text) if text.startswith(("```", "~~~")) else []
    if len(blocks) == 1 and text.endswith(("```", "~~~")):
        text = blocks[0][1]
    try:
        value = msgspec.json.decode(text)
    except NOT_JSON as error:
        return str(error)
    return None if schema is True else find_shape_fault(value, schema)


def _check_pattern(output: str, pattern: str) -> str | None:
    if len(output) > _MAX_PATTERN_CHARS:
        return f"it has more than the {_MAX_PATTERN_CHARS} characters that patterns are tried on"
    try:
        is_match = _is_match(_regex().compile(pattern), output.strip())
    except TimeoutError:
        return f"{pattern!r} cannot be tried within {_REGEX_SECONDS:g} seconds of processor time"
    return None if is_match else f"it does not match {pattern[:80]!r}"


def _is_match(pattern: Any, text: str) -> bool:
    """Returns whether a compiled pattern matches the whole text.

    What counts is the processor time of this thread. The limit of ``regex`` counts that of all threads of the process
    (the wall's on Windows), and would give up the sooner the busier the process is: a try that it ends too early is
    begun again with more patience, so that a score does not depend on what else runs.

    Raises:
        TimeoutError: it takes more than ``_REGEX_SECONDS``.
    """
    num_tries = 0
    while True:
        patience = _REGEX_SECONDS * _PATIENCE * 2**num_tries
        num_tries += 1
        deadline = time.thread_time() + _REGEX_SECONDS
        try:
            found = pattern.fullmatch(text, timeout=patience, concurrent=True)
        except TimeoutError:
            if time.thread_time() > deadline:
                raise
            continue
        if time.thread_time() > deadline:  # a try with more patience may come to its end later than it may
            raise TimeoutError
        return found is not None


def _find_pattern_fault(pattern: str) -> str | None:
    repeats = math.prod(max(map(int, _DIGITS.findall(each))) for each in _REPEATS.findall(pattern))
    if len(pattern) > _MAX_PATTERN or repeats > _MAX_REPEATS:
        return (
            f"metadata['format'] has the pattern {pattern[:80]!r}; it may have {_MAX_PATTERN} characters and counts in "
            f"braces that multiply to {_MAX_REPEATS}: make it shorter"
        )
    regex = _regex()
    try:
        regex.compile(pattern)
    except (regex.error, RecursionError) as error:
        return f"metadata['format'] has the pattern {pattern[:80]!r}: {error}"
    return None


def _regex() -> Any:
    with needs_extra("Checking an answer against a pattern", "rewards"):
        import regex
    return regex


def _check_contained(output: str, texts: list[str]) -> str | None:
    missing = [text for text in texts if text not in output]
    return f"it does not contain {missing[0][:80]!r}" if missing else None


_CHECKS: Mapping[str, Callable[[str, Any], str | None]] = {
    "json": _check_json,
    "pattern": _check_pattern,
    "min_chars": lambda output, limit: f"{len(output)} characters are too few" if len(output) < limit else None,
    "max_chars": lambda output, limit: f"{len(output)} characters are too many" if len(output) > limit else None,
    "max_words": lambda output, limit: "it has too many words" if len(output.split()) > limit else None,
    "must_contain": _check_contained,
    "no_xml_tags": lambda output, _: "it has XML tags" if has_xml_elements(output) else None,
}
