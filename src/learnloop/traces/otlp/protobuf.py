"""Reads OTLP requests in protobuf; each attribute is touched once, which is what its speed depends on."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from learnloop.core.errors import FormatError
from learnloop.traces.otlp.wire import (
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    Rejections,
    WireEvent,
    WireLink,
    WireLog,
    WireLogs,
    WireScope,
    WireSpan,
    WireTraces,
    finite,
    span_fault,
)

M = TypeVar("M", bound=Message)

_EXTRA = ("trace_state", "dropped_attributes_count", "dropped_events_count", "dropped_links_count")
_NO_TRACE = bytes(TRACE_ID_BYTES)
_NO_SPAN = bytes(SPAN_ID_BYTES)


def read_traces(body: bytes) -> WireTraces:
    """Returns what an ``ExportTraceServiceRequest`` holds.

    Raises:
        FormatError: the bytes are not such a request.
    """
    groups = _parse(body, ExportTraceServiceRequest).resource_spans
    rejections = Rejections()
    parts = _parts((group.resource, group.scope_spans) for group in groups)
    return WireTraces([span for part, origin in parts for span in _spans(part.spans, origin, rejections)], rejections)


def read_logs(body: bytes) -> WireLogs:
    """Returns what an ``ExportLogsServiceRequest`` holds.

    Raises:
        FormatError: the bytes are not such a request.
    """
    groups = _parse(body, ExportLogsServiceRequest).resource_logs
    parts = _parts((group.resource, group.scope_logs) for group in groups)
    return WireLogs([_log(record, origin) for part, origin in parts for record in part.log_records], Rejections())


def _parts(groups: Iterable[tuple[Any, Iterable[Any]]]) -> Iterator[tuple[Any, WireScope]]:
    """Yields what each instrument of each sender sent, and who they are."""
    for resource, parts in groups:
        attributes = _attributes(resource.attributes)
        for part in parts:
            yield part, WireScope(attributes, _scope(part.scope))


def _parse(body: bytes, kind: type[M]) -> M:
    try:
        request: M = kind.FromString(body)
        return request
    except DecodeError as error:
        name = kind.DESCRIPTOR.name
        if body.lstrip()[:1] in (b"{", b"["):
            raise FormatError(
                "the body is JSON under the header of protobuf; send Content-Type: application/json, or an encoded "
                f"{name}"
            ) from error
        raise FormatError(f"the body is no {name} in protobuf ({error})") from error


def _spans(spans: Iterable[Any], origin: WireScope, rejections: Rejections) -> Iterable[WireSpan]:
    for span in spans:
        trace_id, span_id = span.trace_id, span.span_id
        fits = len(trace_id) == TRACE_ID_BYTES and len(span_id) == SPAN_ID_BYTES
        if not fits or trace_id == _NO_TRACE or span_id == _NO_SPAN:
            rejections.add(span_fault(trace_id.hex(), span_id.hex()) or "its ids are no ids")
            continue
        status = span.status
        parent_id = span.parent_span_id
        yield WireSpan(
            trace_id.hex(),
            span_id.hex(),
            "" if parent_id == _NO_SPAN else parent_id.hex(),
            span.name,
            span.kind,
            span.flags,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            _attributes(span.attributes),
            [WireEvent(each.name, each.time_unix_nano, _attributes(each.attributes)) for each in span.events],
            [WireLink(each.trace_id.hex(), each.span_id.hex(), _attributes(each.attributes)) for each in span.links],
            status.code,
            status.message,
            _extra(span),
            origin,
        )


def _extra(span: Any) -> dict[str, Any]:
    return {name: value for name in _EXTRA if (value := getattr(span, name))}


def _log(record: Any, origin: WireScope) -> WireLog:
    attributes = _attributes(record.attributes)
    return WireLog(
        record.trace_id.hex(),
        record.span_id.hex(),
        record.time_unix_nano or record.observed_time_unix_nano,
        record.event_name or str(attributes.get("event.name") or ""),
        _value(record.body),
        attributes,
        origin,
    )


def _scope(scope: Any) -> dict[str, Any]:
    found = {"name": scope.name, "version": scope.version, **_attributes(scope.attributes)}
    return {name: value for name, value in found.items() if value != ""}


def _attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    """Returns what an ``AnyValue`` holds; bytes, which JSON does not have, as ``{"base64": ...}``."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind == "int_value":
        return value.int_value
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    if kind == "bytes_value":
        return {"base64": base64.b64encode(value.bytes_value).decode()}
    found = getattr(value, kind)
    return finite(found) if kind == "double_value" else found
