"""The recording gateway: an agent's calls of its model pass through it to where they went before, and are recorded.

For agents that nobody may change: they get another base URL and nothing else. ``/gateway/...`` is sent to the base URL
that the server was told, byte for byte, streams as they come. Recording never holds a call up and never fails one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import unquote, urlsplit

import httpx2
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as HttpScope

from learnloop.core.errors import LearnloopError, UnreachableError, UsageError
from learnloop.core.records import ApiScope
from learnloop.loop.traces.gateway import close_left_open
from learnloop.serve.http.calls import read_body
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.problems import Problem
from learnloop.serve.http.site import MIB
from learnloop.serve.routes.gateway_runs import GatewayRun, RunName, Runs
from learnloop.serve.service import Service, beside, service_of
from learnloop.traces.conversation.dialects import dialect_of
from learnloop.traces.conversation.messages import fingerprint
from learnloop.traces.recording.clients.bodies import decoded, events_of
from learnloop.traces.recording.clients.calls import ModelCall

_log = logging.getLogger("learnloop.serve")

PREFIX = "/gateway"
BODY_BYTES = 64 * MIB
MAX_RECORDED_BYTES = 16 * MIB
"""Of one answer; a longer one passes whole and is recorded without its content."""
METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH")
_CONNECT_SECONDS = 10.0
_SWEEP_SECONDS = 5.0
_LEFT_OPEN_SECONDS = 3600.0
_OURS = "x-learnloop-"
_OUR_KEY = "llk_"
_NOT_SENT_ON = frozenset({
    "host", "content-length", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect",
    "proxy-authorization", "proxy-connection", "accept-encoding", "content-encoding", "x-request-id",
})  # fmt: skip
_NOT_SENT_BACK = frozenset({
    "connection", "keep-alive", "trailer", "transfer-encoding", "upgrade", "content-length", "proxy-authenticate",
    "date", "x-learnloop-episode",
})  # fmt: skip
_THEIR_REQUEST_ID = "x-upstream-request-id"
"""How ``x-request-id`` of an answer is called: each of our own answers has one of that name."""
_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class GatewayOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where calls go, and how their runs are told apart."""

    upstream: str
    """The base URL that the agents had before, such as ``https://api.openai.com/v1``."""
    key_env: str | None = None
    """The environment variable with the key of ``upstream``; None: the agents' own key is sent on."""
    idle_seconds: float = 600.0
    """A run that asks nothing for so long has ended."""
    timeout_seconds: float = 600.0
    """Between two pieces of an answer."""

    def __post_init__(self) -> None:
        """Refuses what cannot be an address or a time."""
        parts = urlsplit(self.upstream)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(f"{self.upstream!r} is no base URL; give one such as https://api.openai.com/v1")
        if self.key_env is not None and not os.environ.get(self.key_env):
            raise UsageError(f"the environment variable {self.key_env!r} is not set; put the key of the model into it")
        for name in ("idle_seconds", "timeout_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"{name} is {getattr(self, name)}; give a time above 0")


class Gateway:
    """What the route needs: the connections and the open runs."""

    def __init__(self, service: Service, options: GatewayOptions) -> None:
        self.options = options
        self.base = options.upstream.rstrip("/")
        self.runs = Runs(service.workspace.store.offer, options.idle_seconds)
        self._timeout = httpx2.Timeout(options.timeout_seconds, connect=_CONNECT_SECONDS).as_dict()
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
        cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))  # one agent's are not another's
        self.client = httpx2.AsyncClient(limits=limits, cookies=cookies, follow_redirects=False, trust_env=False)

    def request(self, request: Request, path: str, content: bytes) -> httpx2.Request:
        """Returns what is sent on: the path and the query as they came."""
        query = request.scope["query_string"].decode("latin-1")
        url = f"{self.base}/{path}" + (f"?{query}" if query else "")
        target = f"{urlsplit(self.base).path}{url[len(self.base) :]}".encode("latin-1")
        extensions = {"timeout": self._timeout, "target": target}
        headers = self._headers(request)
        return httpx2.Request(request.method, url, headers=headers, content=content or None, extensions=extensions)

    def _headers(self, request: Request) -> list[tuple[str, str]]:
        key = None if self.options.key_env is None else os.environ[self.options.key_env]
        named = _connection_headers(request.headers.getlist("connection"))
        dropped = _NOT_SENT_ON | named | ({"authorization", "x-api-key", "api-key"} if key is not None else set())
        kept = [
            (name, value)
            for name, value in request.headers.items()
            if name not in dropped and not name.startswith(_OURS) and not _is_our_key(value)
        ]
        kept.append(("accept-encoding", "identity"))
        if key is not None:
            kept += [("authorization", f"Bearer {key}"), ("x-api-key", key)]
        return kept

    async def sweep(self, service: Service) -> None:
        """Ends idle runs from time to time, now and then also those that another process has left open."""
        looked_at = float("-inf")
        while True:
            self.runs.close_idle()
            if time.monotonic() - looked_at >= _LEFT_OPEN_SECONDS:
                looked_at = time.monotonic()
                await self._close_left_open(service)
            await asyncio.sleep(min(_SWEEP_SECONDS, self.options.idle_seconds))

    async def _close_left_open(self, service: Service) -> None:
        try:
            seconds = self.options.idle_seconds
            await service.call(close_left_open, service.workspace, seconds, frozenset(self.runs.open_runs))
        except (LearnloopError, Problem) as error:  # the store is busy or away; the next look finds them too
            _log.warning("episodes that were left open could not be ended: %s", error)


