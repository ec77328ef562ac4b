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

from learnloop.core import errors
from learnloop.core.records import ApiScope
from learnloop.serve import Operations, Problem, Service, answer, call_of, read_body, read_json, service_of


class Thing(msgspec.Struct, forbid_unknown_fields=True):
    """What the probe takes."""

    name: str
    value: float = 0.0
    parts: list[Any] = []


def plain_error(scope: Scope, problem: Problem) -> tuple[bytes, str]:
    """Errors of the group ``plain``."""
    return f"{problem.status}: {problem.detail}".encode(), "text/x-error"


class Part:
    """What a lifespan keeps for its routes."""

    is_open = False


@asynccontextmanager
async def keeping(service: Service) -> AsyncIterator[None]:
    part = Part()
    part.is_open = True
    service.add(part)
    yield
    part.is_open = False


probes = Operations("probes", lifespan=keeping)
plain = Operations("plain", error_body=plain_error)


@probes.post("/probe/things", scope=ApiScope.ACT, request=Thing, response=Thing, status=201)
async def add_probe_thing(request: Request) -> Response:
    """Give the thing back."""
    return answer(await read_json(request, Thing), 201)


@probes.post("/probe/size", scope=ApiScope.INGEST, accepts=("application/json", "application/x-bytes"))
async def measure_probe_body(request: Request) -> Response:
    """Say how long the body is."""
    return answer(len(await read_body(request)))


@probes.post("/probe/large", scope=ApiScope.INGEST, accepts=("*/*",), body_bytes=20 << 20)
async def measure_large_probe_body(request: Request) -> Response:
    """Say how long a larger body is."""
    return answer(len(await read_body(request)))


@probes.get("/probe/call", scope=ApiScope.READ)
async def get_probe_call(request: Request) -> Response:
    """Say who calls."""
    call = call_of(request.scope)
    part = service_of(request).part(Part)
    return answer({"id": call.request_id, "key": None if call.key is None else call.key.name, "part": part.is_open})


@probes.get("/probe/fail/{name}", scope=ApiScope.READ)
async def fail_probe(request: Request, name: str) -> Response:
    """Raise the error of that name."""
    if name == "bug":
        raise ValueError("the secret inside")
    kind = getattr(errors, name)
    if kind is errors.MissingExtraError:
        raise kind("this", "torch")
    raise kind(f"{name} happened in {service_of(request).workspace.settings.home}")


@probes.get("/probe/stream", scope=ApiScope.READ)
async def stream_probe(request: Request) -> Response:
    """Send three parts, one after the other; break off where asked to."""

    async def parts() -> AsyncIterator[bytes]:
        for number in range(3):
            yield f"{number}\n".encode()
            await asyncio.sleep(0.05)
            if request.query_params.get("break"):
                raise ValueError("half way")

    return StreamingResponse(parts(), media_type="text/plain")


@probes.post("/probe/stream", scope=ApiScope.READ)
async def stream_long_probe(request: Request) -> Response:
    """Send a part every now and then for as long as the body says."""
    seconds = await read_json(request, float)

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(int(seconds / 0.1)):
            await asyncio.sleep(0.1)
            yield b"."

    return StreamingResponse(parts(), media_type="text/plain")


@probes.route("DELETE", "/probe/things", scope=ApiScope.ADMIN, status=204)
async def delete_probe_things(request: Request) -> Response:
    """Delete nothing."""
    return Response(status_code=204)


@plain.post("/plain/things/{name}", scope=ApiScope.INGEST)
async def add_plain_thing(request: Request, name: str) -> Response:
    """Take a thing, with errors of its own form."""
    return answer({"name": name, "thing": await read_json(request, Thing)})
