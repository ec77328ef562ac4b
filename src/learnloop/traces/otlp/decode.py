"""Reads OTLP requests and writes the answers to them, in protobuf or in JSON."""

from __future__ import annotations

from typing import Literal

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from learnloop.traces.otlp import json_wire, protobuf
from learnloop.traces.otlp.wire import Rejections, WireLogs, WireTraces

Encoding = Literal["protobuf", "json"]


def decode_traces(body: bytes, encoding: Encoding) -> WireTraces:
    """Returns what an ``ExportTraceServiceRequest`` holds; an empty one holds nothing.

    Raises:
        FormatError: the body is none.
    """
    return protobuf.read_traces(body) if encoding == "protobuf" else json_wire.read_traces(body)


def decode_logs(body: bytes, encoding: Encoding) -> WireLogs:
    """Returns what an ``ExportLogsServiceRequest`` holds; an empty one holds nothing.

    Raises:
        FormatError: the body is none.
    """
    return protobuf.read_logs(body) if encoding == "protobuf" else json_wire.read_logs(body)


def encode_traces_answer(rejections: Rejections, encoding: Encoding) -> bytes:
    """Returns an ``ExportTraceServiceResponse``; ``partial_success`` is unset where nothing was rejected."""
    if encoding == "json":
        return _partial_json("rejectedSpans", rejections)
    answer = ExportTraceServiceResponse()
    if rejections.number:
        answer.partial_success.rejected_spans = rejections.number
        answer.partial_success.error_message = rejections.message()
    data: bytes = answer.SerializeToString()
    return data


def encode_logs_answer(rejections: Rejections, encoding: Encoding) -> bytes:
    """Returns an ``ExportLogsServiceResponse``; ``partial_success`` is unset where nothing was rejected."""
    if encoding == "json":
        return _partial_json("rejectedLogRecords", rejections)
    answer = ExportLogsServiceResponse()
    if rejections.number:
        answer.partial_success.rejected_log_records = rejections.number
        answer.partial_success.error_message = rejections.message()
    data: bytes = answer.SerializeToString()
    return data


def encode_status(code: int, message: str, encoding: Encoding) -> bytes:
    """Returns a ``google.rpc.Status``: its two fields are written by hand, as its package is not needed otherwise.

    Args:
        code: of ``google.rpc.Code``, such as 3 for INVALID_ARGUMENT.
        message: what went wrong and what to do.
        encoding: of the request that it answers.
    """
    if encoding == "json":
        return msgspec.json.encode({"code": code, "message": message})
    text = message.encode("utf-8", "replace")
    return b"\x08" + _varint(code) + b"\x12" + _varint(len(text)) + text


def _partial_json(field: str, rejections: Rejections) -> bytes:
    if not rejections.number:
        return b"{}"
    # 64-bit numbers are text in protobuf's JSON.
    partial = {field: str(rejections.number), "errorMessage": rejections.message()}
    return msgspec.json.encode({"partialSuccess": partial})


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
