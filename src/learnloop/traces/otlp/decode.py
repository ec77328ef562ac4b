"""Reads OTLP requests and writes the answers to them, in protobuf or in JSON."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from google.protobuf.json_format import MessageToJson  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from learnloop.traces.otlp import json_wire, protobuf
from learnloop.traces.otlp.wire import Rejections, WireLogs, WireTraces

Encoding = Literal["protobuf", "json"]


def decode_traces(body: bytes, encoding: Encoding) -> WireTraces:
    """Returns what an ``ExportTraceServiceRequest`` holds; an empty one holds nothing.

    Raises:
        FormatError: the body is not such a request.
    """
    return protobuf.read_traces(body) if encoding == "protobuf" else json_wire.read_traces(body)


def decode_logs(body: bytes, encoding: Encoding) -> WireLogs:
    """Returns what an ``ExportLogsServiceRequest`` holds; an empty one holds nothing.

    Raises:
        FormatError: the body is not such a request.
    """
    return protobuf.read_logs(body) if encoding == "protobuf" else json_wire.read_logs(body)


def encode_traces_answer(rejections: Rejections, encoding: Encoding) -> bytes:
    """Returns an ``ExportTraceServiceResponse``; ``partial_success`` is unset where nothing was rejected."""
    return _answer(ExportTraceServiceResponse(), "rejected_spans", rejections, encoding)


def encode_logs_answer(rejections: Rejections, encoding: Encoding) -> bytes:
    """Returns an ``ExportLogsServiceResponse``; ``partial_success`` is unset where nothing was rejected."""
    return _answer(ExportLogsServiceResponse(), "rejected_log_records", rejections, encoding)


def encode_status(code: int, message: str, encoding: Encoding) -> bytes:
    """Returns a ``google.rpc.Status``, whose package is not needed otherwise.

    On the wire it is what a partial success is: a whole number as field 1 and a text as field 2.

    Args:
        code: of ``google.rpc.Code``, such as 3 for INVALID_ARGUMENT.
        message: what went wrong and what to do.
        encoding: of the request that it answers.
    """
    if encoding == "json":
        return msgspec.json.encode({"code": code, "message": message})
    text = message.encode("utf-8", "replace").decode()
    same: bytes = ExportTracePartialSuccess(rejected_spans=code, error_message=text).SerializeToString()
    return same


def _answer(answer: Any, field: str, rejections: Rejections, encoding: Encoding) -> bytes:
    if not rejections.number:
        return b"{}" if encoding == "json" else b""
    setattr(answer.partial_success, field, rejections.number)
    answer.partial_success.error_message = rejections.message()
    data: bytes = MessageToJson(answer, indent=None).encode() if encoding == "json" else answer.SerializeToString()
    return data
