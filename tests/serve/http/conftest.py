"""A tiny application, which has nothing of learnloop, served in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from learnloop.serve.http.application import Application
from learnloop.serve.http.json_bodies import answer
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.problems import ErrorTable
from learnloop.serve.http.site import About, Site
from tests.serve.http.probes import HIDDEN, STATUSES, Parts, plain, probes
from tests.serve.running import Running, Start

tiny = Operations("tiny")


@tiny.get("/livez", scope=None)
async def live(request: Request) -> Response:
    """Say that it lives."""
    return answer("yes")


def site(**given: Any) -> Site:
    """Returns the site of the tiny application."""
    about = About(title="tiny", version="1", problem_types="urn:tiny:", path_advice="look around")
    errors = ErrorTable(STATUSES, HIDDEN, lambda error: str(error).replace("/home/me", "home"))
    return Site(**{"about": about, "errors": errors, **given})


def run(*groups: Operations, **given: Any) -> Running:
    """Serves the tiny application with ``groups``."""
    return Running(Application(site(**given), (tiny, *groups), Parts()))


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    """One server for all tests of a file."""
    server = run(probes, plain, hosts=("loop.example.com",))
    yield server
    server.stop()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts servers: ``start(*groups, **fields of Site)``."""
    started: list[Running] = []

    def begin(*groups: Operations, **given: Any) -> Running:
        started.append(run(*groups, **given))
        return started[-1]

    yield begin
    for server in started:
        server.stop()
