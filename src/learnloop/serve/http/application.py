"""An application: its routes, the one layer that every request passes before them, and what every error becomes.

The layer gives the id, and checks headers, host, origin, key and limits. It is pure ASGI and thin: a request that
nobody objects to costs a few microseconds here.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import Any

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Router
from starlette.types import Message, Receive, Send
from starlette.types import Scope as HttpScope

from learnloop.serve.http.calls import IS_WHOLE, Body, Call, call_of, path_of, problem_body, set_call
from learnloop.serve.http.host_checks import PREFLIGHT, HostChecks
from learnloop.serve.http.openapi import describe
from learnloop.serve.http.operations import Operation, Operations
from learnloop.serve.http.problems import PROBLEM_TYPE, FieldError, Problem
from learnloop.serve.http.site import Site

_log = logging.getLogger(__name__)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HEADERS: Mapping[bytes, bytes] = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"content-security-policy": b"default-src 'self'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}
"""What each answer has unless its route says otherwise."""
_CLOSE = (b"connection", b"close")
_ENDS_CONNECTION = frozenset({408, 413})
_END_SECONDS = 2.0


class Application:
    """Groups of routes behind the one layer that every request passes; an ASGI application.

    Args:
        site: what differs from other applications.
        groups: the routes.
        shared: what the routes share: given to the lifespans of the groups, endpoints find it at ``request.app``.
    """

    def __init__(self, site: Site, groups: Sequence[Operations], shared: Any = None) -> None:
        self.site = site
        self.groups = tuple(groups)
        self.shared = shared
        operations = [operation for group in groups for operation in group.routes]
        self.router = Router(operations, redirect_slashes=False, lifespan=_lifespan)
        self._limits = site.limits
        self._hosts = HostChecks(site)
        self._direct = {
            (method, operation.path): operation
            for operation in operations
            if "{" not in operation.path
            for method in operation.methods or ()
        }
        """Routes whose path never varies are found here, the others by the router."""
        self._open = frozenset(operation.path for operation in operations if operation.rules.scope is None)
        self._num_active = 0

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        """Answers one request; the server's start and end, which come this way too, are for the lifespans."""
        scope["app"] = self
        if scope["type"] != "http":
            await self.router(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = headers.get(b"x-request-id", b"")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = self.site.new_id().encode()
        has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        body = Body(receive, headers, self._limits, scope.pop(IS_WHOLE, None)) if has_body else None
        call = Call(self.site, headers, request_id.decode(), body)
        set_call(scope, call)
        answer = _Answer(send, call, request_id)
        self._num_active += 1
        try:
            await self._answer(scope, body or receive, answer)
        except ClientDisconnect:
            _log.info("%s %s %s: the client went away", call.request_id, scope["method"], path_of(scope))
        except asyncio.CancelledError:
            if not self.site.is_draining:
                raise
            await self._refuse(scope, answer, Problem(503, "the server stopped before this was done", kind="stopping"))
        except Exception as error:  # noqa: BLE001 - becomes the answer, and is logged where it is ours
            await self._refuse(scope, answer, error)
        finally:
            self._num_active -= 1
            call.body = None  # it leads to the scope, which leads to it: a circle would keep its bytes for a while
        if _log.isEnabledFor(logging.INFO):
            took_ms = (time.perf_counter() - call.started_at) * 1000
            _log.info("%s %s %s %d %.1f ms", call.request_id, scope["method"], path_of(scope), call.status, took_ms)

    @cached_property
    def openapi(self) -> dict[str, Any]:
        """The description of all routes (OpenAPI 3.1)."""
        return describe(self.site, self.groups)

    async def _answer(self, scope: HttpScope, receive: Receive, answer: _Answer) -> None:
        call = call_of(scope)
        method, path = scope["method"], scope["path"]
        if self._num_active > self._limits.num_active:
            raise Problem(503, "the server is busy; try again later", kind="busy")
        if len(call.headers) != len(scope["headers"]):
            self._hosts.check_single(scope["headers"])
        self._hosts.check_host(call.headers)
        origin = self._hosts.check_origin(method, call.headers)
        if origin is not None:
            answer.allow(origin)
            if method == "OPTIONS" and b"access-control-request-method" in call.headers:
                await answer({"type": "http.response.start", "status": 204, "headers": list(PREFLIGHT)})
                await answer({"type": "http.response.body"})
                return
        if method != "GET" or path not in self._open:
            call.caller = self.site.identify(call.headers)
        operation = self._direct.get((method, path))
        if operation is None:
            await self.router(scope, receive, answer)
            return
        scope["route"], scope["endpoint"], scope["path_params"] = operation, operation.endpoint, {}
        await operation.app(scope, receive, answer)

    async def _refuse(self, scope: HttpScope, answer: _Answer, error: Exception) -> None:
        """Answers with the problem that ``error`` is."""
        call = call_of(scope)
        problem = self._problem(scope, error)
        if problem.status >= 500 and not isinstance(error, Problem):
            is_known = self.site.errors.status_of(error) is not None
            _log.error(
                "%s %s %s: %s",
                call.request_id,
                scope["method"],
                path_of(scope),
                error,
                exc_info=None if is_known else error,
            )
        if answer.has_begun:  # too late for another answer; the server cuts the connection of one that is not complete
            return
        if call.body is not None and not call.body.is_complete:
            await call.body.drain()
        render = next((group.error_body for group in self.groups if group.error_body and _has(group, scope)), None)
        data, media_type = (render or _problem_body)(scope, problem)
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in problem.headers.items()]
        headers += [(b"content-type", media_type.encode()), (b"content-length", str(len(data)).encode())]
        if problem.status in _ENDS_CONNECTION:
            headers.append(_CLOSE)
        await answer({"type": "http.response.start", "status": problem.status, "headers": headers})
        await answer({"type": "http.response.body", "body": data})

    def _problem(self, scope: HttpScope, error: Exception) -> Problem:
        if isinstance(error, RequestValidationError):
            return _invalid(error)
        if isinstance(error, HTTPException):
            return self._from_router(scope, error)
        return self.site.errors.problem(error)

    def _from_router(self, scope: HttpScope, error: HTTPException) -> Problem:
        if error.status_code == 404:
            return Problem(404, f"there is no such path; {self.site.about.path_advice}")
        if error.status_code == 405:
            routes = [each for group in self.groups for each in group.routes if _fits(each, scope)]
            exact = [each for each in routes if each.path == scope["path"]]  # not also as the id of something
            allowed = sorted({method for each in exact or routes for method in each.methods or ()})
            return Problem(405, f"this path takes {', '.join(allowed)}", headers={"allow": ", ".join(allowed)})
        return Problem(error.status_code, str(error.detail), headers=error.headers)


