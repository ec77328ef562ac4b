"""Routes that the tests add: they show what an endpoint gets, fail in every way, and take all kinds of bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Scope

from learnloop.serve.http.calls import call_of, read_body
from learnloop.serve.http.json_bodies import answer, read_json
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.problems import Problem


class Thing(msgspec.Struct, forbid_unknown_fields=True):
    """What the probe takes."""

    name: str
    value: float = 0.0
    parts: list[Any] = []


def plain_error(scope: Scope, problem: Problem) -> tuple[bytes, str]:
    """Errors of the group ``plain``."""
    return f"{problem.status}: {problem.detail}".encode(), "text/x-error"


class TakenError(Exception):
    """An error of the tiny application."""


class TakenTwiceError(TakenError):
    """One that its table does not list."""


class ShyError(Exception):
    """One whose words are not for everybody."""


STATUSES: dict[type[Exception], int] = {TakenError: 409, ShyError: 503}
HIDDEN = {503: "it does not work now"}
FAILURES = {"taken": TakenError, "taken-twice": TakenTwiceError, "shy": ShyError, "bug": ValueError}


class Parts:
    """What the routes of the tiny application share, by its type."""

    def __init__(self) -> None:
        self._parts: dict[type, Any] = {}

    def add(self, part: object) -> None:
        self._parts[type(part)] = part

    def part(self, kind: type) -> Any:
        return self._parts[kind]


class Part:
    """What a lifespan keeps for its routes."""

    is_open = False


@asynccontextmanager
async def keeping(shared: Any) -> AsyncIterator[None]:
    part = Part()
    part.is_open = True
    shared.add(part)
    yield
    part.is_open = False


probes = Operations("probes", lifespan=keeping)
plain = Operations("plain", error_body=plain_error, error_media=("text/x-error",))


@probes.post("/probe/things", scope="act", request=Thing, response=Thing, status=201)
async def add_probe_thing(request: Request) -> Response:
    """Give the thing back."""
    return answer(await read_json(request, Thing), 201)


@probes.post("/probe/size", scope="ingest", accepts=("application/json", "application/x-bytes"))
async def measure_probe_body(request: Request) -> Response:
    """Say how long the body is."""
    return answer(len(await read_body(request)))


@probes.post("/probe/large", scope="ingest", accepts=("*/*",), body_bytes=20 << 20)
async def measure_large_probe_body(request: Request) -> Response:
    """Say how long a larger body is."""
    return answer(len(await read_body(request)))


@probes.get("/probe/call", scope="read")
async def get_probe_call(request: Request) -> Response:
    """Say who calls."""
    call = call_of(request.scope)
    part = request.app.shared.part(Part)
    caller = None if call.caller is None else call.caller.name
    return answer({"id": call.request_id, "caller": caller, "part": part.is_open})


@probes.get("/probe/fail/{name}", scope="read")
async def fail_probe(request: Request, name: str) -> Response:
    """Raise the error of that name."""
    raise FAILURES[name](f"the secret inside of /home/me: {name}")


@probes.get("/probe/stream", scope="read")
async def stream_probe(request: Request) -> Response:
    """Send three parts, one after the other; break off where asked to."""

    async def parts() -> AsyncIterator[bytes]:
        for number in range(3):
            yield f"{number}\n".encode()
            await asyncio.sleep(0.05)
            if request.query_params.get("break"):
                raise ValueError("half way")

    return StreamingResponse(parts(), media_type="text/plain")


@probes.post("/probe/stream", scope="read")
async def stream_long_probe(request: Request) -> Response:
    """Send a part every now and then for as long as the body says."""
    seconds = await read_json(request, float)

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(int(seconds / 0.1)):
            await asyncio.sleep(0.1)
            yield b"."

    return StreamingResponse(parts(), media_type="text/plain")


@probes.route("DELETE", "/probe/things", scope="admin", status=204)
async def delete_probe_things(request: Request) -> Response:
    """Delete nothing."""
    return Response(status_code=204)


@plain.post("/plain/things/{name}", scope="ingest")
async def add_plain_thing(request: Request, name: str) -> Response:
    """Take a thing, with errors of its own form."""
    return answer({"name": name, "thing": await read_json(request, Thing)})
