"""The steps of an episode: each call of a model, what was new in it, and what its tool calls gave back.

Spans come from many sources. Where two instruments recorded one call, one inside the other, it is one step. Where a
call repeats the whole conversation, a step has only what the calls before it did not say. A trace without calls of
models has a step for each call of a tool.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from learnloop.core.attempts import ToolCall
from learnloop.core.records import Json, Span, SpanStatus
from learnloop.traces.conversation.conversations import Conversations
from learnloop.traces.conversation.messages import (
    Message,
    Part,
    fingerprint,
    messages_of,
    parsed,
    tool_calls_of,
    tool_responses_of,
)
from learnloop.traces.json_values import sorted_text

MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion"})
TOOL_OPERATION = "execute_tool"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model."""

    span_id: str
    model: str
    messages: list[Message]
    """What was said to the model and is new since the calls before it in the same conversation."""
    output: Message | None
    """What it answered; None: it is not recorded, or the call failed."""
    tool_calls: list[ToolCall]
    error: str | None
    attributes: Json
    """The span's own: ``usage``, ``finish_reasons``, ``token_ids``, ``logprobs`` ... where they were recorded."""
    started_at: datetime
    ended_at: datetime


def in_time_order(spans: Iterable[Span]) -> list[Span]:
    """Returns spans by their start; of those that start together the one that contains the others comes first."""
    listed = list(spans)
    depths = _depths(listed)
    return sorted(
        listed,
        key=lambda span: (span.started_at, depths[span.span_id], _nanos(span), span.ended_at, span.span_id),
    )


def _nanos(span: Span) -> int:
    """Returns what lies between the microsecond in which a span started and its start, where it is known."""
    nanos = span.attributes.get("start_nanos")
    return nanos if type(nanos) is int else 0


def steps_of(spans: Iterable[Span]) -> list[Step]:
    """Returns the steps of one episode's spans, in the order of their starts."""
    ordered = in_time_order(spans)
    calls = _single_calls(ordered)
    tools = _ToolSpans(span for span in ordered if span.operation == TOOL_OPERATION)
    if not calls:
        return [_tool_step(span) for span in tools.spans]
    conversations = Conversations()
    known: dict[bytes, str] = {}
    read = []
    for span, around in calls:
        output = _output(span, around)
        read.append((span, _new_messages(conversations, known, span, output), output))
    responses: dict[str, Any] = {}
    for _, messages, _ in read:
        for said in messages:
            responses.update((part["id"], part.get("response")) for part in tool_responses_of(said) if part.get("id"))
    return [
        _step(
            span,
            messages,
            output,
            [_answer_call(part, tools, span.started_at, responses) for part in _calls_of(output)],
        )
        for span, messages, output in read
    ]


def _single_calls(spans: Iterable[Span]) -> list[tuple[Span, Span | None]]:
    """Returns each call of a model once, as its innermost span, with the one around it that recorded it too."""
    listed = list(spans)
    enclosing = _Enclosing(listed)
    found: list[Span] = []
    outer: dict[str, Span] = {}
    wrappers: set[str] = set()
    for span in listed:
        if span.operation in MODEL_OPERATIONS:
            found.append(span)
            around = enclosing.call_of(span)
            if around is not None:
                outer[span.span_id] = around
                wrappers.add(around.span_id)
    return [(span, outer.get(span.span_id)) for span in found if span.span_id not in wrappers]


