"""The application: all groups of routes over an open workspace, and what runs beside them all."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from learnloop.core.errors import LearnloopError
from learnloop.loop import Workspace
from learnloop.loop.traces.retention import apply_retention
from learnloop.loop.workspace.idempotent_answers import remove_old_answers
from learnloop.serve.http.application import Application
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.problems import Problem
from learnloop.serve.options import ServeOptions
from learnloop.serve.routes import decision_policies, decisions, episodes, health, otlp, rewards
from learnloop.serve.service import Service, beside
from learnloop.traces.search import catch_up

RETENTION_SECONDS = 3600.0
INDEX_SECONDS = 20.0
"""Between two looks at what is not indexed yet."""
_STEP_SECONDS = 1.0
"""How long the index may fill at a time; the rest waits for the next look."""

_log = logging.getLogger("learnloop.serve")


@asynccontextmanager
async def _started(service: Service) -> AsyncIterator[None]:
    """Keeps running what all routes need, and what a server does for its store beside answering."""
    service.keys.start()
    service.threads.start()
    try:
        async with beside(_keep(service)):
            yield
    finally:
        service.keys.stop()
        service.threads.close(1.0)


async def _keep(service: Service) -> None:
    """Removes what has expired, and indexes what is searched, until it is cancelled."""
    removed_at = float("-inf")
    while True:
        try:
            if time.monotonic() - removed_at >= RETENTION_SECONDS:
                removed_at = time.monotonic()
                removal = await service.call(apply_retention, service.workspace)
                if removal is not None:
                    _log.info("expired and removed: %s", removal)
                await service.call(remove_old_answers, service.workspace)
            await service.call(catch_up, service.workspace.store, seconds=_STEP_SECONDS)
        except (LearnloopError, Problem) as error:  # the store is busy or away; the next look tries again
            _log.warning("background jobs on the store are put off: %s", error)
        await asyncio.sleep(INDEX_SECONDS)


_STARTED = Operations("background jobs", lifespan=_started)
"""No routes: what has to be there before the lifespans of the others begin, and until they have ended."""

GROUPS: tuple[Operations, ...] = (
    _STARTED,
    health.operations,
    episodes.operations,
    decisions.operations,
    decision_policies.operations,
    rewards.operations,
    otlp.operations,
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
    return Application(service.site, (*GROUPS, *extra), service)
