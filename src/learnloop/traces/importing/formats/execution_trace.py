"""ExecutionTrace files: one JSON object a run, in ``rl_traces/YYYY-MM-DD/<trace_id>.json``; also a list, or JSON Lines.

The file says how many calls of models a run took, and not which tool each asked for: the run is one step, which tells
that number. A count, a cost or a duration of 0 is this format's word for "not recorded". ``trace_id`` repeats where two
attempts at one query had no time yet, so a run is known by its id and its time together. Of a label and a score only
one is learned from, for both say the same: the label where a person gave it, else the score.

Source: ``ExecutionTrace`` of toolboxv2.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

import msgspec

from learnloop.core.errors import FormatError
from learnloop.core.records import Record
from learnloop.traces.conversation.messages import message, text_part, tool_call_part
from learnloop.traces.importing.building import EpisodeBuilder
from learnloop.traces.importing.reader import (
    ItemReader,
    TraceFormat,
    convert,
    has_fields,
    known_time,
    shifted,
)
from learnloop.traces.json_values import present

_TASKS = ("tasks_created", "tasks_completed", "tasks_failed")
_KEPT = ("trace_id", "session_id", *_TASKS, "manual_review", "review_notes")
_MAX_MILLISECONDS = 1e12


class _Tool(msgspec.Struct):
    tool_name: str
    arguments: Any = None
    result: Any = None
    success: bool | None = None
    duration_ms: float | None = None
    error: str | None = None
    timestamp: str | None = None


class _Reasoning(msgspec.Struct, omit_defaults=True):
    content: str
    step_type: str | None = None
    confidence: float | None = None
    insights: list[Any] = []
    issues: list[Any] = []


class _Trace(msgspec.Struct):
    user_query: str
    trace_id: str = ""
    session_id: str = ""
    timestamp: str = ""
    tool_calls: list[_Tool] = []
    reasoning_steps: list[_Reasoning] = []
    tasks_created: list[Any] = []
    tasks_completed: list[Any] = []
    tasks_failed: list[Any] = []
    final_response: str | None = None
    total_tokens_in: int | None = None
    total_tokens_out: int | None = None
    total_cost: float | None = None
    execution_duration_ms: float | None = None
    llm_calls_count: int | None = None
    label: bool | None = None
    reward_score: float | None = None
    manual_review: bool = False
    review_notes: str | None = None


class ExecutionTraceReader(ItemReader):
    """Reads each run into an episode."""

    format_name = "execution-trace"

    def read(self, item: Any) -> list[Record]:
        """Returns the episode of one run, with its only step."""
        trace = convert(item, _Trace)
        _check(trace)
        started_at = known_time(trace.timestamp)
        known = f"{trace.trace_id} {trace.timestamp}" if trace.trace_id and trace.timestamp else None
        content = known or self.ids.derive(self.source.name, self.ids.for_line(item))
        query = hashlib.sha256(trace.user_query.encode("utf-8", "replace")).hexdigest()
        builder = EpisodeBuilder(
            self,
            self.ids.derive("episode", content),
            task_id=f"query:{query[:24]}" if trace.user_query else None,
            started_at=started_at,
            metadata={name: getattr(trace, name) or None for name in _KEPT},
        )
        ended_at = _after(started_at, trace.execution_duration_ms)
        self._step(builder, trace, started_at, ended_at)
        _add_rewards(builder, trace)
        return builder.finish(ended_at=ended_at, input=trace.user_query or None, output=trace.final_response or None)

    def _step(
        self, builder: EpisodeBuilder, trace: _Trace, started_at: datetime | None, ended_at: datetime | None
    ) -> None:
        thoughts = [{"type": "reasoning", **msgspec.to_builtins(each)} for each in trace.reasoning_steps]
        said = [text_part(trace.final_response)] if trace.final_response else []
        calls = [(f"call_{number}", tool) for number, tool in enumerate(trace.tool_calls, start=1)]
        asked = [tool_call_part(key, tool.tool_name, tool.arguments) for key, tool in calls]
        tokens = {"input_tokens": trace.total_tokens_in or None, "output_tokens": trace.total_tokens_out or None}
        builder.chat(
            "",
            [message("user", text_part(trace.user_query))],
            message("assistant", *thoughts, *asked, *said),
            started_at=started_at,
            ended_at=ended_at,
            usage=present(tokens) or None,
            cost_usd=trace.total_cost or None,
            num_model_calls=trace.llm_calls_count or None,
        )
        for key, tool in calls:
            self._tool(builder, key, tool)

    def _tool(self, builder: EpisodeBuilder, key: str, tool: _Tool) -> None:
        error = tool.error or ("the tool reported no success" if tool.success is False else None)
        at = known_time(tool.timestamp)  # when it was recorded: at its end
        began = _after(at, -tool.duration_ms) if tool.duration_ms else None
        builder.tool(
            tool.tool_name,
            tool.arguments,
            tool.result,
            call_id=key,
            started_at=began or at,
            ended_at=at if began else None,
            error=error,
        )


def _add_rewards(builder: EpisodeBuilder, trace: _Trace) -> None:
    reviewed = trace.label is not None and (trace.manual_review or trace.reward_score is None)
    if trace.label is not None:
        notes = trace.review_notes or None
        builder.reward("label", float(trace.label), weight=1.0 if reviewed else 0.0, reason=notes)
    if trace.reward_score is not None:
        builder.reward("reward_score", trace.reward_score, weight=0.0 if reviewed else 1.0)


def _check(trace: _Trace) -> None:
    if trace.reward_score is not None and not 0.0 <= trace.reward_score <= 1.0:
        raise FormatError(f"reward_score is {trace.reward_score}; allowed are 0 to 1, and null where it is not known")
    for value in (trace.execution_duration_ms, *(tool.duration_ms for tool in trace.tool_calls)):
        if value is not None and not 0.0 <= value <= _MAX_MILLISECONDS:
            raise FormatError(f"a duration is {value} ms; allowed are 0 to {_MAX_MILLISECONDS:g}")


def _after(moment: datetime | None, milliseconds: float | None) -> datetime | None:
    if moment is None or not milliseconds:
        return None
    return shifted(moment, milliseconds=milliseconds)


EXECUTION_TRACE_LINES = TraceFormat(
    "execution-trace-jsonl",
    "user_query, tool_calls and final_response",
    has_fields("user_query", "final_response", "tool_calls"),
    ExecutionTraceReader,
)
EXECUTION_TRACE = EXECUTION_TRACE_LINES.as_document("execution-trace")