def make_gateway(options: GatewayOptions) -> Operations:
    """Returns the routes of a gateway, for ``create_app``."""

    @asynccontextmanager
    async def lifespan(service: Service) -> AsyncIterator[None]:
        gateway = Gateway(service, options)
        service.add(gateway)
        try:
            async with beside(gateway.sweep(service)):
                yield
        finally:
            gateway.runs.close()
            await gateway.client.aclose()

    operations = Operations("gateway", error_body=_openai_error, error_media=("application/json",), lifespan=lifespan)
    for method in METHODS:
        _add(operations, method)
    return operations


def _add(operations: Operations, method: str) -> None:
    async def endpoint(request: Request) -> Response:
        return await _pass(request, service_of(request).part(Gateway))

    endpoint.__name__ = f"gateway_{method.lower()}"
    endpoint.__doc__ = "Pass a call on to the model's own address, and record it."
    accepts = () if method == "GET" else ("*/*",)
    route = operations.route(
        method, PREFIX + "/{path:path}", scope=ApiScope.INGEST, accepts=accepts, body_bytes=BODY_BYTES, produces="*/*"
    )
    route(endpoint)


async def _pass(request: Request, gateway: Gateway) -> Response:
    name, path = _name_and_path(request)
    content = b"" if request.method == "GET" else await read_body(request)
    sent = gateway.request(request, path, content)
    recording = _begin(gateway, name, path, content) if request.method == "POST" else None
    try:
        answer = await _send_on(gateway, sent, request)
    except BaseException as error:
        if recording is not None:
            recording.end(None, error, is_complete=False)
        if isinstance(error, httpx2.HTTPError):
            raise Problem(502, f"the model's address does not answer: {_words_of(error)}", kind="upstream") from error
        raise
    return _Relay(answer, recording)


async def _send_on(gateway: Gateway, sent: httpx2.Request, request: Request) -> httpx2.Response:
    """Returns the answer as soon as it begins; gives the call up where the agent goes away before.

    Raises:
        ClientDisconnect: it has.
    """
    sending = asyncio.ensure_future(gateway.client.send(sent, stream=True))
    leaving = asyncio.ensure_future(_wait_for_end(request))
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not sending.done():
            raise ClientDisconnect
        return sending.result()
    except BaseException:
        sending.cancel()
        for each in await asyncio.gather(sending, return_exceptions=True):
            if isinstance(each, httpx2.Response):
                await each.aclose()
        raise
    finally:
        leaving.cancel()


