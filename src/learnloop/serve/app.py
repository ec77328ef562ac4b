"""The application: all groups of routes behind the gate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from learnloop.core.version import __version__
from learnloop.loop.workspace.workspace import Workspace
from learnloop.serve import background
from learnloop.serve.http.middleware import Gate
from learnloop.serve.http.openapi import describe
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.options import ServeOptions
from learnloop.serve.routes import decision_policies, decisions, episodes, health, otlp, rewards
from learnloop.serve.service import Service

_log = logging.getLogger("learnloop.serve")
_END_SECONDS = 2.0

GROUPS: tuple[Operations, ...] = (
    health.operations,
    episodes.operations,
    decisions.operations,
    decision_policies.operations,
    rewards.operations,
    otlp.operations,
    background.operations,
)
"""The routes of our own API; a new module of routes adds its ``operations`` here. ``learnloop.compat`` has more."""


class Application(FastAPI):
    """FastAPI with the gate as its only layer.

    Args:
        service: what the routes share.
        groups: the routes.
    """

    def __init__(self, service: Service, groups: Sequence[Operations]) -> None:
        super().__init__(
            title="learnloop",
            version=__version__,
            openapi_url=None,
            redirect_slashes=False,
            lifespan=_lifespan,
            telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
        )
        self.state.service = service
        self.groups = tuple(groups)
        for group in groups:
            self.router.routes.extend(group.routes)
        self._gate = Gate(self.router, service, self.groups)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request; those of other kinds, such as the server's start and end, go FastAPI's way."""
        if scope["type"] == "http":
            scope["app"] = self
            await self._gate(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """Returns the gate, which takes the place of FastAPI's own layers."""
        return self._gate

    def openapi(self) -> dict[str, Any]:
        """Returns the description of all routes (OpenAPI 3.1)."""
        if self.openapi_schema is None:
            self.openapi_schema = describe(self.groups)
        return self.openapi_schema


def create_app(workspace: Workspace, options: ServeOptions | None = None, *extra: Operations) -> Application:
    """Returns the ASGI application over an open workspace, which the caller closes after it.

    Args:
        workspace: whose store it serves.
        options: how it listens; None: as on this machine alone.
        extra: further groups of routes than ``GROUPS``.
    """
    return Application(Service(workspace, options or ServeOptions()), (*GROUPS, *extra))


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    if not isinstance(app, Application):
        raise TypeError(f"{app!r} is no Application")
    service: Service = app.state.service
    service.keys.start()
    service.threads.start()
    stack = AsyncExitStack()
    try:
        for group in app.groups:
            if group.lifespan is not None:
                await stack.enter_async_context(group.lifespan(service))
        yield
    finally:
        service.is_draining = True
        await _end(stack)
        service.keys.stop()
        service.threads.close(1.0)


async def _end(stack: AsyncExitStack) -> None:
    """Ends what the groups keep; one that hangs is left behind, so that the server stops in time."""
    try:
        async with asyncio.timeout(_END_SECONDS):
            await stack.aclose()
    except TimeoutError:
        _log.error("what the routes keep did not end within %g s; it is left behind", _END_SECONDS)
