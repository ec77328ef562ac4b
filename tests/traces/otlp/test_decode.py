"""The wire: both encodings give the same, odd values come through, what cannot be read is said."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from learnloop.core.errors import FormatError
from learnloop.traces.otlp import decode
from learnloop.traces.otlp.wire import Rejections, WireSpan, WireTraces
from tests.traces.otlp import requests as otlp
from tests.traces.otlp.requests import SECOND, T0, event, log, span, span_id, trace_id

ODD: dict[str, Any] = {
    "zero": 0,
    "false": False,
    "empty": "",
    "none": None,
    "list": [],
    "object": {},
    "float": 0.0,
    "large": 2**63 - 1,
    "small": -(2**63),
    "nested": {"a": [1, {"b": [None, "x", 0, False]}], "c": {"d": {}}},
    "bytes": b"\x00\xff",
    "unicode": "é\u0000\U0001f600",
}


def both(spans: list[dict[str, Any]], resource: dict[str, Any] | None = None) -> WireTraces:
    """Returns what both encodings of spans give, which must be the same."""
    from_pb = decode.decode_traces(otlp.traces_pb(spans, resource), "protobuf")
    from_json = decode.decode_traces(otlp.traces_json(spans, resource), "json")
    assert from_pb.spans == from_json.spans
    return from_pb


def one(raw: dict[str, Any]) -> WireSpan:
    return decode.decode_traces(json.dumps(raw).encode(), "json").spans[0]


def test_both_encodings_give_the_same() -> None:
    spans = [
        span(1, 1, attributes=ODD, status=(2, "no"), kind=3),
        span(1, 2, 1, events=[event("e", {"n": 0})], links=[(trace_id(7), span_id(8))]),
    ]
    first, second = both(spans, {"service.name": "s"}).spans
    expected = {**ODD, "bytes": {"base64": "AP8="}}
    assert first.attributes == expected
    assert (first.status, first.message, first.kind, first.parent_id) == (2, "no", 3, "")
    assert first.origin.resource == {"service.name": "s"}
    assert first.origin.scope == {"name": "test"}
    assert (second.start, second.end) == (T0 + 2 * SECOND, T0 + 2 * SECOND + SECOND // 2)
    assert second.parent_id == span_id(1)
    assert second.events[0].attributes == {"n": 0}
    assert (second.links[0].trace_id, second.links[0].span_id) == (trace_id(7), span_id(8))


@pytest.mark.parametrize("name", ["otlp_genai", "otlp_openinference"])
def test_recorded_requests_are_the_same_in_both_encodings(name: str) -> None:
    from_json = decode.decode_traces(otlp.recorded(f"{name}.otlp.json"), "json")
    from_pb = decode.decode_traces(otlp.recorded(f"{name}.pb"), "protobuf")
    assert from_json.spans == from_pb.spans
    assert len(from_pb.spans) == {"otlp_genai": 5, "otlp_openinference": 10}[name]


def test_hex_ids_of_any_case_everywhere() -> None:
    """Also in links, where MLflow does not convert them, and in log records."""
    raw = otlp.traces_object([span(0xABC, 0xDEF, 0xFED, links=[("AB" * 16, "CD" * 8)])])
    text = json.dumps(raw)
    for hexed in (trace_id(0xABC), span_id(0xDEF), span_id(0xFED)):
        text = text.replace(hexed, hexed.upper())
    found = decode.decode_traces(text.encode(), "json").spans[0]
    assert (found.trace_id, found.span_id, found.parent_id) == (trace_id(0xABC), span_id(0xDEF), span_id(0xFED))
    assert (found.links[0].trace_id, found.links[0].span_id) == ("ab" * 16, "cd" * 8)
    body = otlp.logs_json([log(0xABC, 0xDEF, "e", {})]).replace(b"abc", b"ABC")
    assert decode.decode_logs(body, "json").logs[0].trace_id == trace_id(0xABC)


def test_numbers_as_numbers_names_of_enums_and_snake_case() -> None:
    raw = {
        "resource_spans": [
            {
                "scope_spans": [
                    {
                        "spans": [
                            {
                                "trace_id": trace_id(1),
                                "span_id": span_id(1),
                                "start_time_unix_nano": T0,
                                "end_time_unix_nano": float(T0),
                                "kind": "SPAN_KIND_CLIENT",
                                "status": {"code": "STATUS_CODE_ERROR"},
                                "attributes": [
                                    {"key": "n", "value": {"int_value": 7}},
                                    {"key": "o", "value": {"kvlist_value": {"values": [{"key": "k", "value": {}}]}}},
                                ],
                                "from_the_future": {"a": 1},
                            }
                        ]
                    }
                ]
            }
        ]
    }
    found = one(raw)
    assert (found.start, found.end, found.kind, found.status) == (T0, T0, 3, 2)
    assert found.attributes == {"n": 7, "o": {"k": None}}


def test_numbers_that_json_does_not_have_become_text() -> None:
    spans = [span(attributes={"a": float("nan"), "b": float("inf"), "c": float("-inf")})]
    assert both(spans).spans[0].attributes == {"a": "nan", "b": "inf", "c": "-inf"}
    raw = otlp.traces_object([span()])
    raw["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"] = [
        {"key": "big", "value": {"intValue": str(10**30)}},
        {"key": "odd", "value": {"intValue": "seven"}},
        {"key": "bare", "value": "text"},
    ]
    assert one(raw).attributes == {"big": str(10**30), "odd": "seven", "bare": "text"}


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_a_span_without_an_id_is_rejected_and_the_others_are_not(encoding: Any) -> None:
    bad = [
        {**span(), "trace_id": ""},
        {**span(), "span_id": "00" * 8},
        {**span(), "trace_id": "ab" * 15},
        {**span(), "span_id": "ab" * 16},
    ]
    spans = [span(1, 1), *bad, span(1, 2)]
    body = otlp.traces_pb(spans) if encoding == "protobuf" else otlp.traces_json(spans)
    found = decode.decode_traces(body, encoding)
    assert [each.span_id for each in found.spans] == [span_id(1), span_id(2)]
    assert found.rejections.number == 4
    message = found.rejections.message()
    assert "trace id is missing" in message
    assert "all zero" in message
    assert f"'{'ab' * 15}' is not 32 hex digits" in message


def test_ids_in_base64_are_rejected_with_the_reason() -> None:
    """What protobuf's own JSON writes; read as hex it would be another id of 24 bytes."""
    raw = otlp.traces_object([span()])
    raw["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"] = "VZWqT/KhGu41WbOYu2H1CQ=="
    found = decode.decode_traces(json.dumps(raw).encode(), "json")
    assert (found.spans, found.rejections.number) == ([], 1)
    assert "not base64" in found.rejections.message()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("startTimeUnixNano", "-1", "startTimeUnixNano is '-1'"),
        ("endTimeUnixNano", str(2**64), "2^64 - 1"),
        ("startTimeUnixNano", "soon", "whole number"),
        ("name", 7, "name is a int, not text"),
        ("attributes", {"a": 1}, "attributes is not a list of objects"),
        ("status", [], "status is a list"),
        ("events", [1], "events is not a list of objects"),
    ],
)
def test_a_malformed_span_is_rejected_alone(field: str, value: Any, said: str) -> None:
    raw = otlp.traces_object([span(1, 1), span(1, 2)])
    raw["resourceSpans"][0]["scopeSpans"][0]["spans"][0][field] = value
    found = decode.decode_traces(json.dumps(raw).encode(), "json")
    assert (len(found.spans), found.rejections.number) == (1, 1)
    assert said in found.rejections.message()