class _Enclosing:
    """Finds the call of a model that a span was made in; an agent or a tool between them makes it another call."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._by_id = {span.span_id: span for span in spans}
        self._found: dict[str, Span | None] = {}
        """By the span that was asked for, or lies on the way: each way up is gone once."""

    def call_of(self, span: Span) -> Span | None:
        way = [span.span_id]
        seen = {span.span_id}
        answer = None
        parent = self._by_id.get(span.parent_id or "")
        while parent is not None and parent.span_id not in seen:
            if parent.operation in MODEL_OPERATIONS:
                answer = parent
                break
            if parent.operation in (TOOL_OPERATION, "invoke_agent"):
                break
            if parent.span_id in self._found:
                answer = self._found[parent.span_id]
                break
            way.append(parent.span_id)
            seen.add(parent.span_id)
            parent = self._by_id.get(parent.parent_id or "")
        if parent is None or parent.span_id not in seen:
            self._found.update(dict.fromkeys(way, answer))
        return answer


def _depths(spans: Sequence[Span]) -> dict[str, int]:
    """Returns how many spans each lies in; those of a loop of parents lie in none."""
    by_id = {span.span_id: span for span in spans}
    depths: dict[str, int] = {}
    for span in spans:
        chain: dict[str, None] = {}
        current: Span | None = span
        while current is not None and current.span_id not in depths and current.span_id not in chain:
            chain[current.span_id] = None
            current = by_id.get(current.parent_id or "")
        waiting = list(chain)
        if current is not None and current.span_id in chain:
            start = waiting.index(current.span_id)
            depths.update(dict.fromkeys(waiting[start:], 0))
            del waiting[start:]
        base = -1 if current is None else depths[current.span_id]
        depths.update((span_id, base + offset) for offset, span_id in enumerate(reversed(waiting), start=1))
    return depths


def _new_messages(
    conversations: Conversations, known: dict[bytes, str], span: Span, output: Message | None
) -> list[Message]:
    """Returns what is new in a call, and notes the call.

    Args:
        conversations: of the episode so far.
        known: the fingerprints of messages as they are recorded, by their digests; what is repeated is read once.
        span: the call.
        output: what it answered.
    """
    given = span.attributes.get("input")
    messages: list[Any] = given if isinstance(given, list) else messages_of(given)
    marks = [_mark(each, known) for each in messages]
    answer = None if output is None else fingerprint(output)
    offset = span.attributes.get("input_offset")
    if isinstance(offset, int) and offset > 0:  # recorded as what is new already
        conversations.go_on(offset, marks, answer)
        return messages_of(messages)
    num_known = conversations.begin(marks)
    conversations.end(marks, answer)
    return messages_of(messages[num_known:])


def _mark(recorded: Any, known: dict[bytes, str]) -> str:
    digest = hashlib.blake2b(msgspec.json.encode(recorded), digest_size=16).digest()
    mark = known.get(digest)
    if mark is None:
        mark = known[digest] = fingerprint(messages_of([recorded])[0])
    return mark


def _output(span: Span, around: Span | None) -> Message | None:
    for source in (span, around):
        if source is not None and "output" in source.attributes:
            said = messages_of(source.attributes["output"])
            answers = [each for each in said if each["role"] == "assistant"]
            if answers:
                return _merge(answers)
            if said:
                return {**said[0], "role": "assistant"}
    return None


def _merge(answers: Sequence[Message]) -> Message:
    """Returns an answer that an API gives in several items (reasoning, text, calls) as one message."""
    return {**answers[0], "parts": [part for answer in answers for part in answer["parts"]]}


class _ToolSpans:
    """The spans of tools, each of which answers one call, in time order.

    By its id, else by name and arguments; by its name alone where its arguments are not recorded.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self.spans = list(spans)
        self._by_id: dict[str, deque[Span]] = {}
        """In time order: programs that replay a run use an id again."""
        self._by_content: dict[tuple[str, str | None], deque[Span]] = {}
        for span in self.spans:
            call_id = span.attributes.get("call_id")
            if isinstance(call_id, str):
                self._by_id.setdefault(call_id, deque()).append(span)
            else:
                recorded = "input" in span.attributes
                content = _content(span.name, span.attributes["input"]) if recorded else (span.name, None)
                self._by_content.setdefault(content, deque()).append(span)

    def answer(self, call_id: object, name: str, arguments: object, after: datetime) -> Span | None:
        """Returns the span of a call that was asked for ``after`` a time, which never goes back between two calls."""
        if isinstance(call_id, str) and self._by_id.get(call_id):
            return self._by_id[call_id].popleft()
        for content in (_content(name, arguments), (name, None)):
            waiting = self._by_content.get(content, ())
            while waiting:
                span = waiting.popleft()
                if span.ended_at >= after:
                    return span
        return None


def _content(name: str, arguments: object) -> tuple[str, str]:
    value = parsed(arguments)
    return name, "" if value in (None, {}, "") else sorted_text(value)


def _step(span: Span, messages: list[Message], output: Message | None, calls: list[ToolCall]) -> Step:
    return Step(
        span_id=span.span_id,
        model=span.name,
        messages=messages,
        output=output,
        tool_calls=calls,
        error=span.error,
        attributes={name: value for name, value in span.attributes.items() if name not in ("input", "output")},
        started_at=span.started_at,
        ended_at=span.ended_at,
    )


def _calls_of(output: Message | None) -> list[Part]:
    return [] if output is None else tool_calls_of(output)


def _answer_call(part: Part, tools: _ToolSpans, after: datetime, responses: Mapping[str, Any]) -> ToolCall:
    """Returns a call that was asked for ``after`` a time, with what is known of its result."""
    call_id, name, arguments = part.get("id"), str(part.get("name")), part.get("arguments")
    span = tools.answer(call_id, name, arguments, after)
    call_id = call_id if isinstance(call_id, str) else None
    if span is not None:
        return _tool_call(span, call_id)
    return ToolCall(call_id=call_id, name=name, arguments=arguments, result=responses.get(call_id or ""))


def _tool_call(span: Span, call_id: str | None) -> ToolCall:
    known = span.attributes.get("duration_unknown") is not True
    return ToolCall(
        call_id=call_id,
        name=span.name,
        arguments=parsed(span.attributes.get("input")),
        result=span.attributes.get("output"),
        error=(span.error or "failed") if span.status is SpanStatus.ERROR else None,
        duration_ms=(span.ended_at - span.started_at).total_seconds() * 1000 if known else None,
        span_id=span.span_id,
    )


def _tool_step(span: Span) -> Step:
    call_id = span.attributes.get("call_id")
    call = _tool_call(span, call_id if isinstance(call_id, str) else None)
    return msgspec.structs.replace(_step(span, [], None, [call]), model="", error=call.error)
