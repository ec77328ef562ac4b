"""The OTLP/HTTP receiver: traces and logs of OpenTelemetry, in protobuf and JSON, durable before they are acknowledged.

Errors are ``google.rpc.Status`` in the encoding of the request. Only 429 and 503 ask the client to try again.

Source: OpenTelemetry Protocol Specification, "OTLP/HTTP".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope as HttpScope

from learnloop.core.errors import ConflictError, StoreError, UnreachableError
from learnloop.core.records import ApiScope
from learnloop.loop.traces.telemetry import Receipt, Telemetry
from learnloop.serve.http.calls import call_of, read_body
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.problems import Problem
from learnloop.serve.http.site import MIB
from learnloop.serve.service import Service, service_of
from learnloop.traces.otlp.assembly import AssemblyOptions
from learnloop.traces.otlp.decode import Encoding, encode_status

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_MEDIA_TYPES: Mapping[Encoding, str] = {"protobuf": PROTOBUF, "json": JSON}
MAX_BYTES = 20 * MIB
"""Of a request, as it arrives and after decompression."""
_INLINE_BYTES = 16_384
"""Smaller requests are read on the spot: handing them to a thread costs more."""
_DURABLE_SECONDS = 30.0
_CLOSE_SECONDS = 5.0

_CODES: Mapping[int, int] = {
    400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 408: 4, 413: 3, 415: 3, 429: 8, 501: 12, 503: 14,
}  # fmt: skip
"""``google.rpc.Code`` by status; 13, INTERNAL, for others."""
_NO_METRICS = (
    "learnloop keeps no metrics; send them elsewhere, or none: OTEL_METRICS_EXPORTER=none. Traces and logs are taken"
)


def _status_body(scope: HttpScope, problem: Problem) -> tuple[bytes, str]:
    """Returns a problem as a ``google.rpc.Status`` in the encoding of the request."""
    encoding = _encoding(scope)
    return encode_status(_CODES.get(problem.status, 13), problem.detail, encoding), _MEDIA_TYPES[encoding]


@asynccontextmanager
async def _receiving(service: Service) -> AsyncIterator[None]:
    options = AssemblyOptions(
        grace_seconds=service.options.trace_grace_seconds, idle_seconds=service.options.trace_idle_seconds
    )
    telemetry = Telemetry(service.workspace, options)
    telemetry.start()
    service.add(telemetry)
    try:
        yield
    finally:
        await asyncio.to_thread(telemetry.close, _CLOSE_SECONDS)


operations = Operations("otlp", error_body=_status_body, error_media=(PROTOBUF, JSON), lifespan=_receiving)


@operations.post("/v1/traces", scope=ApiScope.INGEST, accepts=(PROTOBUF, JSON), body_bytes=MAX_BYTES)
async def export_traces(request: Request) -> Response:
    """Take spans (OTLP ``ExportTraceServiceRequest``); what is answered with 200 is on the disk."""
    return await _receive(request, service_of(request).part(Telemetry).receive_traces)


@operations.post("/v1/logs", scope=ApiScope.INGEST, accepts=(PROTOBUF, JSON), body_bytes=MAX_BYTES)
async def export_logs(request: Request) -> Response:
    """Take log records (OTLP ``ExportLogsServiceRequest``): content of model calls and evaluation results count."""
    return await _receive(request, service_of(request).part(Telemetry).receive_logs)


@operations.post("/v1/metrics", scope=ApiScope.INGEST, accepts=(PROTOBUF, JSON), body_bytes=MAX_BYTES, status=501)
async def export_metrics(request: Request) -> Response:
    """Say that metrics are not kept: an exporter drops them and tells so, once."""
    raise Problem(501, _NO_METRICS)


async def _receive(request: Request, receive: Callable[[bytes, Encoding], Receipt]) -> Response:
    body = await read_body(request)
    if len(body) > MAX_BYTES:
        raise Problem(413, f"the body is {len(body):,} bytes after decompression; {MAX_BYTES:,} are taken, send parts")
    encoding = _encoding(request.scope)
    body = body or (b"{}" if encoding == "json" else b"")  # an empty request is one, in either encoding
    try:
        if len(body) <= _INLINE_BYTES:
            receipt = receive(body, encoding)
        else:
            receipt = await service_of(request).call(receive, body, encoding)
        async with asyncio.timeout(_DURABLE_SECONDS):
            await asyncio.wrap_future(receipt.durable)
    except (UnreachableError, StoreError, ConflictError) as error:
        raise Problem(503, "the store does not take this now, or the server is stopping; send it again") from error
    except TimeoutError as error:
        raise Problem(503, f"this was not on the disk within {_DURABLE_SECONDS:g} s; send it again") from error
    return Response(receipt.body, media_type=_MEDIA_TYPES[encoding])


def _encoding(scope: HttpScope) -> Encoding:
    """Returns the encoding of a request, by its media type without parameters."""
    given = call_of(scope).headers.get(b"content-type", b"")
    is_protobuf = given.partition(b";")[0].strip().lower().decode("latin-1") == PROTOBUF
    return "protobuf" if is_protobuf else "json"
