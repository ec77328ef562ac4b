"""What a server does for its store beside answering: it removes what has expired, and indexes what is searched."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from learnloop.core.errors import LearnloopError
from learnloop.loop.traces.retention import apply_retention
from learnloop.loop.workspace.idempotent_answers import remove_old_answers
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.problems import Problem
from learnloop.serve.service import Service, beside
from learnloop.traces.search import catch_up

RETENTION_SECONDS = 3600.0
INDEX_SECONDS = 20.0
"""Between two looks at what is not indexed yet."""
_STEP_SECONDS = 1.0
"""How long the index may fill at a time; the rest waits for the next look."""

_log = logging.getLogger("learnloop.serve")


@asynccontextmanager
async def _lifespan(service: Service) -> AsyncIterator[None]:
    async with beside(_keep(service)):
        yield


operations = Operations("background jobs", lifespan=_lifespan)
"""No routes: only what runs beside them."""


async def _keep(service: Service) -> None:
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