async def _wait_for_end(request: Request) -> None:
    """Returns when the agent has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Recording:
    """One call while it passes."""

    def __init__(self, gateway: Gateway, run: GatewayRun, call: ModelCall) -> None:
        self.run = run
        self._runs = gateway.runs
        self._call = call
        self._pieces: list[bytes] = []
        self._num_bytes = 0

    def take(self, piece: bytes) -> None:
        self._call.note_arrival()
        self._num_bytes += len(piece)
        if self._num_bytes <= MAX_RECORDED_BYTES:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def end(self, answer: httpx2.Response | None, error: BaseException | None, *, is_complete: bool) -> None:
        """Records the answer, as far as it came, or that none came (None); never raises."""
        with _unharmed():
            self._end_call(answer, error, is_complete)
        with _unharmed():
            self._call.end_stream(error, is_complete=False)  # changes nothing unless the above failed
        said: list[str] = []
        with _unharmed():
            said = self._call.said
        with _unharmed():
            told = self._call.span.attributes.get("response_id")
            response_id = told if isinstance(told, str) else None
            self._runs.end(self.run, said, answered=self._call.answer is not None, response_id=response_id)

    def _end_call(self, answer: httpx2.Response | None, error: BaseException | None, is_complete: bool) -> None:
        if self._num_bytes > MAX_RECORDED_BYTES:
            self._call.span.set(output_too_large=True)
        if answer is None:
            self._call.fail(error or UnreachableError("no answer came"))
            return
        data = _plain(b"".join(self._pieces), answer.headers.get("content-encoding", ""))
        if answer.status_code >= 400:
            told = data[:500].decode(errors="replace")
            self._call.fail(UnreachableError(f"HTTP {answer.status_code}: {told}"))
        elif answer.headers.get("content-type", "").startswith("text/event-stream"):
            for event in events_of(data):
                self._call.chunk(event)
            self._call.end_stream(error, is_complete=is_complete)
        elif error is not None or not is_complete:
            self._call.end_stream(error, is_complete=False)
        else:
            self._call.end(decoded(data))


class _Relay(StreamingResponse):
    """An answer as it comes; whatever ends it, its connection is given back and the call is recorded."""

    def __init__(self, answer: httpx2.Response, recording: _Recording | None) -> None:
        super().__init__(self._pieces(), answer.status_code)
        self._answer = answer
        self._recording = recording
        self._failure: BaseException | None = None
        self._is_complete = False
        headers = _headers_back(answer)
        if recording is not None:
            headers.append(("x-learnloop-episode", recording.run.episode.episode_id))
        self.raw_headers = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in headers]

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._recording is not None:
                self._recording.end(self._answer, self._failure, is_complete=self._is_complete)
            await self._answer.aclose()

    async def _pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._answer.aiter_raw():
                if self._recording is not None:
                    self._recording.take(piece)
                yield piece
            self._is_complete = True
        except httpx2.HTTPError as error:
            self._failure = error
            raise


def _begin(gateway: Gateway, name: RunName, path: str, content: bytes) -> _Recording | None:
    run: GatewayRun | None = None
    try:
        dialect = dialect_of(path)
        body = None if dialect is None else decoded(content)
        if dialect is None or body is None:
            return None
        asked = dialect.read_request(body)
        told = asked.attributes.get("previous_response_id")
        earlier = told if isinstance(told, str) else None
        run = gateway.runs.begin(name, [fingerprint(each) for each in asked.messages], earlier)
        token = run.recorder.enter(run.episode)
        try:
            return _Recording(gateway, run, ModelCall(run.recorder, dialect, body))
        finally:
            run.recorder.leave(token)
    except Exception:  # noqa: BLE001 - the boundary between capture and the agent: the call goes on unrecorded
        _log.exception("a call could not be recorded")
        if run is not None:
            gateway.runs.end(run, (), answered=False)
        return None


@contextmanager
def _unharmed() -> Iterator[None]:
    """Keeps from the agent what goes wrong in recording; it is logged."""
    try:
        yield
    except Exception:  # noqa: BLE001 - the boundary between capture and the agent: the call goes on
        _log.exception("a call could not be recorded")


def _headers_back(answer: httpx2.Response) -> list[tuple[str, str]]:
    """Returns what is sent back of an answer's headers, each as often as it came."""
    dropped = _NOT_SENT_BACK | _connection_headers(answer.headers.get_list("connection"))
    headers = [(key.lower(), value) for key, value in answer.headers.multi_items()]
    return [
        (_THEIR_REQUEST_ID if key == "x-request-id" else key, value) for key, value in headers if key not in dropped
    ]


def _connection_headers(values: Iterable[str]) -> set[str]:
    """Returns the headers that are for one connection alone (RFC 9110, 7.6.1)."""
    return {word.strip().lower() for value in values for word in value.split(",")}


def _is_our_key(value: str) -> bool:
    return value.rpartition(" ")[2].startswith(_OUR_KEY)


def _plain(data: bytes, encoding: str) -> bytes:
    """Returns an answer decompressed, as far as it is recorded; nothing where its encoding is not known."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return data
    if encoding not in _WINDOW_BITS:
        return b""
    return zlib.decompressobj(_WINDOW_BITS[encoding]).decompress(data, MAX_RECORDED_BYTES)


def _name_and_path(request: Request) -> tuple[RunName, str]:
    """Returns the run that a request names, in ``x-learnloop-...`` headers or as ``/gateway/@task=t,run=r/...``."""
    path = request.scope["raw_path"].decode("latin-1").removeprefix("/").partition("/")[2]  # as it came: with its %2F
    given = {name.removeprefix(_OURS): value for name, value in request.headers.items() if name.startswith(_OURS)}
    given.pop("key", None)
    if path.startswith("@"):
        words, _, path = path[1:].partition("/")
        for word in words.split(","):
            key, is_pair, value = word.partition("=")
            if not is_pair:
                raise UsageError(f"{word!r} says nothing; write key=value, such as task=book-flight")
            given[unquote(key)] = unquote(value)
    if any(unquote(each) in (".", "..") for each in path.split("/")):
        raise UsageError("the path has a '.' or '..' in it, which could lead out of the model's base URL; leave it out")
    return RunName.of(given), path


def _words_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _openai_error(scope: HttpScope, problem: Problem) -> tuple[bytes, str]:
    """Returns an error as clients of models read it."""
    error = {"message": problem.detail, "type": problem.kind, "param": None, "code": problem.status}
    return msgspec.json.encode({"error": error}), "application/json"
