"""The application: all groups of routes over an open workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from learnloop.loop import Workspace
from learnloop.serve import background
from learnloop.serve.http.application import Application
from learnloop.serve.http.operations import Operations
from learnloop.serve.options import ServeOptions
from learnloop.serve.routes import decision_policies, decisions, episodes, health, otlp, rewards
from learnloop.serve.service import Service

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


def create_app(workspace: Workspace, options: ServeOptions | None = None, *extra: Operations) -> Application:
    """Returns the ASGI application over an open workspace, which the caller closes after it.

    Args:
        workspace: whose store it serves.
        options: how it listens; None: as on this machine alone.
        extra: further groups of routes than ``GROUPS``.
    """
    service = Service(workspace, options or ServeOptions())
    return Application(service.site, (*GROUPS, *extra), service, lifespan=_started)


@asynccontextmanager
async def _started(service: Service) -> AsyncIterator[None]:
    """Keeps what all routes need running."""
    service.keys.start()
    service.threads.start()
    try:
        yield
    finally:
        service.keys.stop()
        service.threads.close(1.0)
