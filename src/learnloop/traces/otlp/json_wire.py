"""Reads OTLP requests in JSON, leniently.

Ids are hex of any case, 64-bit numbers text or numbers, enums numbers or names, keys lowerCamelCase or snake_case;
unknown fields are ignored.

Source: OpenTelemetry Protocol, "JSON Protobuf Encoding".
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from learnloop.core.decoding import decode_json
from learnloop.core.errors import FormatError
from learnloop.traces.otlp.wire import (
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

_MAX_DEPTH = 64
_MAX_UINT64 = 2**64 - 1
_KINDS = {"INTERNAL": 1, "SERVER": 2, "CLIENT": 3, "PRODUCER": 4, "CONSUMER": 5}
_CODES = {"OK": 1, "ERROR": 2}
Object = Mapping[str, Any]
T = TypeVar("T")


def read_traces(body: bytes) -> WireTraces:
    """Returns what an ``ExportTraceServiceRequest`` in JSON holds.

    Raises:
        FormatError: the bytes are not such a request.
    """
    return traces_of(_decode(body))


def read_logs(body: bytes) -> WireLogs:
    """Returns what an ``ExportLogsServiceRequest`` in JSON holds.

    Raises:
        FormatError: the bytes are not such a request.
    """
    return logs_of(_decode(body))


def traces_of(request: Object) -> WireTraces:
    """Returns the spans of a decoded request.

    Raises:
        FormatError: what should be a list or an object is not one.
    """
    return WireTraces(*_items(request, ("resourceSpans", "scopeSpans", "spans"), _span))


def logs_of(request: Object) -> WireLogs:
    """Returns the log records of a decoded request.

    Raises:
        FormatError: what should be a list or an object is not one.
    """
    return WireLogs(*_items(request, ("resourceLogs", "scopeLogs", "logRecords"), _log))


def _items(
    request: Object, names: tuple[str, str, str], read: Callable[[Object, WireScope], T]
) -> tuple[list[T], Rejections]:
    """Returns the spans or log records of a request, and which of them cannot be read."""
    rejections = Rejections()
    found: list[T] = []
    for origin, part in _parts(request, *names[:2]):
        for raw in _objects(part, names[2]):
            try:
                found.append(read(raw, origin))
            except FormatError as error:
                rejections.add(str(error))
    return found, rejections


def _decode(body: bytes) -> Object:
    is_text = body.lstrip()[:1] in (b"{", b"[")
    hint = "" if is_text else "; is it protobuf? Send Content-Type: application/x-protobuf"
    value = decode_json(body, "the body is not JSON", hint=hint)
    if not isinstance(value, dict):
        raise FormatError(f"the body is a JSON {type(value).__name__}, not an object")
    return value


def _parts(request: Object, groups: str, parts: str) -> Iterator[tuple[WireScope, Object]]:
    for group in _objects(request, groups):
        resource = _attributes(_object(group, "resource"))
        for part in _objects(group, parts):
            scope = _object(part, "scope")
            named = {name: _text(scope, name) for name in ("name", "version") if _text(scope, name)}
            yield WireScope(resource, {**named, **_attributes(scope)}), part


def _span(raw: Object, origin: WireScope) -> WireSpan:
    trace_id, span_id = _id(raw, "traceId"), _id(raw, "spanId")
    fault = span_fault(trace_id, span_id)
    if fault is not None:
        raise FormatError(fault)
    parent_id = _id(raw, "parentSpanId")
    status = _object(raw, "status")
    return WireSpan(
        trace_id,
        span_id,
        "" if parent_id.count("0") == len(parent_id) else parent_id,
        _text(raw, "name"),
        _enum(raw, "kind", "SPAN_KIND_", _KINDS),
        _uint(raw, "flags"),
        _uint(raw, "startTimeUnixNano"),
        _uint(raw, "endTimeUnixNano"),
        _attributes(raw),
        [_event(each) for each in _objects(raw, "events")],
        [WireLink(_id(each, "traceId"), _id(each, "spanId"), _attributes(each)) for each in _objects(raw, "links")],
        _enum(status, "code", "STATUS_CODE_", _CODES),
        _text(status, "message"),
        _extra(raw),
        origin,
    )


def _extra(raw: Object) -> dict[str, Any]:
    found: dict[str, Any] = {"trace_state": _text(raw, "traceState")}
    for name in ("Attributes", "Events", "Links"):
        found[f"dropped_{name.lower()}_count"] = _uint(raw, f"dropped{name}Count")
    return {name: value for name, value in found.items() if value}


def _event(raw: Object) -> WireEvent:
    return WireEvent(_text(raw, "name"), _uint(raw, "timeUnixNano"), _attributes(raw))


def _log(raw: Object, origin: WireScope) -> WireLog:
    attributes = _attributes(raw)
    return WireLog(
        _id(raw, "traceId"),
        _id(raw, "spanId"),
        _uint(raw, "timeUnixNano") or _uint(raw, "observedTimeUnixNano"),
        _text(raw, "eventName") or str(attributes.get("event.name") or ""),
        _value(_field(raw, "body"), 0),
        attributes,
        origin,
    )


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


_SNAKE = {
    name: _snake(name)
    for name in (
        "resourceSpans", "scopeSpans", "resourceLogs", "scopeLogs", "logRecords", "traceId", "spanId", "parentSpanId",
        "startTimeUnixNano", "endTimeUnixNano", "timeUnixNano", "observedTimeUnixNano", "traceState", "eventName",
        "droppedAttributesCount", "droppedEventsCount", "droppedLinksCount",
        "stringValue", "intValue", "boolValue", "doubleValue", "arrayValue", "kvlistValue", "bytesValue",
    )
}  # fmt: skip


def _field(raw: Object, name: str) -> Any:
    value = raw.get(name)
    return raw.get(_SNAKE[name]) if value is None and name in _SNAKE else value


def _object(raw: Object, name: str) -> Object:
    value = _field(raw, name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FormatError(f"{name} is a {type(value).__name__}, not an object")
    return value


def _objects(raw: Object, name: str) -> list[Object]:
    value = _field(raw, name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise FormatError(f"{name} is not a list of objects")
    return value


def _text(raw: Object, name: str) -> str:
    value = _field(raw, name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise FormatError(f"{name} is a {type(value).__name__}, not text")
    return value


def _id(raw: Object, name: str) -> str:
    return _text(raw, name).lower()


def _uint(raw: Object, name: str) -> int:
    value = _field(raw, name)
    if value is None or value == "":
        return 0
    number = _integer(value)
    if number is None or not 0 <= number <= _MAX_UINT64:
        raise FormatError(f"{name} is {str(value)[:64]!r}; a whole number from 0 to 2^64 - 1 is needed")
    return number


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    try:
        return int(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _enum(raw: Object, name: str, prefix: str, names: Mapping[str, int]) -> int:
    value = _field(raw, name)
    if value is None:
        return 0
    if isinstance(value, str) and not value.isdecimal():
        return names.get(value.removeprefix(prefix), 0)
    return _integer(value) or 0


def _attributes(raw: Object) -> dict[str, Any]:
    pairs = _objects(raw, "attributes")
    return {_text(pair, "key"): _value(pair.get("value"), 0) for pair in pairs}


def _value(raw: Any, depth: int) -> Any:
    """Returns what an ``AnyValue`` holds, 0, False and empty values included; bytes as ``{"base64": ...}``."""
    if not isinstance(raw, dict):
        return raw
    if depth > _MAX_DEPTH:
        return f"... [deeper than {_MAX_DEPTH}]"
    for name, read in _READERS.items():
        value = _field(raw, name)
        if value is not None:
            return read(value, depth) if read else value
    return None


def _int_value(value: Any, depth: int) -> Any:
    number = _integer(value)
    return number if number is not None and -(2**63) <= number < 2**63 else str(value)


def _double_value(value: Any, depth: int) -> Any:
    try:
        return value if isinstance(value, bool) else finite(float(value))
    except (TypeError, ValueError, OverflowError):
        return value


def _values(value: Any) -> list[Any]:
    items = value.get("values") if isinstance(value, dict) else value
    return items if isinstance(items, list) else []


def _array_value(value: Any, depth: int) -> Any:
    return [_value(each, depth + 1) for each in _values(value)]


def _kvlist_value(value: Any, depth: int) -> Any:
    pairs = (each for each in _values(value) if isinstance(each, dict))
    return {str(each.get("key", "")): _value(each.get("value"), depth + 1) for each in pairs}


def _bytes_value(value: Any, depth: int) -> Any:
    if not isinstance(value, str):
        return value
    try:
        data = base64.b64decode(value.replace("-", "+").replace("_", "/") + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return value
    return {"base64": base64.b64encode(data).decode()}


_READERS: Mapping[str, Callable[[Any, int], Any] | None] = {
    "stringValue": None,
    "intValue": _int_value,
    "boolValue": None,
    "doubleValue": _double_value,
    "arrayValue": _array_value,
    "kvlistValue": _kvlist_value,
    "bytesValue": _bytes_value,
}
"""What reads each kind of ``AnyValue``, which lies so deep; None: it is taken as it is."""
