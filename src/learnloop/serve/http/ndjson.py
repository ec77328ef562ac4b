"""Many items in one request, one line of JSON each (NDJSON), and one line of the answer for each of them.

    @operations.post("/v1/things/batch", scope="write", accepts=(NDJSON,), produces=NDJSON, response=LineAnswer)
    async def add_things(request: Request) -> Response:
        return ndjson_answer(request, Thing, add_one)

Lines are read, worked on and answered as they arrive; neither the request nor the answer is ever whole in memory, but
for what is said at ``HELD_BYTES``. An item that is wrong is a line with a problem, and does not stop the others.

Source: the specification of NDJSON 1.0 (ndjson-spec), sections 3.1 to 3.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as HttpScope

from learnloop.serve.http.calls import Body, call_of, path_of, problem_body
from learnloop.serve.http.json_bodies import decode_json
from learnloop.serve.http.problems import Problem, ProblemBody
from learnloop.serve.http.site import MIB

T = TypeVar("T")

NDJSON = "application/x-ndjson"
LINE_BYTES = MIB
"""The longest line."""
MAX_LINES = 10_000
"""How many items a request may have."""
HELD_BYTES = 8 * MIB
"""How much of the answer is held back while the request still arrives: a client that sends all before it reads anything
would otherwise wait for us while we wait for it."""
_PART_BYTES = 65_536
_TURN = 64
"""After so many lines others get their turn."""

_log = logging.getLogger(__name__)
_encoder = msgspec.json.Encoder(decimal_format="string")


class LineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one item; the lines come in the order of the items."""

    index: int
    status: int
    result: Any | msgspec.UnsetType = msgspec.UNSET
    problem: ProblemBody | msgspec.UnsetType = msgspec.UNSET


async def read_lines(
    request: Request, kind: type[T], *, line_bytes: int = LINE_BYTES, max_lines: int = MAX_LINES
) -> AsyncIterator[T | Problem]:
    """Yields the items of a body as they arrive, decoded as strictly as by ``read_json``, or what is wrong with each.

    Args:
        request: whose route takes NDJSON.
        kind: what each line is; empty lines do not count.
        line_bytes: the longest line; a longer one is a 413 of its own, and is not kept in memory.
        max_lines: how many items there may be.

    Raises:
        Problem: 413 for too many items or bytes, 408, 400: what came before was yielded.
        ClientDisconnect: the client went away before the end.
    """
    body = call_of(request.scope).body
    if body is None:
        return
    number = 0
    async for text in _split(body, line_bytes):
        if text is not None and not text.strip():
            continue
        number += 1
        if number > max_lines:
            raise Problem(413, f"the body has more than {max_lines:,} items; the rest is not read, send parts")
        item: T | Problem
        if text is None:
            item = Problem(413, f"this line is longer than the {line_bytes:,} bytes that one may have")
        else:
            try:
                item = decode_json(text, kind)
            except Problem as problem:
                item = problem
        yield item
        if number % _TURN == 0:
            await asyncio.sleep(0)


def ndjson_answer(
    request: Request,
    kind: type[T],
    work: Callable[[T], Awaitable[object]],
    *,
    status: int = 200,
    at_once: int = 1,
    line_bytes: int = LINE_BYTES,
    max_lines: int = MAX_LINES,
) -> Response:
    """Returns an answer with a ``LineAnswer`` for each item.

    What ends the whole (too much, too slow) is a last line with the problem and the index of the item that it met. A
    client that does not read is waited for, and then its request is not read on either.

    Args:
        request: whose route takes NDJSON.
        kind: what each line is.
        work: returns the result of an item, or raises what becomes its problem.
        status: of an item that succeeds.
        at_once: how many items are worked on together; they begin, and are answered, in their order.
        line_bytes: as for ``read_lines``.
        max_lines: as for ``read_lines``.
    """
    items = read_lines(request, kind, line_bytes=line_bytes, max_lines=max_lines)
    return _Answers(request, items, work, status, at_once)


