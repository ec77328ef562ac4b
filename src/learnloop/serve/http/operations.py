"""How a route is declared: its scope, the bodies that it takes and how its errors look.

A route without a declared scope cannot be made. What the declaration says is enforced before the endpoint runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from fastapi import Query
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as HttpScope

from learnloop.serve.http.calls import Call, call_of
from learnloop.serve.http.idempotency import HEADER, once
from learnloop.serve.http.problems import Problem

JSON = "application/json"
MAX_LIMIT = 200
"""The most rows of a page of a list."""
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
Text = Annotated[str | None, Query(max_length=500)]
"""What a list is narrowed by, or the cursor after which it goes on."""

T = TypeVar("T")


class ListBody(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A part of a list, the newest first."""

    data: list[T]
    next_cursor: str | None
    """What ``after`` asks for the next page with; None: this is the last one."""


ErrorBody = Callable[[HttpScope, Problem], tuple[bytes, str]]
"""Gives the body of an error and its media type, for clients that want another form than RFC 9457."""
Endpoint = Callable[..., Awaitable[Response]]
Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]
"""Takes what the routes of an application share (``Application.shared``)."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a route demands of a request, and what its documentation needs."""

    scope: str | None
    """What the caller must be allowed; None: open to all, also to those who show no key."""
    accepts: tuple[str, ...] = ()
    """The media types of the body; none: there is no body."""
    body_bytes: int | None = None
    """The largest body as it arrives; None: the server's."""
    request: Any = None
    """The type that the body is decoded into, for the documentation."""
    response: Any = None
    """The type of a good answer, for the documentation."""
    produces: str = JSON
    """The media type of a good answer."""
    idempotent: bool = False
    """Whether an ``Idempotency-Key`` makes the request run once."""
    if_match: Literal["no", "may", "must"] = "no"
    """Whether the endpoint heeds ``If-Match`` (``demand_match``); must: one without it is refused."""
    has_etag: bool = False
    """Whether a good answer has an ``ETag`` (``tagged``)."""


class Operation(APIRoute):
    """One route. An endpoint that takes nothing but the request costs no more than the call."""

    def __init__(self, path: str, endpoint: Endpoint, *, rules: Rules, **options: Any) -> None:
        super().__init__(path, endpoint, response_model=None, **options)
        self.rules = rules
        is_plain = list(inspect.signature(endpoint).parameters) == ["request"]
        inner: ASGIApp = _plain(endpoint) if is_plain else AsyncExitStackMiddleware(self.app)
        self.app = _guarded(inner, rules)


class Operations:
    """A group of routes about one noun.

    Args:
        name: the noun; the tag of the routes in the documentation.
        error_body: how errors of these routes look; None: RFC 9457.
        error_media: the media types that ``error_body`` gives, for the documentation.
        lifespan: what the routes need around the server's life, such as a background task.
    """

    def __init__(
        self,
        name: str,
        *,
        error_body: ErrorBody | None = None,
        error_media: Sequence[str] = (),
        lifespan: Lifespan | None = None,
    ) -> None:
        self.name = name
        self.error_body = error_body
        self.error_media = error_media
        self.lifespan = lifespan
        self.routes: list[Operation] = []

    def get(self, path: str, *, scope: str | None, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """Decorates the endpoint of ``GET path``; options are those of ``route``."""
        return self.route("GET", path, scope=scope, **options)

    def post(self, path: str, *, scope: str | None, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """Decorates the endpoint of ``POST path``, which takes JSON unless ``accepts`` says otherwise."""
        return self.route("POST", path, scope=scope, **{"accepts": (JSON,), **options})

    def route(
        self,
        method: str,
        path: str,
        *,
        scope: str | None,
        status: int = 200,
        responses: Mapping[int | str, dict[str, Any]] | None = None,
        operation_id: str | None = None,
        **rules: Any,
    ) -> Callable[[Endpoint], Endpoint]:
        """Decorates the endpoint of ``method path``: a coroutine function that takes a ``Request``.

        Further parameters of the endpoint are FastAPI's (query, path); the body is always read by the endpoint.

        Args:
            method: the HTTP method.
            path: with ``{name}`` for what varies, or ``{name:path}``.
            scope: what the caller must be allowed; None: open to all.
            status: of a good answer.
            responses: further answers, as in OpenAPI.
            operation_id: in the documentation; the endpoint's name where None.
            rules: the other fields of ``Rules``.

        Raises:
            TypeError: the endpoint would have FastAPI read the body, past the limits.
        """

        def decorate(endpoint: Endpoint) -> Endpoint:
            operation = Operation(
                path,
                endpoint,
                rules=Rules(scope=scope, **rules),
                methods=[method],
                status_code=status,
                tags=[self.name],
                responses=dict(responses or {}),
                operation_id=operation_id or endpoint.__name__,
            )
            if operation.body_field is not None:
                raise TypeError(
                    f"{endpoint.__name__} has a body parameter; read the body with read_json(request, type)"
                )
            self.routes.append(operation)
            return endpoint

        return decorate


def _plain(endpoint: Endpoint) -> ASGIApp:
    async def run(scope: HttpScope, receive: Receive, send: Send) -> None:
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    return run


def _guarded(inner: ASGIApp, rules: Rules) -> ASGIApp:
    """Returns ``inner`` behind the checks of its rules."""
    keyed = once(inner) if rules.idempotent else inner
    needs_match = rules.if_match == "must"

    async def run(scope: HttpScope, receive: Receive, send: Send) -> None:
        call = call_of(scope)
        call.demand(rules.scope)
        admit_body(call, rules)
        if needs_match and b"if-match" not in call.headers:
            raise Problem(428, "this needs If-Match with the ETag of what is changed; read it first")
        await (keyed if HEADER in call.headers else inner)(scope, receive, send)

    return run


def admit_body(call: Call, rules: Rules) -> None:
    """Lets the body of ``call`` through if it is of a kind and a size that the route takes.

    Raises:
        Problem: 415 for another media type or encoding, 413 for a body that is too large.
    """
    if call.body is None and not rules.accepts:
        return
    given = call.headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
    if "*/*" not in rules.accepts and given not in rules.accepts:
        allowed = f"one of {', '.join(rules.accepts)}" if rules.accepts else "no body at all"
        raise Problem(415, f"the body is {given or 'of no media type'!s}; this route takes {allowed}")
    if call.body is not None:
        call.body.admit(rules.body_bytes)
