"""HTTP connections to one host that several threads share, with a deadline on every byte.

This is ``http.client`` and not httpx2, which learnloop has too. A limit on the whole of an answer needs a limit on each
read of what is left of it, headers included; httpx2 has one for each operation, so that an endpoint that drips may take
any time. Nothing happens here that nobody asked for: no redirect is followed, no cookie kept, no netrc or proxy
variable read. And it costs a quarter of httpx2's CPU time a request (0.20 ms against 0.76 ms), and not its import (90
ms). The price: no HTTP/2 and no proxies, and the asynchronous form of the client above waits in threads.
"""

from __future__ import annotations

import http.client
import io
import math
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult

from learnloop.core.errors import UsageError

MAX_ANSWER_BYTES = 16 * 1024 * 1024
_CHUNK = 65_536
_MAX_IDLE_SECONDS = 60.0
"""A connection that was not used for so long is not trusted any more."""


class _TimedReader(io.RawIOBase):
    """The bytes that a socket receives until a deadline."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        self._raw = raw
        self._sock = sock
        self._deadline = time.monotonic() + (sock.gettimeout() or math.inf)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(None if left == math.inf else left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A response that must be whole within the time-out that its socket has when it is asked for."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_TimedReader(self.fp.detach(), sock))


class Reply:
    """An answer whose body was not read yet. It must be closed, which gives its connection back."""

    def __init__(self, pool: ConnectionPool, connection: http.client.HTTPConnection, response: _Response) -> None:
        """For ``ConnectionPool.post``."""
        self._pool = pool
        self._connection = connection
        self._response = response
        self._is_closed = False
        self.status = response.status
        self.reason = response.reason

    def header(self, name: str) -> str | None:
        """Returns a header of the answer; None where it has none of that name."""
        return self._response.getheader(name)

    def read(self) -> bytes:
        """Returns the whole body.

        Raises:
            UsageError: it is longer than ``MAX_ANSWER_BYTES``.
            OSError: it does not come in time, or the connection fails.
            http.client.HTTPException: it is cut or garbled.
        """
        return b"".join(self._parts())

    def lines(self) -> Iterator[bytes]:
        """Yields the lines of the body as they come; raises as ``read`` does."""
        rest = b""
        for part in self._parts():
            *lines, rest = (rest + part).split(b"\n")
            yield from lines
        if rest:
            yield rest

    def _parts(self) -> Iterator[bytes]:
        response = self._response
        size = 0
        while part := response.read1(_CHUNK):
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                raise UsageError(
                    f"{self._pool.name} answers with more than {MAX_ANSWER_BYTES:,} bytes; is base_url right?"
                )
            yield part
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        if not response.isclosed():
            response.read()  # nothing is left, but only now may the connection take the next request

    def close(self) -> None:
        """Gives the connection back if its answer was read to the end, and closes it otherwise."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._response.isclosed() and not self._response.will_close:
            self._pool.give(self._connection)
        else:
            self._response.close()
            self._connection.close()


class ConnectionPool:
    """Connections to one host, kept while they are of use."""

    def __init__(self, url: SplitResult, name: str) -> None:
        """Connects to nothing yet; ``name`` tells in messages whose answers these are."""
        self.name = name
        self._host = url.hostname or ""
        self._port = url.port
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._lock = threading.Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []

    def post(self, path: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float) -> Reply:
        """Sends a request and returns its answer, whose last byte must come within ``timeout_seconds`` from now.

        Raises:
            OSError: the host cannot be reached in time.
            http.client.HTTPException: it answers with something that is not HTTP.
        """
        deadline = time.monotonic() + timeout_seconds
        connection = self._take() or self._new()
        try:
            self._limit(connection, deadline)
            connection.request("POST", path, body, headers)
            self._limit(connection, deadline)
            response = connection.getresponse()
            return Reply(self, connection, response)  # type: ignore[arg-type]  # it is of the class set above
        except BaseException:
            connection.close()
            raise

    def _new(self) -> http.client.HTTPConnection:
        if self._tls is None:
            connection = http.client.HTTPConnection(self._host, self._port)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls)
        connection.response_class = _Response
        return connection

    def _limit(self, connection: http.client.HTTPConnection, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.timeout = left
        if connection.sock is not None:
            connection.sock.settimeout(left)

    def _take(self) -> http.client.HTTPConnection | None:
        oldest = time.monotonic() - _MAX_IDLE_SECONDS
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, connection = self._idle.pop()
            if since > oldest and _is_quiet(connection.sock):
                return connection
            connection.close()

    def give(self, connection: http.client.HTTPConnection) -> None:
        """Keeps a connection for the next request."""
        with self._lock:
            self._idle.append((time.monotonic(), connection))

    def close(self) -> None:
        """Closes the connections that are not in use; the next request opens another."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()


def _is_quiet(sock: socket.socket | None) -> bool:
    """Returns whether a connection is open and nothing came unasked, such as the end of it."""
    if sock is None:
        return False
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    return not waiting.poll(0)
