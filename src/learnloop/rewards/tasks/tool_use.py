"""Tool use: the calls that were made, against those that were to be made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from learnloop.core.attempts import Attempt, Score, ToolCall
from learnloop.rewards.json_shapes import same_json
from learnloop.rewards.tool_success import has_succeeded

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


def _is_match(call: ToolCall, wanted: Mapping[str, Any]) -> bool:
    if call.name != wanted["name"]:
        return False
    return "arguments" not in wanted or same_json(_arguments(call.arguments), wanted["arguments"])


def _arguments(given: Any) -> Any:
    """Returns arguments as a value: some record them as the text of a JSON object."""
    if not isinstance(given, str):
        return {} if given is None else given
    try:
        return msgspec.json.decode(given)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return given


def _matched(calls: list[ToolCall], expected: list[Mapping[str, Any]]) -> int:
    """Returns how many can be paired; a call that names its arguments is looked for before one that takes any."""
    left = list(calls)
    matched = 0
    for wanted in sorted(expected, key=lambda each: "arguments" not in each):
        place = next((number for number, call in enumerate(left) if _is_match(call, wanted)), None)
        if place is not None:
            del left[place]
            matched += 1
    return matched


def _matched_in_order(calls: list[ToolCall], expected: list[Mapping[str, Any]]) -> int:
    """Returns the length of the longest common subsequence."""
    row = [0] * (len(expected) + 1)
    for call in calls:
        before = 0
        for number, wanted in enumerate(expected, start=1):
            above = row[number]
            row[number] = before + 1 if _is_match(call, wanted) else max(above, row[number - 1])
            before = above
    return row[-1]