class _Answer:
    """An ASGI ``send`` that adds the headers which each answer has."""

    __slots__ = ("_call", "_held", "_origin", "_request_id", "_send", "has_begun")

    def __init__(self, send: Send, call: Call, request_id: bytes) -> None:
        self._send = send
        self._call = call
        self._request_id = request_id
        self._origin: bytes | None = None
        self._held: list[Message] = []
        self.has_begun = False

    def allow(self, origin: bytes) -> None:
        """Lets pages of ``origin`` read the answer."""
        self._origin = origin

    async def __call__(self, message: Message) -> None:
        if self._call.settle is not None:
            await self._hold(message)
            return
        if message["type"] == "http.response.start":
            self.has_begun = True
            self._call.status = message["status"]
            headers = list(message.get("headers", ()))
            given = {name for name, _ in headers}
            headers += [header for header in _HEADERS.items() if header[0] not in given]
            headers.append((b"x-request-id", self._request_id))
            if self._origin is not None:
                headers += [(b"access-control-allow-origin", self._origin), (b"vary", b"Origin")]
            body = self._call.body
            if body is not None and not body.is_complete and _CLOSE not in headers:
                headers.append(_CLOSE)  # what the client still sends is not waited for
            message = {**message, "headers": headers}
        await self._send(message)

    async def _hold(self, message: Message) -> None:
        """Keeps the answer back until it is whole and settled; one that begins again takes the place of the first."""
        if message["type"] == "http.response.start":
            self._held = []
        self._held.append(message)
        settle = self._call.settle
        if settle is None or message["type"] != "http.response.body" or message.get("more_body", False):
            return
        start, *parts = self._held
        media_type = dict(start["headers"]).get(b"content-type", b"").decode("latin-1")
        await settle(start["status"], media_type, b"".join(part.get("body", b"") for part in parts))
        self._call.settle = None
        for each in self._held:
            await self(each)


def _problem_body(scope: HttpScope, problem: Problem) -> tuple[bytes, str]:
    return msgspec.json.encode(problem_body(scope, problem)), PROBLEM_TYPE


def _fits(operation: Operation, scope: HttpScope) -> bool:
    return operation.matches(scope)[0] is not Match.NONE


def _has(group: Operations, scope: HttpScope) -> bool:
    return any(_fits(operation, scope) for operation in group.routes)


def _invalid(error: RequestValidationError) -> Problem:
    errors = [
        FieldError(detail=str(each["msg"]), pointer=".".join(str(part) for part in each["loc"]))
        for each in error.errors()
    ]
    return Problem(422, "the request is not what this route takes", errors=errors)


@asynccontextmanager
async def _lifespan(app: Application) -> AsyncIterator[None]:
    """Runs the lifespans of all groups, those of the first groups around those of the others."""
    stack = AsyncExitStack()
    try:
        for group in app.groups:
            if group.lifespan is not None:
                await stack.enter_async_context(group.lifespan(app.shared))
        yield
    finally:
        app.site.is_draining = True
        await _end(stack)


async def _end(stack: AsyncExitStack) -> None:
    """Ends what the groups keep; one that hangs is left behind, so that the server stops in time."""
    try:
        async with asyncio.timeout(_END_SECONDS):
            await stack.aclose()
    except TimeoutError:
        _log.error("what the routes keep did not end within %g s; it is left behind", _END_SECONDS)
