"""Receives OpenTelemetry into a workspace: what `POST /v1/traces` and `POST /v1/logs` call."""

from __future__ import annotations

from concurrent.futures import Future
from types import TracebackType
from typing import NamedTuple, Self

from learnloop.core.clock import now
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.traces.otlp import (
    Assembler,
    AssemblyCounters,
    AssemblyOptions,
    Encoding,
    decode_logs,
    decode_traces,
    encode_logs_answer,
    encode_traces_answer,
    map_logs,
    map_spans,
)


class Receipt(NamedTuple):
    """The answer to a request, which may be given once ``durable`` is done."""

    body: bytes
    """An export response in the encoding of the request."""
    durable: Future[None]
    """Is set when what the request brought is on the disk, or raises why it is not."""


class Telemetry:
    """Turns OTLP requests into spans, episodes and rewards of a workspace; a context manager.

    Args:
        workspace: an open one; it stays its owner's.
        options: when a trace is over.
    """

    def __init__(self, workspace: WorkspaceCore, options: AssemblyOptions | None = None) -> None:
        self._assembler = Assembler(workspace.store, options)

    def start(self) -> None:
        """Begins to receive, and takes up the traces that are open in the store."""
        self._assembler.start()

    def receive_traces(self, body: bytes, encoding: Encoding) -> Receipt:
        """Takes an ``ExportTraceServiceRequest``.

        Raises:
            FormatError: the body is none.
            UnreachableError: too much waits to be written already.
            ConflictError: it is closed.
        """
        traces = decode_traces(body, encoding)
        durable = self._assembler.submit(map_spans(traces.spans, now()))
        return Receipt(encode_traces_answer(traces.rejections, encoding), durable)

    def receive_logs(self, body: bytes, encoding: Encoding) -> Receipt:
        """Takes an ``ExportLogsServiceRequest``: content of calls of models and scores; other records say nothing here.

        Raises:
            FormatError: the body is none.
            UnreachableError: too much waits to be written already.
            ConflictError: it is closed.
        """
        logs = decode_logs(body, encoding)
        durable = self._assembler.submit(map_logs(logs.logs, now()))
        return Receipt(encode_logs_answer(logs.rejections, encoding), durable)

    def counters(self) -> AssemblyCounters:
        """Returns what was received so far."""
        return self._assembler.counters()

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Writes what waits, for so long at the most, and ends; open traces go on when it is started again."""
        self._assembler.close(timeout_seconds)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
