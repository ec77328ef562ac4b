"""uvicorn's HTTP protocol with what it lacks: limits on headers, and malformed requests answered as problems."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from learnloop.core.ids import new_id
from learnloop.serve.problems import PROBLEM_TYPE, Problem


class _TooLargeError(Exception):
    """The headers are larger than the limit; the parser stops at it."""


class GuardedProtocol(HttpToolsProtocol):
    """A connection. A client that does not finish its headers in time, or sends too many, is cut off."""

    header_seconds = 10.0
    header_bytes = 65_536

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._header_timer: asyncio.TimerHandle | None = None
        self._is_in_headers = False
        self._num_unread = 0
        """Bytes that came without making a head complete: a name or a value without an end is not told of."""
        self._num_read = 0
        """Bytes of the head that were told of."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the first request."""
        super().connection_made(transport)
        self._header_timer = self.loop.call_later(self.header_seconds, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the waiting."""
        super().connection_lost(exc)
        self._stop_timer()

    def data_received(self, data: bytes) -> None:
        """Takes in what came; waits for the rest of the headers where they are not complete."""
        super().data_received(data)
        if not self._is_in_headers and self._is_answering():
            self._num_unread = 0
            return
        self._num_unread += len(data)
        if self._num_unread > self.header_bytes:
            self.send_400_response("")
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_seconds, self.transport.close)

    def on_message_begin(self) -> None:
        """Begins a request."""
        super().on_message_begin()
        self._num_read = 0
        self._is_in_headers = True

    def on_url(self, url: bytes) -> None:
        """Takes in a part of the target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes in a header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begins to answer."""
        super().on_headers_complete()
        self._is_in_headers = False
        self._stop_timer()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP, and closes."""
        self._stop_timer()
        if not self.transport.is_closing() and not self._is_answering():
            problem = Problem(400, "this is no valid HTTP/1.1 request, or its headers are too large")
            data = msgspec.json.encode(problem.body("", new_id()))
            head = (
                f"content-type: {PROBLEM_TYPE}\r\ncontent-length: {len(data)}\r\n"
                "x-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(STATUS_LINE[400] + head.encode() + data)
        self.transport.close()

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _count(self, number: int) -> None:
        self._num_read += number
        if self._num_read > self.header_bytes:
            raise _TooLargeError

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def protocol_with(header_seconds: float, header_bytes: int) -> type[GuardedProtocol]:
    """Returns the protocol with limits of its own; uvicorn makes one for each connection."""
    limits = {"header_seconds": header_seconds, "header_bytes": header_bytes}
    return type("Protocol", (GuardedProtocol,), limits)