class _Answers(Response, Generic[T]):
    """Sends answers as they come. Starlette's own listens for the client's end meanwhile, which takes the body away."""

    def __init__(
        self,
        request: Request,
        items: AsyncIterator[T | Problem],
        work: Callable[[T], Awaitable[object]],
        status: int,
        at_once: int,
    ) -> None:
        super().__init__(media_type=NDJSON)
        self._scope = request.scope
        self._call = call_of(request.scope)
        self._items = items
        self._work = work
        self._status = status
        self._at_once = at_once

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        headers = [each for each in self.raw_headers if each[0] != b"content-length"]
        async with aclosing(self._parts()) as parts:
            data = await anext(parts, b"")  # before the answer begins: by then the body is in, mostly
            await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
            while data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
                data = await anext(parts, b"")
        await send({"type": "http.response.body", "body": b""})

    async def _parts(self) -> AsyncGenerator[bytes, None]:
        """Yields the lines, some together; while the request still arrives they are held back."""
        body, held = self._call.body, bytearray()
        async for each in self._answers():
            held += _encoder.encode(each)
            held += b"\n"
            is_arriving = body is not None and not body.is_complete
            if len(held) >= (HELD_BYTES if is_arriving else _PART_BYTES):
                yield bytes(held)
                held.clear()
        if held:
            yield bytes(held)

    async def _answers(self) -> AsyncIterator[LineAnswer]:
        waiting: deque[asyncio.Future[LineAnswer]] = deque()
        num_items = 0
        failure: Problem | None = None
        try:
            try:
                async for item in self._items:
                    waiting.append(asyncio.ensure_future(self._answer(num_items, item)))
                    num_items += 1
                    if len(waiting) >= self._at_once:
                        yield await waiting.popleft()
            except ClientDisconnect:
                _log.info("%s: the client went away", self._call.request_id)
            except Problem as problem:
                failure = problem
                body = self._call.body
                if body is not None and not body.is_complete:
                    await body.drain()  # or the client gets no answer: what is left unread resets the connection
            while waiting:
                yield await waiting.popleft()
            if failure is not None:
                yield self._failed(num_items, failure)
        finally:
            for task in waiting:
                task.cancel()

    async def _answer(self, index: int, item: T | Problem) -> LineAnswer:
        """Works on one item."""
        if isinstance(item, Problem):
            return self._failed(index, item)
        try:
            result = await self._work(item)
        except Exception as error:  # noqa: BLE001 - becomes the item's problem, and is logged where it is ours
            return self._failed(index, error)
        return LineAnswer(index=index, status=self._status, result=result)

    def _failed(self, index: int, error: Exception) -> LineAnswer:
        """Returns what ``error`` is to the client."""
        errors = self._call.site.errors
        problem = errors.problem(error)
        if problem.status >= 500 and not isinstance(error, Problem):
            trace = error if errors.status_of(error) is None else None
            where = path_of(self._scope)
            _log.error("%s %s item %d: %s", self._call.request_id, where, index, error, exc_info=trace)
        return LineAnswer(index=index, status=problem.status, problem=problem_body(self._scope, problem))


async def _split(body: Body, line_bytes: int) -> AsyncIterator[bytes | None]:
    """Yields the lines of a body, without their ends; None for one that is too long."""
    begun = bytearray()
    is_too_long = False
    async for part in body.parts():
        start = 0
        while (end := part.find(b"\n", start)) >= 0:
            if is_too_long or len(begun) + end - start > line_bytes:
                yield None
            else:
                yield bytes(begun) + part[start:end]
            begun.clear()
            is_too_long = False
            start = end + 1
        if is_too_long or len(begun) + len(part) - start > line_bytes:
            is_too_long = True
            begun.clear()
        else:
            begun += part[start:]
    if is_too_long:
        yield None
    elif begun:
        yield bytes(begun)