def test_json_under_the_header_of_protobuf_says_so() -> None:
    """MLflow issue 18927: "cannot parse invalid wire-format data" helps nobody."""
    with pytest.raises(FormatError, match="JSON under the header of protobuf"):
        decode.decode_traces(otlp.traces_json([span()]), "protobuf")
    with pytest.raises(FormatError, match="is it protobuf"):
        decode.decode_traces(otlp.traces_pb([span()]), "json")


@pytest.mark.parametrize("body", [b"\x07\xff", b"\x0a\xff\xff", b"\xff" * 40])
def test_bytes_that_are_no_protobuf(body: bytes) -> None:
    with pytest.raises(FormatError, match="no ExportTraceServiceRequest"):
        decode.decode_traces(body, "protobuf")
    with pytest.raises(FormatError, match="no ExportLogsServiceRequest"):
        decode.decode_logs(body, "protobuf")


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"1", b"{", b'{"resourceSpans": {}}', b'{"resourceSpans": [1]}', b'"\xff"', b"[" * 100_000],
    ids=range(8),
)
def test_bytes_that_are_no_json_request(body: bytes) -> None:
    with pytest.raises(FormatError):
        decode.decode_traces(body, "json")


def test_empty_requests_hold_nothing() -> None:
    for decode_any in (decode.decode_traces, decode.decode_logs):
        assert decode_any(b"", "protobuf").rejections.number == 0
        assert decode_any(b"{}", "json").rejections.number == 0


