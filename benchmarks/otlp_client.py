"""Sends the same spans to any OTLP receiver, and measures until the last of them is acknowledged.

The spans are those of agents' runs: GenAI attributes with messages, a root, an agent, and calls of a model and of tools
below it, about 1 KB a span on the wire.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

SPANS_PER_TRACE = 10
_QUESTION = "Which flights leave Paris for Berlin on Monday morning, and what do they cost? " * 3


def make_requests(num_requests: int, spans_per_request: int) -> list[bytes]:
    """Returns the bodies of so many requests with so many spans each, in whole traces; no two ids are the same."""
    return [_request(spans_per_request // SPANS_PER_TRACE).SerializeToString() for _ in range(num_requests)]


def send_all(
    url: str, bodies: Sequence[bytes], *, num_threads: int = 4, headers: Mapping[str, str] | None = None
) -> float:
    """Returns the seconds until all of ``bodies`` are acknowledged, sent by so many clients at once.

    Raises:
        RuntimeError: one was refused.
    """
    refused: list[str] = []
    share = [bodies[number::num_threads] for number in range(num_threads)]
    threads = [threading.Thread(target=_send, args=(url, each, headers or {}, refused)) for each in share]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    if refused:
        raise RuntimeError(f"{len(refused)} requests were refused, the first with {refused[0]}")
    return seconds


def _send(url: str, bodies: Sequence[bytes], headers: Mapping[str, str], refused: list[str]) -> None:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
    given = {"content-type": "application/x-protobuf", **headers}
    try:
        for body in bodies:
            connection.request("POST", place.path, body, given)
            answer = connection.getresponse()
            data = answer.read()
            if answer.status != 200:
                refused.append(f"{answer.status}: {data[:200]!r}")
    except OSError as error:
        refused.append(repr(error))
    finally:
        connection.close()


def _request(num_traces: int) -> ExportTraceServiceRequest:
    resource = ResourceSpans()
    _set(resource.resource, "service.name", "bench")
    scope = resource.scope_spans.add()
    scope.scope.name = "bench"
    for _ in range(num_traces):
        scope.spans.extend(_trace())
    return ExportTraceServiceRequest(resource_spans=[resource])


def _trace() -> list[Span]:
    trace_id = os.urandom(16)
    root = _span(trace_id, None, "invoke_agent booker", 0)
    _set(root, "gen_ai.operation.name", "invoke_agent")
    _set(root, "gen_ai.agent.name", "booker")
    spans = [root]
    messages = [{"role": "user", "parts": [{"type": "text", "content": _QUESTION}]}]
    for number in range(1, SPANS_PER_TRACE):
        if number % 2:
            span = _span(trace_id, root.span_id, "chat m", number)
            said = {"role": "assistant", "parts": [{"type": "text", "content": f"answer {number}"}]}
            _set(span, "gen_ai.operation.name", "chat")
            _set(span, "gen_ai.provider.name", "openai")
            _set(span, "gen_ai.request.model", "m")
            _set(span, "gen_ai.response.id", f"r{number}")
            _set(span, "gen_ai.usage.input_tokens", 120)
            _set(span, "gen_ai.usage.output_tokens", 17)
            _set(span, "gen_ai.input.messages", json.dumps(messages))
            _set(span, "gen_ai.output.messages", json.dumps([said]))
        else:
            span = _span(trace_id, root.span_id, "execute_tool search", number)
            _set(span, "gen_ai.operation.name", "execute_tool")
            _set(span, "gen_ai.tool.name", "search")
            _set(span, "gen_ai.tool.call.arguments", json.dumps({"query": _QUESTION}))
            _set(span, "gen_ai.tool.call.result", _QUESTION)
        spans.append(span)
    return spans


def _span(trace_id: bytes, parent: bytes | None, name: str, number: int) -> Span:
    begin = time.time_ns() + number * 1_000_000
    span = Span(trace_id=trace_id, span_id=os.urandom(8), name=name, kind=Span.SPAN_KIND_INTERNAL)
    span.start_time_unix_nano, span.end_time_unix_nano = begin, begin + 900_000
    if parent is not None:
        span.parent_span_id = parent
    return span


def _set(target: object, key: str, value: str | int) -> None:
    attribute = target.attributes.add()  # type: ignore[attr-defined]
    attribute.key = key
    if isinstance(value, int):
        attribute.value.int_value = value
    else:
        attribute.value.string_value = value
