"""Receives OpenTelemetry into a workspace: what `POST /v1/traces` and `POST /v1/logs` call."""

from __future__ import annotations

from concurrent.futures import Future
from typing import NamedTuple

from learnloop.core.clock import now
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.traces.otlp.assembly import Assembler, AssemblyOptions
from learnloop.traces.otlp.decode import (
    Encoding,
    decode_logs,
    decode_traces,
    encode_logs_answer,
    encode_traces_answer,
)
from learnloop.traces.otlp.mapping import map_logs, map_spans


class Receipt(NamedTuple):
    """The answer to a request, which may be given once ``durable`` is done."""

    body: bytes
    """An export response in the encoding of the request."""
    durable: Future[None]
    """Is set when what the request brought is on the disk, or raises why it is not."""


class Telemetry(Assembler):
    """Turns OTLP requests into spans, episodes and rewards of a workspace; a context manager that starts and closes it.

    Args:
        workspace: an open one; it stays its owner's.
        options: when a trace is over.
    """

    def __init__(self, workspace: WorkspaceCore, options: AssemblyOptions | None = None) -> None:
        super().__init__(workspace.store, options)

    def receive_traces(self, body: bytes, encoding: Encoding) -> Receipt:
        """Takes an ``ExportTraceServiceRequest``.

        Raises:
            FormatError: the body is not such a request.
            UnreachableError: too much waits to be written already.
            ConflictError: it is closed.
        """
        traces = decode_traces(body, encoding)
        durable = self.submit(map_spans(traces.spans, now()))
        return Receipt(encode_traces_answer(traces.rejections, encoding), durable)

    def receive_logs(self, body: bytes, encoding: Encoding) -> Receipt:
        """Takes an ``ExportLogsServiceRequest``: content of calls of models and scores; other records say nothing here.

        Raises:
            FormatError: the body is not such a request.
            UnreachableError: too much waits to be written already.
            ConflictError: it is closed.
        """
        logs = decode_logs(body, encoding)
        durable = self.submit(map_logs(logs.logs, now()))
        return Receipt(encode_logs_answer(logs.rejections, encoding), durable)
