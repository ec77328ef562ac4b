"""uvicorn's HTTP protocol with what it lacks: a time limit on headers, and malformed requests answered as problems."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from learnloop.core.ids import new_id
from learnloop.serve.problems import PROBLEM_TYPE, Problem


class GuardedProtocol(H11Protocol):
    """A connection. A client that does not finish its headers in time is cut off."""

    header_seconds = 10.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._header_timer: asyncio.TimerHandle | None = None

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
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._stop_timer()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_seconds, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP, and closes."""
        self._stop_timer()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            problem = Problem(400, "this is no valid HTTP/1.1 request, or its headers are too large")
            data = msgspec.json.encode(problem.body("", new_id()))
            headers = [
                (b"content-type", PROBLEM_TYPE.encode()),
                (b"content-length", str(len(data)).encode()),
                (b"x-content-type-options", b"nosniff"),
                (b"connection", b"close"),
            ]
            parts = (h11.Response(status_code=400, headers=headers), h11.Data(data=data), h11.EndOfMessage())
            for part in parts:
                self.transport.write(self.conn.send(part) or b"")
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def protocol_with(header_seconds: float) -> type[GuardedProtocol]:
    """Returns the protocol with its own time limit; uvicorn makes one for each connection."""
    return type("Protocol", (GuardedProtocol,), {"header_seconds": header_seconds})
