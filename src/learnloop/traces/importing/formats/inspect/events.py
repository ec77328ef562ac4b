"""The events of an inspect_ai sample as spans: calls of models and tools, inside the spans that the log has.

Calls that a scorer makes are no steps of the agent: they are ``evaluate`` spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from learnloop.traces.conversation.messages import as_text
from learnloop.traces.importing.building import Calls, EpisodeBuilder
from learnloop.traces.importing.formats.inspect.messages import Attachments, Reader
from learnloop.traces.importing.reader import known_time, required_list
from learnloop.traces.json_values import find, known_list, known_object, known_text, present, token_usage

_SCORING = frozenset({"scorer", "scorers"})
_LEFT_OUT = frozenset({"sample_init", "state", "store", "anchor", "branch", "checkpoint", "score_edit"})
"""They repeat what the sample itself holds, or the changes of it."""
_BOOKKEEPING = frozenset({"event", "timestamp", "span_id", "uuid", "working_start", "completed", "pending"})
_MAX_DEPTH = 32


class Events:
    """Adds the events of one sample to its episode."""

    def __init__(self, builder: EpisodeBuilder, reader: Reader, attachments: Attachments) -> None:
        self._builder = builder
        self._reader = reader
        self._attachments = attachments
        self._calls = Calls(builder)
        self._tools: Any = None
        self._spans: dict[str, str] = {}
        self._scoring: set[str] = set()
        self._open: list[tuple[str, bool]] = []
        """The steps of older logs that have begun: their spans, and whether they score."""
        self.num_calls = 0
        """Calls of the agent's model so far."""

    def add(self, events: list[Any], parent_id: str | None = None, depth: int = 0) -> None:
        """Adds ``events``, those inside a tool's or a subtask's event too."""
        ends = _ends(events)
        for place, raw in enumerate(events):
            event = known_object(raw)
            kind = known_text(event.get("event")) or ""
            inside = self._inside(event, parent_id)
            if kind in ("span_begin", "step"):
                self._begin_or_end(kind, event, inside, ends.get(place))
            elif kind == "span_end" or kind in _LEFT_OUT or not kind:
                continue
            else:
                span_id = self._add_event(kind, event, inside)
                nested = event.get("events")
                if isinstance(nested, list) and nested and depth < _MAX_DEPTH:
                    self.add(nested, span_id, depth + 1)

    def _add_event(self, kind: str, event: Mapping[str, Any], parent_id: str | None) -> str:
        if kind == "model":
            return self._model(event, parent_id)
        if kind == "tool":
            return self._tool(event, parent_id)
        operation = "evaluate" if kind == "score" else "custom"
        details = {name: value for name, value in event.items() if name not in _BOOKKEEPING | {"events", "name"}}
        name = known_text(event.get("name")) or kind
        known = present({"type": kind, **known_object(self._attachments.resolve(details))})
        return self._builder.span(operation, name, **_times(event), parent_id=parent_id, details=known or None)

    def _inside(self, event: Mapping[str, Any], parent_id: str | None) -> str | None:
        span = known_text(event.get("span_id"))
        if span in self._spans and event.get("id") != span:
            return self._spans[span]
        return self._open[-1][0] if self._open else parent_id

    def _begin_or_end(self, kind: str, event: Mapping[str, Any], inside: str | None, ended: datetime | None) -> None:
        if kind == "step" and event.get("action") != "begin":
            if self._open:
                self._open.pop()
            return
        span_type, name = known_text(event.get("type")), known_text(event.get("name")) or ""
        parent, key = known_text(event.get("parent_id")), known_text(event.get("id"))
        scoring = span_type in _SCORING or parent in self._scoring or any(each[1] for each in self._open)
        operation = "evaluate" if scoring else "invoke_agent" if span_type == "agent" else "custom"
        started = known_time(event.get("timestamp"))
        above = self._spans.get(parent or "", inside)
        known = {"type": span_type} if span_type else None
        span_id = self._builder.span(operation, name, started, ended, parent_id=above, details=known)
        if kind == "step":
            self._open.append((span_id, scoring))
        elif key is not None:
            self._spans[key] = span_id
            if scoring:
                self._scoring.add(key)

    def _scores(self, event: Mapping[str, Any]) -> bool:
        return known_text(event.get("span_id")) in self._scoring or any(scoring for _, scoring in self._open)

    def _model(self, event: Mapping[str, Any], parent_id: str | None) -> str:
        model = known_text(event.get("model")) or ""
        output = known_object(event.get("output"))
        heard = self._reader.heard(event)
        answers = [self._reader.read(message) for message in _answers(output)]
        error = event.get("error") or output.get("error")
        attributes: dict[str, Any] = {
            **_times(event),
            "parent_id": parent_id,
            "error": as_text(error) if error else None,
            **_details(event, output),
        }
        if self._scores(event):
            attributes |= {"input": [said for _, said in heard], "output": [said for _, said in answers] or None}
            return self._builder.span("evaluate", model, **attributes)
        self.num_calls += 1
        tools = self._attachments.resolve(event.get("tools") or None)
        attributes["tools"] = None if tools == self._tools else tools
        self._tools = tools
        return self._calls.add(model, [said for _, said in heard], [mark for mark, _ in heard], answers, **attributes)

    def _tool(self, event: Mapping[str, Any], parent_id: str | None) -> str:
        fault = known_object(event.get("error"))
        failed = event.get("failed") is True or bool(fault)
        message = known_text(fault.get("message")) or known_text(fault.get("type")) or "the tool reported an error"
        return self._builder.tool(
            known_text(event.get("function")) or "",
            self._attachments.resolve(event.get("arguments")),
            self._attachments.resolve(event.get("result")),
            call_id=known_text(event.get("id")),
            **_times(event),
            parent_id=parent_id,
            error=message if failed else None,
            error_type=known_text(fault.get("type")),
        )


