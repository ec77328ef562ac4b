"""An application: groups of routes behind the one layer that every request passes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from learnloop.serve.http.middleware import Middleware
from learnloop.serve.http.openapi import describe
from learnloop.serve.http.operations import Lifespan, Operations
from learnloop.serve.http.site import Site

_log = logging.getLogger(__name__)
_END_SECONDS = 2.0


class Application(FastAPI):
    """FastAPI with our middleware in the place of its own.

    Args:
        site: what differs from other applications.
        groups: the routes.
        shared: what the routes share: given to the lifespans of the groups, endpoints find it at ``request.app``.
        lifespan: what must be there before the lifespans of the groups begin, and until they have ended.
    """

    def __init__(
        self, site: Site, groups: Sequence[Operations], shared: Any = None, *, lifespan: Lifespan | None = None
    ) -> None:
        super().__init__(
            title=site.about.title,
            version=site.about.version,
            openapi_url=None,
            redirect_slashes=False,
            lifespan=_lifespan,
            telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
        )
        self.site = site
        self.groups = tuple(groups)
        self.shared = shared
        self.outer_lifespan = lifespan
        for group in groups:
            self.router.routes.extend(group.routes)
        self._middleware = Middleware(self.router, site, self.groups)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request; those of other kinds, such as the server's start and end, go FastAPI's way."""
        if scope["type"] == "http":
            scope["app"] = self
            await self._middleware(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """Returns the layer that takes the place of FastAPI's own."""
        return self._middleware

    def openapi(self) -> dict[str, Any]:
        """Returns the description of all routes (OpenAPI 3.1)."""
        if self.openapi_schema is None:
            self.openapi_schema = describe(self.site, self.groups)
        return self.openapi_schema


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    if not isinstance(app, Application):
        raise TypeError(f"{app!r} is not an Application")
    async with AsyncExitStack() as outer:
        if app.outer_lifespan is not None:
            await outer.enter_async_context(app.outer_lifespan(app.shared))
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
