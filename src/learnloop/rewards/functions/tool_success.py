"""Whether the tools that an attempt called did what they were asked to."""

from __future__ import annotations

from typing import Any

import msgspec

from learnloop.core.attempts import Attempt, Score, ToolCall
from learnloop.core.decoding import json_or
from learnloop.rewards.scoring.function import reward_function

_MAX_RESULT_CHARS = 1_000_000
_FALSE_IS_FAILURE = ("success", "ok", "succeeded")
_TRUE_IS_FAILURE = ("error", "errors", "is_error", "isError", "failed")
_NOT_ZERO_IS_FAILURE = ("exit_code", "returncode", "exit_status")
_FAILED_STATES = frozenset({"error", "failed", "failure", "timeout", "cancelled", "denied"})
_FIRST_HTTP_ERROR = 400


@reward_function("tool_success", is_outcome=False)
def tool_success(attempt: Attempt) -> Score:
    """Scores the share of different tool calls that succeeded in the end, from recorded errors and structured results.

    Calls of one tool with the same arguments count as one, with its last outcome: a retry that works is a success, and
    the same call a hundred times is no more than one. What the answer or a result claims in words is not looked at.
    """
    calls = attempt.tool_calls
    if not calls:
        return Score.not_applicable("no tool was called")
    outcomes: dict[tuple[str, bytes], bool | None] = {}
    for call in calls:
        key = (call.name, _arguments(call))
        outcome = has_succeeded(call)
        if outcome is not None or key not in outcomes:
            outcomes[key] = outcome
    known = [outcome for outcome in outcomes.values() if outcome is not None]
    if not known:
        return Score.not_applicable(f"of {len(calls)} tool calls neither results nor errors are recorded")
    return Score.of(sum(known) / len(known), num_calls=len(calls), num_different=len(outcomes), num_known=len(known))


def has_succeeded(call: ToolCall) -> bool | None:
    """Returns whether a call did what it was asked to; None: the record does not tell."""
    if call.error is not None:
        return False
    if call.result is None:
        return True if call.span_id is not None or call.duration_ms is not None else None
    return not _reports_failure(_structured(call.result))


def _structured(result: Any) -> Any:
    """Returns a result that is a JSON object in text as the object; all else as it is."""
    if not isinstance(result, str) or len(result) > _MAX_RESULT_CHARS or not result.lstrip().startswith("{"):
        return result
    return json_or(result, result)


def _reports_failure(result: Any) -> bool:
    if not isinstance(result, dict):
        return False
    if any(result.get(key) is False for key in _FALSE_IS_FAILURE) or any(result.get(key) for key in _TRUE_IS_FAILURE):
        return True
    if any(_whole(result.get(key)) for key in _NOT_ZERO_IS_FAILURE):
        return True
    status, code = result.get("status"), result.get("status_code")
    if isinstance(status, str) and status.lower() in _FAILED_STATES:
        return True
    return any(_whole(each) >= _FIRST_HTTP_ERROR for each in (status, code))


def _whole(value: Any) -> int:
    """Returns a whole number as it is; 0, which says nothing of failure, for all else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _arguments(call: ToolCall) -> bytes:
    try:
        return msgspec.json.encode(call.arguments, order="sorted")
    except (TypeError, ValueError, RecursionError):
        return str(id(call)).encode()  # what cannot be compared is a call of its own