def _ends(events: list[Any]) -> dict[int, datetime]:
    """Returns when each span and each step ends, by the place where it begins."""
    begun: dict[Any, int] = {}
    steps: list[int] = []
    ends: dict[int, datetime] = {}
    for place, raw in enumerate(events):
        event = known_object(raw)
        kind, action, key = event.get("event"), event.get("action"), known_text(event.get("id"))
        if kind == "span_begin":
            begun[key] = place
        elif kind == "step" and action == "begin":
            steps.append(place)
        elif kind in ("span_end", "step") and (moment := known_time(event.get("timestamp"))) is not None:
            opened = begun.pop(key, None) if kind == "span_end" else steps.pop() if steps else None
            if opened is not None:
                ends[opened] = moment
    return ends


def _times(event: Mapping[str, Any]) -> dict[str, Any]:
    return {"started_at": known_time(event.get("timestamp")), "ended_at": known_time(event.get("completed"))}


def _answers(output: Mapping[str, Any]) -> list[Any]:
    choices = required_list("output.choices", output.get("choices"))
    return [said for choice in choices if isinstance(said := find(choice, "message"), dict)]


def _details(event: Mapping[str, Any], output: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a log says of a call besides its messages."""
    choices = [known_object(choice) for choice in required_list("output.choices", output.get("choices"))]
    model, usage = known_text(event.get("model")) or "", known_object(output.get("usage"))
    return {
        "provider": model.split("/")[0] if "/" in model else None,
        "response_model": known_text(output.get("model")),
        "response_id": known_text(find(event, "call", "response", "id")),
        "usage": model_usage(usage),
        "cost_usd": usage.get("total_cost") if isinstance(usage.get("total_cost"), int | float) else None,
        "finish_reasons": [text for each in choices if (text := known_text(each.get("stop_reason")))] or None,
        "request": present(known_object(event.get("config"))) or None,
        "logprobs": _logprobs(choices),
        "cache": known_text(event.get("cache")),
        "role": known_text(event.get("role")),
        "retries": event.get("retries"),
        "pending": event.get("pending"),
    }


def model_usage(usage: Mapping[str, Any]) -> dict[str, int] | None:
    """Returns token counts in our words: what was read from a cache is part of the input.

    Newer logs leave it out of ``input_tokens``, older ones do not; the total tells which.
    """
    counts = token_usage(usage)
    total, cached = usage.get("total_tokens"), 0
    for name in ("input_tokens_cache_read", "input_tokens_cache_write"):
        cached += usage[name] if type(usage.get(name)) is int else 0
    if counts and cached and total == counts.get("input_tokens", 0) + counts.get("output_tokens", 0) + cached:
        counts["input_tokens"] = counts.get("input_tokens", 0) + cached
    return counts


def _logprobs(choices: Iterable[Mapping[str, Any]]) -> list[float] | None:
    for choice in choices:
        found = [find(each, "logprob") for each in known_list(find(choice, "logprobs", "content"))]
        if found and all(isinstance(each, int | float) for each in found):
            return [float(each) for each in found if isinstance(each, int | float)]
    return None
