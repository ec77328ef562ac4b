"""Builds OTLP requests in both encodings from one description, with nothing of the product's own decoding."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from tests.traces.shared_traces import shared_trace

T0 = 1_790_000_000_000_000_000
SECOND = 1_000_000_000
Raw = dict[str, Any]


def trace_id(number: int) -> str:
    return f"{number:032x}"


def span_id(number: int) -> str:
    return f"{number:016x}"


def ours(trace: int, span: int) -> str:
    return f"{trace_id(trace)}.{span_id(span)}"


def span(
    trace: int = 1,
    number: int = 1,
    parent: int | None = None,
    name: str = "span",
    attributes: Raw | None = None,
    **more: Any,
) -> Raw:
    """Returns a span as plain values: ids in hex, times in nanoseconds, attributes as Python has them."""
    start = T0 + number * SECOND
    return {
        "trace_id": trace_id(trace),
        "span_id": span_id(number),
        "parent_id": "" if parent is None else span_id(parent),
        "name": name,
        "start": start,
        "end": start + SECOND // 2,
        "attributes": attributes or {},
        "events": [],
        "links": [],
        "status": (0, ""),
        "kind": 1,
        "flags": 256,
        **more,
    }


def event(name: str, attributes: Raw, time: int = T0) -> Raw:
    return {"name": name, "attributes": attributes, "time": time}


def log(trace: int | None, number: int | None, name: str, attributes: Raw, body: Any = None, time: int = T0) -> Raw:
    return {
        "trace_id": "" if trace is None else trace_id(trace),
        "span_id": "" if number is None else span_id(number),
        "name": name,
        "attributes": attributes,
        "body": body,
        "time": time,
    }


# ---------------------------------------------------------------- protobuf


def pb_value(value: Any) -> AnyValue:
    made = AnyValue()
    if value is None:
        return made
    if isinstance(value, bool):
        made.bool_value = value
    elif isinstance(value, int):
        made.int_value = value
    elif isinstance(value, float):
        made.double_value = value
    elif isinstance(value, str):
        made.string_value = value
    elif isinstance(value, bytes):
        made.bytes_value = value
    elif isinstance(value, dict):
        made.kvlist_value.values.extend(pb_pairs(value))
        made.kvlist_value.SetInParent()
    else:
        made.array_value.values.extend(pb_value(each) for each in value)
        made.array_value.SetInParent()
    return made


def pb_pairs(values: Raw) -> list[KeyValue]:
    return [KeyValue(key=key, value=pb_value(value)) for key, value in values.items()]


def traces_pb(spans: Iterable[Raw], resource: Raw | None = None) -> bytes:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.extend(pb_pairs(resource or {}))
    scope = group.scope_spans.add()
    scope.scope.name = "test"
    for raw in spans:
        made = scope.spans.add()
        made.trace_id = bytes.fromhex(raw["trace_id"])
        made.span_id = bytes.fromhex(raw["span_id"])
        made.parent_span_id = bytes.fromhex(raw["parent_id"])
        made.name, made.kind, made.flags = raw["name"], raw["kind"], raw["flags"]
        made.start_time_unix_nano, made.end_time_unix_nano = raw["start"], raw["end"]
        made.attributes.extend(pb_pairs(raw["attributes"]))
        made.status.code, made.status.message = raw["status"]
        for each in raw["events"]:
            made.events.add(name=each["name"], time_unix_nano=each["time"], attributes=pb_pairs(each["attributes"]))
        for linked_trace, linked_span in raw["links"]:
            made.links.add(trace_id=bytes.fromhex(linked_trace), span_id=bytes.fromhex(linked_span))
    return request.SerializeToString()


def logs_pb(logs: Iterable[Raw], resource: Raw | None = None) -> bytes:
    request = ExportLogsServiceRequest()
    group = request.resource_logs.add()
    group.resource.attributes.extend(pb_pairs(resource or {}))
    scope = group.scope_logs.add()
    for raw in logs:
        made = scope.log_records.add()
        made.trace_id, made.span_id = bytes.fromhex(raw["trace_id"]), bytes.fromhex(raw["span_id"])
        made.event_name, made.time_unix_nano = raw["name"], raw["time"]
        made.attributes.extend(pb_pairs(raw["attributes"]))
        made.body.CopyFrom(pb_value(raw["body"]))
    return request.SerializeToString()


# ---------------------------------------------------------------- JSON


def json_value(value: Any) -> Raw:
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {
            "doubleValue": value
            if value - value == 0
            else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
        }
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": json_pairs(value)}}
    return {"arrayValue": {"values": [json_value(each) for each in value]}}


def json_pairs(values: Raw) -> list[Raw]:
    return [{"key": key, "value": json_value(value)} for key, value in values.items()]


def span_object(raw: Raw) -> Raw:
    """Returns a span as OTLP/JSON."""
    return {
        "traceId": raw["trace_id"],
        "spanId": raw["span_id"],
        "parentSpanId": raw["parent_id"],
        "name": raw["name"],
        "kind": raw["kind"],
        "flags": raw["flags"],
        "startTimeUnixNano": str(raw["start"]),
        "endTimeUnixNano": str(raw["end"]),
        "attributes": json_pairs(raw["attributes"]),
        "events": [
            {"name": e["name"], "timeUnixNano": str(e["time"]), "attributes": json_pairs(e["attributes"])}
            for e in raw["events"]
        ],
        "links": [{"traceId": trace, "spanId": linked} for trace, linked in raw["links"]],
        "status": {"code": raw["status"][0], "message": raw["status"][1]},
    }


def traces_object(spans: Iterable[Raw], resource: Raw | None = None) -> Raw:
    parts = [{"scope": {"name": "test"}, "spans": [span_object(each) for each in spans]}]
    return {"resourceSpans": [{"resource": {"attributes": json_pairs(resource or {})}, "scopeSpans": parts}]}


def traces_json(spans: Iterable[Raw], resource: Raw | None = None) -> bytes:
    return json.dumps(traces_object(spans, resource)).encode()


def logs_object(logs: Iterable[Raw], resource: Raw | None = None) -> Raw:
    records = [
        {
            "traceId": raw["trace_id"],
            "spanId": raw["span_id"],
            "eventName": raw["name"],
            "timeUnixNano": str(raw["time"]),
            "attributes": json_pairs(raw["attributes"]),
            "body": json_value(raw["body"]),
        }
        for raw in logs
    ]
    group = {"resource": {"attributes": json_pairs(resource or {})}, "scopeLogs": [{"logRecords": records}]}
    return {"resourceLogs": [group]}


def logs_json(logs: Iterable[Raw], resource: Raw | None = None) -> bytes:
    return json.dumps(logs_object(logs, resource)).encode()


# ---------------------------------------------------------------- recorded samples


def recorded(name: str) -> bytes:
    """Returns a recorded request of a real instrument; skips the test where the samples are not there."""
    return shared_trace(f"otlp/{name}").read_bytes()
