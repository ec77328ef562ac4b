"""What the routes of a server share: the store, the threads, the keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request

from learnloop.core.errors import (
    AuthError,
    ConflictError,
    FormatError,
    LearnloopError,
    MissingExtraError,
    NotFoundError,
    StoreError,
    StoreFullError,
    UnreachableError,
    UsageError,
)
from learnloop.core.ids import new_id
from learnloop.core.records import ApiScope
from learnloop.core.version import __version__
from learnloop.loop import Workspace
from learnloop.loop.workspace.api_keys import list_keys
from learnloop.loop.workspace.idempotent_answers import (
    RUNNING,
    RequestClaim,
    claim_request,
    keep_answer,
    release_request,
)
from learnloop.serve.http.problems import ErrorTable
from learnloop.serve.http.site import About, KeptAnswer, Site
from learnloop.serve.http.threads import Threads
from learnloop.serve.key_ring import CREDENTIALS, KeyRing
from learnloop.serve.options import ServeOptions

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
STATUSES: Mapping[type[Exception], int] = {
    FormatError: 400,
    MissingExtraError: 501,
    UsageError: 422,
    NotFoundError: 404,
    AuthError: 403,
    ConflictError: 409,
    UnreachableError: 503,
    StoreFullError: 507,
    StoreError: 503,
    LearnloopError: 500,
}
"""The status of each error; a class that is not listed has its nearest base's."""

HIDDEN = {
    403: "this is not allowed",
    503: "the store does not answer or refuses; try again later",
    507: "no space is left for the store; free some, nothing of this request was kept",
}
"""What is said in place of an error's own words where these may tell of the server's inside."""


class StoredAnswers:
    """Keeps answers to requests with an ``Idempotency-Key`` in the store of a workspace, for all servers over it.

    Args:
        workspace: whose.
        threads: where the store is called.
        errors: says what an error of the store is to the client.
    """

    def __init__(self, workspace: Workspace, threads: Threads, errors: ErrorTable) -> None:
        self._workspace = workspace
        self._threads = threads
        self._errors = errors

    async def claim(self, answer_id: str, fingerprint: str) -> RequestClaim | KeptAnswer:
        """Claims a request, or returns what is known of it where it is not to be run."""
        found = await self._call(claim_request, answer_id, fingerprint)
        if isinstance(found, RequestClaim):
            return found
        status = None if found.status == RUNNING else found.status
        return KeptAnswer(found.fingerprint, status, found.media_type, found.body)

    async def keep(self, claim: Any, status: int, media_type: str, body: bytes) -> None:
        """Puts the answer in the place of its claim; when this returns it is on the disk."""
        await self._call(keep_answer, claim, status, media_type, body)

    async def release(self, claim: Any) -> None:
        """Gives up a claim, so that the request may be tried again at once."""
        await self._call(release_request, claim)

    async def _call(self, function: Callable[..., T], *args: Any) -> T:
        """Returns what a function of the store returns.

        Raises:
            Problem: the store does not do it, or is too busy.
        """
        try:
            return await self._threads.call(function, self._workspace, *args)
        except LearnloopError as error:
            raise self._errors.problem(error) from error


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
        errors = ErrorTable(STATUSES, HIDDEN, self._hide_place)
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

    def _hide_place(self, error: Exception) -> str:
        """Returns an error's words without the place of the store, which is not a client's business."""
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
