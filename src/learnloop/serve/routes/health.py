"""Is the server there, can it work, and what is it."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from learnloop.core.errors import LearnloopError
from learnloop.core.records import ApiScope, Reward
from learnloop.core.version import __version__
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.serve.http.calls import call_of
from learnloop.serve.http.json_bodies import answer
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.problems import Problem
from learnloop.serve.service import service_of

operations = Operations("server")


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """That all is well; anything else is an error."""

    status: str = "ok"


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """What this server is."""

    version: str
    schema_revision: str
    capabilities: list[str]
    """The groups of routes that it has."""
    scopes: list[ApiScope] | None
    """What the key of this request allows; None: no key exists yet, all is open."""


@operations.get("/livez", scope=None, response=Health)
async def get_liveness(request: Request) -> Response:
    """Say that the process runs."""
    return answer(Health())


@operations.get("/health", scope=None, response=Health)
async def get_health(request: Request) -> Response:
    """Say whether requests can be served: the store answers and its writer lives. 503 where not."""
    service = service_of(request)
    if request.app.site.is_draining:
        raise Problem(503, "the server is about to stop", kind="stopping")
    try:
        await service.call(_probe, service.workspace)
    except LearnloopError as error:
        raise Problem(503, "the store does not answer; see the server's log", kind="store") from error
    return answer(Health())


@operations.get("/v1/info", scope=ApiScope.READ, response=Info)
async def get_info(request: Request) -> Response:
    """Show the version and what this server can do."""
    service = service_of(request)
    caller = call_of(request.scope).caller
    return answer(
        Info(
            version=__version__,
            schema_revision=service.workspace.store.revision,
            capabilities=[group.name for group in request.app.groups if group.routes],
            scopes=None if caller is None else [ApiScope(scope) for scope in caller.scopes],
        )
    )


@operations.get("/openapi.json", scope=ApiScope.READ)
async def get_openapi(request: Request) -> Response:
    """Describe all routes (OpenAPI 3.1)."""
    return answer(request.app.openapi)


def _probe(workspace: WorkspaceCore) -> None:
    """Reads, and has the writer confirm an empty write."""
    workspace.store.last_sequence(Reward)
    workspace.store.write([], timeout_seconds=5.0)
