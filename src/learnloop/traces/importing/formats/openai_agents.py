"""Exports of the OpenAI Agents SDK's tracing: objects ``trace`` and ``trace.span``, as JSON Lines or one list.

A trace is an episode and each span is one of ours, by the ids that the SDK gave. Spans of the Responses API carry the
id of the response alone, unless the exporter added what was said: their steps are empty then.

Source: ``agents.tracing`` of openai-agents (``Trace.export``, ``Span.export``, ``SpanData.export``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from learnloop.core.errors import FormatError
from learnloop.core.records import Episode, EpisodeStatus, Record, Span, SpanStatus
from learnloop.traces.conversation.messages import as_text, messages_of, parsed
from learnloop.traces.importing.reader import ItemReader, Source, TraceFormat, convert, known_time
from learnloop.traces.json_values import present, token_usage

_OPERATIONS = {
    "agent": "invoke_agent",
    "function": "execute_tool",
    "generation": "chat",
    "response": "chat",
    "guardrail": "guardrail",
}
_KNOWN = frozenset({"type", "name", "input", "output", "model", "model_config", "usage", "response_id"})


class _Item(msgspec.Struct):
    object: str
    id: str
    trace_id: str | None = None
    parent_id: str | None = None
    workflow_name: str | None = None
    group_id: str | None = None
    metadata: Any = None
    started_at: str | None = None
    ended_at: str | None = None
    span_data: dict[str, Any] | None = None
    error: Any = None


class _Trace(msgspec.Struct):
    """What is known of a trace so far."""

    name: str | None = None
    group_id: str | None = None
    metadata: Any = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str | None = None


class OpenAiAgentsReader(ItemReader):
    """Reads traces and their spans into an episode a trace."""

    format_name = "openai-agents"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._traces: dict[str, _Trace] = {}

    def read(self, item: Any) -> list[Record]:
        """Returns the span of an object; nothing for a trace, which the end of the file completes."""
        entry = convert(item, _Item)
        if entry.object == "trace":
            trace = self._traces.setdefault(entry.id, _Trace())
            trace.name, trace.group_id, trace.metadata = entry.workflow_name, entry.group_id, entry.metadata
            return []
        if entry.object != "trace.span":
            return []
        if entry.trace_id is None or entry.span_data is None:
            raise FormatError(f"the span {entry.id!r} has no trace_id or no span_data")
        started_at, ended_at = known_time(entry.started_at), known_time(entry.ended_at)
        error = _error(entry.error)
        trace = self._traces.setdefault(entry.trace_id, _Trace())
        begin = started_at or ended_at or trace.started_at or self.source.modified_at
        end = max(begin, ended_at or begin)
        trace.started_at = min(trace.started_at or begin, begin)
        trace.ended_at = max(trace.ended_at or end, end)
        if entry.parent_id is None:
            trace.error = error
        kind = as_text(entry.span_data.get("type"))
        operation = _OPERATIONS.get(kind, "custom")
        trace_id = self.ids.derive("episode", entry.trace_id)
        attributes = _attributes(entry.span_data, kind, operation)
        if started_at is None or ended_at is None:
            attributes["duration_unknown"] = True
        name = entry.span_data.get("model") if operation == "chat" else entry.span_data.get("name") or kind
        span = Span(
            span_id=self.ids.derive("span", entry.id),
            trace_id=trace_id,
            episode_id=trace_id,
            parent_id=self.ids.derive("span", entry.parent_id) if entry.parent_id else None,
            operation=operation,
            name=as_text(name),
            status=SpanStatus.OK if error is None else SpanStatus.ERROR,
            error=error,
            started_at=begin,
            ended_at=end,
            attributes=attributes,
        )
        return [span]

    def finish(self) -> list[Record]:
        """Returns the episodes of the traces that have spans."""
        return [self._episode(known, trace) for known, trace in self._traces.items() if trace.started_at is not None]

    def _episode(self, known: str, trace: _Trace) -> Episode:
        episode_id = self.ids.derive("episode", known)
        metadata = {
            "trace_id": known,
            "workflow_name": trace.name,
            "group_id": trace.group_id,
            "metadata": trace.metadata,
        }
        return Episode(
            episode_id=episode_id,
            trace_id=episode_id,
            agent_id=self.source.agent_id,
            task_id=None,
            source="openai-agents",
            status=EpisodeStatus.COMPLETED if trace.error is None else EpisodeStatus.FAILED,
            terminated=trace.error is None,
            error=trace.error,
            started_at=trace.started_at or self.source.modified_at,
            ended_at=trace.ended_at,
            metadata=present(metadata),
        )


def _attributes(data: Mapping[str, Any], kind: str, operation: str) -> dict[str, Any]:
    said = {"input": data.get("input"), "output": data.get("output")}
    if operation == "chat":
        said = {name: messages_of(value) or None for name, value in said.items()}
    elif operation == "execute_tool":
        said = {name: parsed(value) if name == "input" else value for name, value in said.items()}
    given = {
        **said,
        "usage": token_usage(data.get("usage")),
        "request": data.get("model_config"),
        "response_id": data.get("response_id"),
        "span_type": kind if operation == "custom" else None,
        **{name: value for name, value in data.items() if name not in _KNOWN},
    }
    return present(given)


def _error(raw: Any) -> str | None:
    if raw is None:
        return None
    message = raw.get("message") if isinstance(raw, Mapping) else raw
    return as_text(message)[:2_000] or "failed"


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and value.get("object") in ("trace", "trace.span")


def _listed(value: Any) -> Sequence[Any]:
    inner = value.get("data") if isinstance(value, dict) else value
    return inner if isinstance(inner, list) else [value]


OPENAI_AGENTS = TraceFormat("openai-agents", "object trace or trace.span", _is_object, OpenAiAgentsReader)
OPENAI_AGENTS_DOCUMENT = OPENAI_AGENTS.as_document("openai-agents-json", _listed)
