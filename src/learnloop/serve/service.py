"""What the routes of a server share: the store, the threads, the keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request

from learnloop.core.ids import new_id
from learnloop.core.records import ApiScope
from learnloop.core.version import __version__
from learnloop.loop import Workspace
from learnloop.loop.workspace.api_keys import list_keys
from learnloop.serve.http.problems import ErrorTable
from learnloop.serve.http.site import About, Site
from learnloop.serve.http.threads import Threads
from learnloop.serve.kept_answers import StoredAnswers
from learnloop.serve.key_ring import CREDENTIALS, KeyRing
from learnloop.serve.options import ServeOptions
from learnloop.serve.problems import HIDDEN, STATUSES

P = ParamSpec("P")
T = TypeVar("T")


ABOUT = About(
    title="learnloop",
    version=__version__,
    summary="Self-hosted learning loop for AI agents.",
    description=(
        "Every error is a problem (RFC 9457). Once a key exists, each route but `/health` and `/livez` needs one: "
        "`Authorization: Bearer llk_...`."
    ),
    problem_types="urn:learnloop:problem:",
    realm="learnloop",
    host_advice="start it with --allow-host NAME",
    origin_advice="start the server with --allow-origin ORIGIN",
    path_advice="GET /openapi.json lists them",
)


class Service:
    """The shared things of one server; an endpoint gets it with ``service_of(request)``.

    Args:
        workspace: an open one; it stays its owner's, who closes it.
        options: how the server listens.
    """

    def __init__(self, workspace: Workspace, options: ServeOptions) -> None:
        self.workspace = workspace
        self.options = options
        self.keys = KeyRing(lambda: list_keys(workspace), options.key_seconds)
        self.threads = Threads(options.limits.num_threads, options.limits.num_waiting, "learnloop-serve")
        errors = ErrorTable(STATUSES, HIDDEN, self._scrubbed)
        self.site = Site(
            about=ABOUT,
            limits=options.limits,
            hosts=(options.host, *options.allow_hosts),
            origins=options.allow_origins,
            errors=errors,
            identify=self.keys.identify,
            credentials=CREDENTIALS,
            full_scope=ApiScope.ADMIN,
            answers=StoredAnswers(workspace, self.threads, errors),
            new_id=new_id,
        )
        self._parts: dict[type, object] = {}

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns what a blocking function, such as one of the facade, returns; it runs in a thread.

        Raises:
            Problem: 503, too many calls wait already.
        """
        return await self.threads.call(function, *args, **kwargs)

    def _scrubbed(self, error: Exception) -> str:
        """Returns an error's words without the place of the store, which is none of a client's business."""
        settings, text = self.workspace.settings, str(error)
        for place in (settings.database_file, settings.shown_database, settings.home):
            if place is not None:
                text = text.replace(str(place), "the store")
        return text

    def add(self, part: object) -> None:
        """Keeps ``part``, made by the lifespan of a group of routes, for its endpoints."""
        self._parts[type(part)] = part

    def part(self, kind: type[T]) -> T:
        """Returns the part of ``kind`` that ``add`` was given."""
        found = self._parts[kind]
        if not isinstance(found, kind):
            raise TypeError(f"{found!r} is not a {kind.__name__}")
        return found


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs ``work`` beside what is within, and ends it after that."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def service_of(request: Request) -> Service:
    """Returns the shared things of the server that got ``request``."""
    service: Service = request.app.shared
    return service
