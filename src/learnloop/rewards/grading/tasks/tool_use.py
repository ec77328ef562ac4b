"""Tool use: the calls that were made, against those that were to be made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from learnloop.core.attempts import Attempt, Score, ToolCall
from learnloop.rewards.functions.json_shapes import json_key
from learnloop.rewards.functions.tool_success import has_succeeded

_MAX_CALLS = 1_000
_KEYS = frozenset({"calls", "ordered"})


def score_tool_use(attempt: Attempt) -> Score:
    """Returns 2 x matched / (made + expected): 1 where exactly the expected calls were made and none failed.

    The ground truth is a list of calls, each a mapping of ``name`` and ``arguments`` (without ``arguments`` any will
    do), or a mapping of such ``calls`` and ``ordered``. Arguments are compared as JSON values. Only calls that are
    recorded count, never those that an answer tells of.
    """
    read = _read(attempt.expected)
    if read is None:
        return Score.unknown("the ground truth is no list of calls with 'name' and 'arguments'")
    expected, is_ordered = read
    made = attempt.tool_calls
    if len(made) > _MAX_CALLS:
        return Score.of(0.0, f"it made {len(made)} calls, more than {_MAX_CALLS}")
    if not made and not expected:
        return Score.of(1.0)
    good = [call for call in made if has_succeeded(call) is not False]
    matched = _matched_in_order(good, expected) if is_ordered else _matched(good, expected)
    return Score.of(
        2.0 * matched / (len(made) + len(expected)), num_matched=matched, num_made=len(made), num_expected=len(expected)
    )


def _read(expected: Any) -> tuple[list[Mapping[str, Any]], bool] | None:
    is_ordered = False
    if isinstance(expected, Mapping) and expected.keys() <= _KEYS:
        expected, is_ordered = expected.get("calls"), expected.get("ordered") is True
    if not isinstance(expected, list) or len(expected) > _MAX_CALLS:
        return None
    fine = all(isinstance(each, Mapping) and isinstance(each.get("name"), str) for each in expected)
    return (expected, is_ordered) if fine else None


def _key(name: str, given: Any) -> Hashable:
    """Returns what two calls have in common just where name and arguments are the same.

    Some record arguments as the text of a JSON object, and none as nothing or as an empty text.
    """
    if given is None or given == "":
        given = {}
    try:
        if isinstance(given, str):
            given = msgspec.json.decode(given)
        return name, json_key(given)
    except (ValueError, RecursionError):  # of msgspec, too
        return name, "text", given if isinstance(given, str) else id(given)


def _matched(calls: list[ToolCall], expected: list[Mapping[str, Any]]) -> int:
    """Returns how many can be paired; those that name their arguments are paired before those that take any."""
    exact = Counter(_key(each["name"], each["arguments"]) for each in expected if "arguments" in each)
    any_arguments = Counter(each["name"] for each in expected if "arguments" not in each)
    left: Counter[str] = Counter()
    for call in calls:
        key = _key(call.name, call.arguments)
        if exact[key] > 0:
            exact[key] -= 1
        else:
            left[call.name] += 1
    num_exact = sum("arguments" in each for each in expected) - exact.total()
    return num_exact + (left & any_arguments).total()


def _matched_in_order(calls: list[ToolCall], expected: list[Mapping[str, Any]]) -> int:
    """Returns the length of the longest common subsequence."""
    wanted = [_key(each["name"], each["arguments"]) if "arguments" in each else each["name"] for each in expected]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(wanted))}
    sought = [numbers[key] for key in wanted]
    row = [0] * (len(sought) + 1)
    for call in calls:
        fitting = (numbers.get(call.name), numbers.get(_key(call.name, call.arguments)))
        before = 0
        for place, number in enumerate(sought, start=1):
            above = row[place]
            row[place] = before + 1 if number in fitting else max(above, row[place - 1])
            before = above
    return row[-1]