def test_deep_values_are_cut_not_followed() -> None:
    inner: Any = {"stringValue": "x"}
    for _ in range(200):
        inner = {"arrayValue": {"values": [inner]}}
    raw = otlp.traces_object([span()])
    raw["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"] = [{"key": "deep", "value": inner}]
    assert "deeper than" in json.dumps(one(raw).attributes["deep"])


def test_answers_say_nothing_where_all_is_well() -> None:
    assert decode.encode_traces_answer(Rejections(), "json") == b"{}"
    assert decode.encode_logs_answer(Rejections(), "json") == b"{}"
    assert decode.encode_traces_answer(Rejections(), "protobuf") == b""
    assert not ExportTraceServiceResponse.FromString(b"").HasField("partial_success")


def test_answers_say_what_was_rejected() -> None:
    rejections = Rejections()
    for number in range(30):
        rejections.add(f"reason {number}")
    traces = ExportTraceServiceResponse.FromString(decode.encode_traces_answer(rejections, "protobuf"))
    assert traces.partial_success.rejected_spans == 30
    assert "reason 19" in traces.partial_success.error_message
    assert "reason 20" not in traces.partial_success.error_message
    logs = ExportLogsServiceResponse.FromString(decode.encode_logs_answer(rejections, "protobuf"))
    assert logs.partial_success.rejected_log_records == 30
    said = json.loads(decode.encode_traces_answer(rejections, "json"))
    assert said["partialSuccess"]["rejectedSpans"] == "30"
    assert json.loads(decode.encode_logs_answer(rejections, "json"))["partialSuccess"]["rejectedLogRecords"] == "30"


@pytest.mark.parametrize("size", [0, 1, 127, 128, 20_000])
def test_a_status_is_one_that_others_can_read(size: int) -> None:
    status_pb2 = pytest.importorskip("google.rpc.status_pb2")
    found = status_pb2.Status.FromString(decode.encode_status(3, "é" * size, "protobuf"))
    assert (found.code, found.message) == (3, "é" * size)
    assert json.loads(decode.encode_status(3, "no", "json")) == {"code": 3, "message": "no"}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_requests_are_read_or_refused(data: st.DataObject) -> None:
    """Cut off and flipped at any place: a request or a FormatError, never anything else."""
    encoding: Any = data.draw(st.sampled_from(["protobuf", "json"]))
    spans = [
        span(1, 1, attributes=ODD, events=[event("e", {"k": [1]})]),
        span(1, 2, 1, links=[(trace_id(7), span_id(8))]),
    ]
    body = bytearray(otlp.traces_pb(spans) if encoding == "protobuf" else otlp.traces_json(spans))
    for _ in range(data.draw(st.integers(0, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    for decode_any in (decode.decode_traces, decode.decode_logs):
        with contextlib.suppress(FormatError):
            decode_any(cut, encoding)
