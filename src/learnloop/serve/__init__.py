"""The HTTP API: one application over a workspace, whose routes are FastAPI's, and the server that runs it.

How a module adds routes
========================
A module of routes, one a noun, makes one group and decorates its endpoints::

    operations = Operations("traces")                      # the noun; also its tag in the documentation

    @operations.post("/v1/things", scope=ApiScope.INGEST, request=Thing, response=Made, status=201)
    async def add_thing(request: Request) -> Response:     # the docstring documents the route
        thing = await read_json(request, Thing)            # strict JSON by msgspec; 400/413/422 by themselves
        service = service_of(request)
        made = await service.call(make_thing, service.workspace, thing)    # what blocks runs in a bounded pool
        return answer(made, 201)                           # JSON by msgspec

and adds ``operations`` to ``GROUPS`` in ``serve/app.py``; one that is there only when asked for is given to
``create_app(workspace, options, *extra)`` instead. Paths are whole (no prefixes). The function's name is the
``operationId``, unique and stable: clients name their methods by it. An endpoint that takes nothing but ``request`` is
called directly, without any machinery of FastAPI: use that form for hot routes. Other parameters (query, path) are
FastAPI's and are documented by themselves; a body parameter is refused.

What a route declares (``Operations.route``, ``Rules``)
    ``scope``: what the key must allow (``ApiScope``); None: open to all. ``accepts``: the media types of its body
    (default: JSON for ``post``, no body for ``get``; ``("*/*",)`` any), others are 415. ``body_bytes``: the largest
    body as it arrives, where not the server's 8 MiB. ``request``, ``response``, ``produces``, ``status`` and
    ``responses`` are for the documentation. ``idempotent=True``: an ``Idempotency-Key`` makes the request run once
    (``http.idempotency``; give what is made the id ``call_of(request.scope).effect_id``). ``if_match="must"``,
    ``has_etag``: see ``http.conditional`` (``etag_of``, ``demand_match``, ``tagged``). ``accepts=(NDJSON,)``: see
    ``http.ndjson``. Types are msgspec Structs or what msgspec knows.

What is done before an endpoint runs
    Host, Origin, key and scope, media type, declared size. ``call_of(request.scope)`` tells the id and who asks.
    While the body is read (``read_json``, ``read_body``, ``request.stream()``) its size, its time and its decompression
    (gzip, deflate: the endpoint sees the plain bytes) are limited; such a ``Problem`` is simply let through.

Errors
    Raise ``Problem(status, detail)`` or any ``LearnloopError`` (``service.STATUSES`` maps them). All are answered as
    RFC 9457 problems, or as ``Operations(error_body=...)`` says: a function of the ASGI scope and the ``Problem`` that
    returns the bytes and their media type; it holds for all paths of the group, 401 and 405 included. Anything else
    that is raised is a 500 that tells nothing and is logged with the request id.

Streams and state
    An endpoint may return any Starlette response, a ``StreamingResponse`` too: nothing buffers it. What a group needs
    beside its endpoints (a background task, a client) is an async context manager ``Operations(lifespan=...)`` of the
    ``Service``: it calls ``service.add(part)``, and endpoints get the part with ``service.part(Kind)``.
    ``service.site.is_draining`` is True from the moment at which the server is told to stop.

Not known here: TLS and rate limits by address, which a proxy in front does.
"""

from learnloop.serve.app import create_app
from learnloop.serve.http.application import Application
from learnloop.serve.http.calls import call_of, read_body
from learnloop.serve.http.json_bodies import answer, read_json
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.problems import FieldError, Problem
from learnloop.serve.http.site import RequestLimits
from learnloop.serve.options import ServeOptions
from learnloop.serve.routes.gateway import GatewayOptions, make_gateway
from learnloop.serve.server import Listening, serve
from learnloop.serve.service import Service, service_of

__all__ = [
    "Application",
    "FieldError",
    "GatewayOptions",
    "Listening",
    "Operations",
    "Problem",
    "RequestLimits",
    "ServeOptions",
    "Service",
    "answer",
    "call_of",
    "create_app",
    "make_gateway",
    "read_body",
    "read_json",
    "serve",
    "service_of",
]
