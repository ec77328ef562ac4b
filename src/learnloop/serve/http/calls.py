"""One request on its way through: who asks, under which id, and its body as it arrives within the limits."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive
from starlette.types import Scope as HttpScope

from learnloop.serve.http.problems import Problem, ProblemBody
from learnloop.serve.http.site import MIB, Caller, Headers, RequestLimits, Site

_CALL = "http.call"
IS_WHOLE = "http.is_whole"
"""In the ASGI scope: tells whether all of the body is there, so that receiving it waits for nobody."""
MIN_RATIO_BYTES = MIB
"""Bodies that stay below this after decompression are not asked for their ratio."""
LINGER_SECONDS = 1.0
"""How long the rest of a refused body is taken in, so that the client gets to read why."""
_WINDOW_BITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}

Settle = Callable[[int, str, bytes], Awaitable[None]]


class Call:
    """What is known of a request."""

    __slots__ = ("body", "caller", "effect_id", "headers", "request_id", "settle", "site", "started_at", "status")

    def __init__(self, site: Site, headers: Headers, request_id: str, body: Body | None) -> None:
        self.site = site
        self.headers = headers
        self.request_id = request_id
        self.body = body
        """None: the request has none."""
        self.caller: Caller | None = None
        """Who asks; None where everybody may, and on open routes."""
        self.started_at = time.perf_counter()
        self.status = 0
        """Of the answer; 0 until it begins."""
        self.effect_id: str | None = None
        """The id for what the request makes, the same each time that it comes; None: it has no ``Idempotency-Key``."""
        self.settle: Settle | None = None
        """Told of the status, the media type and the body of the answer before it is sent; None: nobody asks."""

    def demand(self, scope: str | None) -> None:
        """Lets callers through who may do what needs ``scope``.

        Raises:
            Problem: 403, naming the scope.
        """
        caller, site = self.caller, self.site
        if caller is None or scope is None or scope in caller.scopes or site.full_scope in caller.scopes:
            return
        challenge = f'Bearer realm="{site.about.realm}", error="insufficient_scope", scope="{scope}"'
        raise Problem(
            403,
            f"this needs a key with the scope '{scope}'; {caller.name!r} has {', '.join(caller.scopes)}",
            headers={"www-authenticate": challenge},
        )


def call_of(scope: HttpScope) -> Call:
    """Returns what is known of the request of this ASGI scope."""
    call: Call = scope[_CALL]
    return call


def path_of(scope: HttpScope) -> str:
    """Returns the path as it came: escaped, so that nothing in it can command a terminal or a log."""
    raw: bytes = scope["raw_path"]
    return raw.decode("ascii", "backslashreplace")


def problem_body(scope: HttpScope, problem: Problem) -> ProblemBody:
    """Returns the body of the answer to the request of this ASGI scope where it is ``problem``."""
    call = call_of(scope)
    return call.site.problem_body(problem, path_of(scope), call.request_id)


def set_call(scope: HttpScope, call: Call) -> None:
    """Notes ``call`` in its ASGI scope."""
    scope[_CALL] = call


class Body:
    """A body: an ASGI ``receive`` that counts, decompresses and gives up in time.

    Args:
        receive: gives its parts.
        headers: of the request.
        limits: of the server.
        is_whole: tells whether all of it is there; None: nobody knows.

    Raises (when called):
        Problem: 413 for too much, 408 for too slow, 400 for what cannot be decompressed.
    """

    __slots__ = (
        "_deadline",
        "_decoder",
        "_is_whole",
        "_limits",
        "_max_bytes",
        "_receive",
        "_whole",
        "headers",
        "is_complete",
        "num_bytes",
        "num_decoded",
    )

    def __init__(
        self, receive: Receive, headers: Headers, limits: RequestLimits, is_whole: Callable[[], bool] | None = None
    ) -> None:
        self._receive = receive
        self._is_whole = is_whole
        self._limits = limits
        self._max_bytes = limits.body_bytes
        self._decoder: Any = None
        self._deadline: float | None = None
        self._whole: bytes | None = None
        self.headers = headers
        self.num_bytes = 0
        self.num_decoded = 0
        self.is_complete = False

    def admit(self, max_bytes: int | None) -> None:
        """Refuses a body that says itself to be too large or in an unknown encoding.

        Raises:
            Problem: 413 or 415.
        """
        if max_bytes is not None:
            self._max_bytes = max_bytes
        if int(self.headers.get(b"content-length", b"0")) > self._max_bytes:
            raise self._too_large()
        encoding = self.headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding in _WINDOW_BITS:
            self._decoder = zlib.decompressobj(_WINDOW_BITS[encoding])
        elif encoding != b"identity":
            raise Problem(
                415,
                f"the body's encoding is {encoding.decode('latin-1')!r}; taken are gzip, deflate and identity",
                headers={"accept-encoding": "gzip, deflate"},
            )

    async def __call__(self) -> Message:
        """Returns the next part, decompressed; after the last one, when the client goes away."""
        if self.is_complete:
            return await self._receive()
        if self._is_whole is not None and self._is_whole():  # a timer would cost more than all else here
            message = await self._receive()
        else:
            message = await self._receive_in_time()
        if message["type"] != "http.request":
            return message
        data = message.get("body", b"")
        self.num_bytes += len(data)
        self.is_complete = not message.get("more_body", False)
        if self.num_bytes > self._max_bytes:
            raise self._too_large()
        if self._decoder is not None:
            return {**message, "body": self._decode(data)}
        return message

    async def _receive_in_time(self) -> Message:
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._limits.body_seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._receive()
        except TimeoutError as error:
            raise Problem(
                408, f"the body did not arrive within {self._limits.body_seconds:g} s; send it faster or in parts"
            ) from error

    async def read(self) -> bytes:
        """Returns all of it; again where it was read before.

        Raises:
            ClientDisconnect: the client went away before its end.
        """
        if self._whole is None:
            parts = []
            while not self.is_complete:
                message = await self()
                if message["type"] != "http.request":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
            self._whole = parts[0] if len(parts) == 1 else b"".join(parts)
        return self._whole

    async def parts(self) -> AsyncIterator[bytes]:
        """Yields it in parts as it arrives; all of it where it was read before.

        Raises:
            ClientDisconnect: the client went away before its end.
        """
        if self._whole is not None:
            yield self._whole
        while not self.is_complete:
            message = await self()
            if message["type"] != "http.request":
                raise ClientDisconnect
            yield message.get("body", b"")

    async def drain(self) -> None:
        """Takes in, for a moment and up to the limit once more, what is left of a refused body."""
        if b"expect" in self.headers:  # the client waits for our word and has sent nothing
            return
        end = self.num_bytes + self._max_bytes
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while not self.is_complete and self.num_bytes <= end:
                    message = await self._receive()
                    self.num_bytes += len(message.get("body", b""))
                    self.is_complete = not message.get("more_body", False)
        except TimeoutError:
            return

    def _decode(self, data: bytes) -> bytes:
        room = min(self._limits.decoded_bytes, max(MIN_RATIO_BYTES, self._limits.ratio * self.num_bytes))
        try:
            decoded: bytes = self._decoder.decompress(data, room - self.num_decoded + 1)
        except zlib.error as error:
            raise Problem(400, f"the body cannot be decompressed: {error}") from error
        self.num_decoded += len(decoded)
        if self.num_decoded > room:
            raise Problem(
                413,
                f"the body is more than {self._limits.decoded_bytes:,} bytes after decompression, or than "
                f"{self._limits.ratio} times what arrived; send less, or compress less",
            )
        if self._decoder.unused_data or (self.is_complete and not self._decoder.eof):
            raise Problem(400, "the compressed body is cut off, or goes on after its end; send one whole stream")
        return decoded

    def _too_large(self) -> Problem:
        return Problem(413, f"the body is larger than the {self._max_bytes:,} bytes that this route takes; send parts")


async def read_body(request: Request) -> bytes:
    """Returns the whole body, decompressed.

    Use this or ``request.stream()``, not both.

    Raises:
        Problem: it is too large, too slow, or cannot be decompressed.
    """
    body = call_of(request.scope).body
    return b"" if body is None else await body.read()
