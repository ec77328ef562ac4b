"""A real HTTP server on the loopback that speaks the APIs of OpenAI and Anthropic; its model is a script or a function.

Use it as a fixture's value, or in a ``with``::

    with LoopbackServer() as server:
        client = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)  # url ends in /v1
        claude = anthropic.Anthropic(base_url=server.root, api_key="k", max_retries=0)  # root does not
        server.script = ["hello", Answer(tool_calls=[ToolCall("add", {"a": 1})]), Fault(429)]

Each request takes the first entry of ``script``: a text, an ``Answer`` (text, calls of tools, tokens, finish reason,
logprobs, delays, a stream that breaks off) or a ``Fault`` (any status, body, headers, delay; a connection that is hung
up or drips). When the script is empty, ``model`` answers: a function of the text of the last message, which returns a
text or an ``Answer``; without one the answer is ``echo: <that text>``, so that many clients at once can tell their
answers apart.

Spoken are ``POST /v1/chat/completions``, ``POST /v1/responses`` and ``POST /v1/messages``, whole or, where the request
says ``stream``, as server-sent events in small pieces; chat completions end with a usage chunk where
``stream_options.include_usage`` is set. ``POST /v1/embeddings`` gives each text ``vector(text)``, as numbers or in
base64 as the request says. ``GET /v1/models`` lists one model. Requests that came are in ``requests``
(bodies), ``paths`` and ``headers`` (of any case), in their order. An Answer has 5 input tokens and 2 output tokens
unless it says otherwise.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from tests import loopback_formats as formats
from tests.loopback_formats import JSON, Answer, ToolCall
from tests.waiting import PATIENCE_SECONDS

__all__ = ["Answer", "Fault", "LoopbackServer", "ToolCall"]

_FORMATS: dict[str, tuple[Callable[[Answer, JSON, int], JSON], Callable[[Answer, JSON, int], Iterator[str]]]] = {
    "/v1/chat/completions": (formats.chat_completion, formats.chat_events),
    "/v1/responses": (formats.response, formats.response_events),
    "/v1/messages": (formats.message, formats.message_events),
}
_EMBEDDINGS = "/v1/embeddings"
_MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "created": formats.CREATED, "owned_by": "us"}]}


class Fault(NamedTuple):
    """What one request gets in the place of an answer."""

    status: int = 200
    body: bytes = b'{"error": {"message": "busy", "type": "server_error", "param": null, "code": null}}'
    headers: tuple[tuple[str, str], ...] = ()
    delay_seconds: float = 0.0
    drip_seconds: float = 0.0
    """Between two bytes of the body."""
    hang_up: bool = False


class LoopbackServer:
    """Answers with the ``script``, then with ``model(text of the last message)``.

    Attributes:
        url: the base URL of OpenAI clients, with ``/v1``.
        root: the same without ``/v1``, for Anthropic's.
        clients: what ``close`` closes before the server.
        num_in_flight_max: the most requests that were answered at the same time.
    """

    def __init__(
        self,
        model: Callable[[str], str | Answer] = "echo: {}".format,
        script: Sequence[str | Answer | Fault] = (),
        vector: Callable[[str], Sequence[float]] = formats.vector_of,
    ) -> None:
        self.model = model
        self.vector = vector
        self.script: list[str | Answer | Fault] = list(script)
        self.requests: list[JSON] = []
        self.headers: list[Message] = []
        self.paths: list[str] = []
        self.clients: list[Any] = []
        self.num_in_flight_max = 0
        self._num_in_flight = 0
        self._lock = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self.root = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.url = f"{self.root}/v1"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answers one request."""
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        path = handler.path.partition("?")[0]
        with self._lock:
            self.requests.append(body)
            self.headers.append(handler.headers)
            self.paths.append(path)
            number = len(self.requests)
            said = self.script.pop(0) if self.script else None
            self._num_in_flight += 1
            self.num_in_flight_max = max(self.num_in_flight_max, self._num_in_flight)
        try:
            self._send(handler, path, body, number, said)
        except OSError:
            handler.close_connection = True  # the client gave up, which is what the test wants
        finally:
            with self._lock:
                self._num_in_flight -= 1

    def _send(
        self, handler: BaseHTTPRequestHandler, path: str, body: JSON, number: int, said: str | Answer | Fault | None
    ) -> None:
        if path == _EMBEDDINGS and said is None:
            _send_body(handler, 200, json.dumps(formats.embeddings(self.vector, body)).encode())
            return
        if path not in _FORMATS and not isinstance(said, Fault):
            said = Fault(404, b'{"error": {"message": "no such path"}}')
        if said is None:
            said = self.model(formats.prompt_of(path, body))
        if isinstance(said, Fault):
            _send_fault(handler, said)
            return
        answer = Answer(said) if isinstance(said, str) else said
        time.sleep(answer.delay_seconds)
        whole, events = _FORMATS[path]
        if body.get("stream"):
            _send_stream(handler, answer, events(answer, body, number))
        else:
            _send_body(handler, 200, json.dumps(whole(answer, body, number)).encode(), answer.headers)

    def close(self) -> None:
        """Closes ``clients``, then the server; connections that are open end with their clients."""
        for client in self.clients:
            client.close()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)


class _Server(ThreadingHTTPServer):
    owner: LoopbackServer
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # status, headers and body leave together
    server: _Server

    def do_POST(self) -> None:
        self.server.owner.answer(self)

    def do_GET(self) -> None:
        is_known = self.path == "/v1/models"
        _send_body(self, 200 if is_known else 404, json.dumps(_MODELS if is_known else {}).encode())

    def log_message(self, *args: Any) -> None:
        """Says nothing."""


def _send_body(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()
) -> None:
    handler.send_response(status)
    given = {name for name, _ in headers}
    if "Content-Type" not in given:
        handler.send_header("Content-Type", "application/json")
    for name, value in (*headers, ("Content-Length", str(len(body)))):
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def _send_fault(handler: BaseHTTPRequestHandler, fault: Fault) -> None:
    time.sleep(fault.delay_seconds)
    if fault.hang_up:
        handler.close_connection = True
        return
    if not fault.drip_seconds:
        _send_body(handler, fault.status, fault.body, fault.headers)
        return
    handler.send_response(fault.status)
    for name, value in (*fault.headers, ("Content-Length", str(len(fault.body)))):
        handler.send_header(name, value)
    handler.end_headers()
    for byte in fault.body:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        time.sleep(fault.drip_seconds)


def _send_stream(handler: BaseHTTPRequestHandler, answer: Answer, events: Iterator[str]) -> None:
    handler.send_response(200)
    for name, value in (
        ("Content-Type", "text/event-stream; charset=utf-8"),
        ("Cache-Control", "no-cache"),
        ("Transfer-Encoding", "chunked"),
        *answer.headers,
    ):
        handler.send_header(name, value)
    handler.end_headers()
    for number, event in enumerate(events):
        if number == answer.cut_after:
            handler.wfile.flush()
            handler.close_connection = True
            return
        if number > 1 and answer.gate is not None and not answer.gate.wait(PATIENCE_SECONDS):
            raise ConnectionAbortedError("nobody let it go on")
        if number and answer.pause_seconds:
            time.sleep(answer.pause_seconds)
        data = event.encode()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        handler.wfile.flush()
    handler.wfile.write(b"0\r\n\r\n")
