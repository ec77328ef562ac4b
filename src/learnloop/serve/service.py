"""What the routes of a server share: the store, the threads, the keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from starlette.requests import Request

from learnloop.core.errors import LearnloopError
from learnloop.core.records import ApiKey
from learnloop.loop.workspace.api_keys import list_keys
from learnloop.loop.workspace.workspace import Workspace
from learnloop.serve.http.options import ServeOptions
from learnloop.serve.http.problems import Problem, problem_of
from learnloop.serve.http.threads import Threads
from learnloop.serve.kept_answers import StoredAnswers
from learnloop.serve.key_ring import KeyRing

P = ParamSpec("P")
T = TypeVar("T")


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
        self.threads = Threads(options.limits.num_threads, options.limits.num_waiting)
        self.answers = StoredAnswers(workspace, self.threads, self.problem)
        self.is_draining = False
        """The server is about to stop: it is not ready any more."""
        self._parts: dict[type, object] = {}

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns what a blocking function, such as one of the facade, returns; it runs in a thread.

        Raises:
            Problem: 503, too many calls wait already.
        """
        return await self.threads.call(function, *args, **kwargs)

    def identify(self, authorization: bytes | None) -> ApiKey | None:
        """Returns the key of an ``Authorization`` header; None where no key exists yet.

        Raises:
            Problem: 401 where keys exist and this is none of them.
        """
        return self.keys.identify(authorization)

    def scrubbed(self, text: str) -> str:
        """Returns an error's words without the place of the store, which is none of a client's business."""
        settings = self.workspace.settings
        for place in (settings.database_file, settings.shown_database, settings.home):
            if place is not None:
                text = text.replace(str(place), "the store")
        return text

    def problem(self, error: Exception) -> Problem:
        """Returns the problem that an error is to the client."""
        if isinstance(error, Problem):
            return error
        if isinstance(error, LearnloopError):
            return problem_of(error, self.scrubbed(str(error)))
        return problem_of(LearnloopError(), "")

    def add(self, part: object) -> None:
        """Keeps ``part``, made by the lifespan of a group of routes, for its endpoints."""
        self._parts[type(part)] = part

    def part(self, kind: type[T]) -> T:
        """Returns the part of ``kind`` that ``add`` was given."""
        found = self._parts[kind]
        if not isinstance(found, kind):
            raise TypeError(f"{found!r} is no {kind.__name__}")
        return found


def service_of(request: Request) -> Service:
    """Returns the shared things of the server that got ``request``."""
    service: Service = request.app.state.service
    return service
