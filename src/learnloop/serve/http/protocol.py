"""uvicorn's HTTP protocol with what it lacks: limits on headers, answers in one piece, and problems."""

from __future__ import annotations

import asyncio
import re
from typing import Any, ClassVar

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from learnloop.serve.http.calls import IS_WHOLE
from learnloop.serve.http.problems import PROBLEM_TYPE, Problem
from learnloop.serve.http.site import Site

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_VERSIONS = frozenset({"1.0", "1.1"})
_END_OF_AUTHORITY = re.compile(rb"[/?]")
_LENGTH = b"\r\ncontent-length: "


class JoinedWrites:
    """What an answer is written to: a transport that keeps the first piece back until the second comes.

    uvicorn writes the head and the body apart, each by a call of the system; here they go in one piece.

    A head that tells the length of its body has it right behind. Any other waits no longer than this turn of the event
    loop, so that the head of a stream is on its way before its parts.

    Args:
        transport: where it goes.
        loop: whose turn is meant.
        has_body: whether a body follows its length; not where HEAD was asked.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, *, has_body: bool = True) -> None:
        self._transport = transport
        self._loop = loop
        self._has_body = has_body
        self._held = b""
        self._has_begun = False

    def write(self, data: bytes) -> None:
        """Writes ``data``, now or together with what comes next."""
        if not self._has_begun:
            self._has_begun = True
            self._held = data
            if not self._has_body or _LENGTH not in data:
                self._loop.call_soon(self.flush)
            return
        held, self._held = self._held, b""
        self._transport.write(held + data if held else data)

    def flush(self) -> None:
        """Writes what is kept back."""
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def close(self) -> None:
        """Ends the connection once all is written."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Returns whether the connection ends."""
        return self._transport.is_closing()


class _RefusedError(Exception):
    """The head is too large, or one that another machine on the way may read in another way; the parser stops at it."""


class GuardedProtocol(HttpToolsProtocol):
    """A connection. A client that does not finish its headers in time, or sends too many, is cut off."""

    site: ClassVar[Site]
    """What the application says of itself."""
    header_seconds: ClassVar[float]
    header_bytes: ClassVar[int]
    write_seconds = 60.0
    """How long a client may read so little that nothing more can be sent."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._is_in_headers = False
        self._is_resuming = False
        """A parser is told of a head that was told of before."""
        self._num_unread = 0
        """Bytes that came without being told of: of a name, a value or a chunk's extension without an end."""
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
        self._stop_write_timer()

    def pause_writing(self) -> None:
        """Begins to wait for the client to read; one that does not is cut off: it holds one of the requests at once."""
        super().pause_writing()
        self._stop_write_timer()
        self._write_timer = self.loop.call_later(self.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Ends the waiting."""
        super().resume_writing()
        self._stop_write_timer()

    def data_received(self, data: bytes) -> None:
        """Takes in what came; waits for the rest of the headers where they are not complete."""
        self._unset_keepalive_if_required()
        self._num_unread += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse()
            return
        if self._has_whole() and not self._is_in_headers:
            self._num_unread = 0
        elif self._num_unread > self.header_bytes:
            self._refuse()
        elif self._header_timer is None and (self._is_in_headers or not self._is_answering()):
            self._header_timer = self.loop.call_later(self.header_seconds, self.transport.close)

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as stop:  # the parser takes all that follows for another protocol
                data = data[stop.args[0] :]
                self._resume()
            else:
                return

    def _resume(self) -> None:
        """Goes on in HTTP/1.1 after a request that asks for another protocol: with its body, which is still to come."""
        self.parser = httptools.HttpRequestParser(self)
        framing = [b"%s: %s\r\n" % header for header in self.headers if header[0] in _FRAMING]
        if framing:
            self.cycle.more_body = True
            self._is_resuming = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(framing) + b"\r\n")
            self._is_resuming = False

    def on_message_begin(self) -> None:
        """Begins a request."""
        if self._is_resuming:
            return
        super().on_message_begin()
        self._num_read = 0
        self._is_in_headers = True

    def on_url(self, url: bytes) -> None:
        """Takes in a part of the target."""
        if self._is_resuming:
            return
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes in a header; one that comes after the body is ignored (RFC 9110, section 6.5.1)."""
        if self._is_resuming:
            return
        self._count(len(name) + len(value))
        if self._is_in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begins to answer."""
        if self._is_resuming:
            return
        self._check_head()
        super().on_headers_complete()
        cycle = self.cycle
        cycle.scope[IS_WHOLE] = lambda: not cycle.more_body  # type: ignore[literal-required]
        has_body = cycle.scope["method"] != "HEAD"
        writes = JoinedWrites(self.transport, self.loop, has_body=has_body)
        cycle.transport = writes  # type: ignore[assignment]  # all that it uses
        self._is_in_headers = False
        self._num_unread = 0
        self._stop_timer()

    def on_body(self, body: bytes) -> None:
        """Takes in a part of the body."""
        self._num_unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Ends the request."""
        self._num_unread = 0
        super().on_message_complete()

    def _check_head(self) -> None:
        """Stops at what is no request of HTTP/1 to this server, or has its end where others may not see it."""
        given = dict(self.headers)
        if (
            self.parser.get_http_version() not in _VERSIONS
            or self.parser.get_method() == b"CONNECT"
            or b"#" in self.url
            or given.get(b"transfer-encoding", b"chunked").lower() != b"chunked"
        ):
            raise _RefusedError
        if self.url[:1] not in (b"/", b"*"):  # a whole URL, whose host counts (RFC 9112, section 3.2.2)
            authority = _END_OF_AUTHORITY.split(self.url.partition(b"://")[2], 1)[0]
            if authority.lower() != given.get(b"host", b"").lower():
                raise _RefusedError

    def _refuse(self) -> None:
        """Answers what is no HTTP, and closes; a request that came whole before it gets its answer first."""
        self._stop_timer()
        if self._has_whole():
            self.cycle.keep_alive = False
            return
        is_begun = self._is_answering() and (self.cycle.response_started or bool(self.pipeline))
        if not self.transport.is_closing() and not is_begun:
            problem = Problem(400, "this is no valid HTTP/1.1 request, or its headers are too large")
            data = msgspec.json.encode(self.site.problem_body(problem, "", self.site.new_id()))
            head = (
                f"content-type: {PROBLEM_TYPE}\r\ncontent-length: {len(data)}\r\n"
                "x-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(STATUS_LINE[400] + head.encode() + data)
        self.transport.close()

    def _has_whole(self) -> bool:
        """Returns whether the last request came whole and is being answered."""
        return self._is_answering() and not self.cycle.more_body

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _count(self, number: int) -> None:
        self._num_read += number
        if self._num_read > self.header_bytes:
            raise _RefusedError

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def protocol_of(site: Site) -> type[GuardedProtocol]:
    """Returns the protocol of an application; uvicorn makes one for each connection."""
    limits = {"header_seconds": site.limits.header_seconds, "header_bytes": site.limits.header_bytes}
    return type("Protocol", (GuardedProtocol,), {"site": site, **limits})
