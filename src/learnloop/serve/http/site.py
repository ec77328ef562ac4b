"""What the framework asks of the application that it serves."""

from __future__ import annotations

from typing import Protocol

from starlette.requests import Request

from learnloop.core.records import ApiKey
from learnloop.serve.http.options import ServeOptions
from learnloop.serve.http.problems import Problem


class Site(Protocol):
    """An application's own answers to what every request needs."""

    @property
    def options(self) -> ServeOptions:
        """How the server listens, and its limits."""
        ...

    is_draining: bool
    """The server is about to stop."""

    def identify(self, authorization: bytes | None) -> ApiKey | None:
        """Returns who asks; None where everybody may.

        Raises:
            Problem: 401, it is nobody who may ask.
        """
        ...

    def problem(self, error: Exception) -> Problem:
        """Returns the problem that an error is to the client."""
        ...


def site_of(request: Request) -> Site:
    """Returns the application that got ``request``."""
    site: Site = request.app.state.service
    return site
