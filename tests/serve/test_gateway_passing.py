"""What passes the gateway, byte for byte, and what does not: against a server that shows what came to it."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from learnloop.core.records import Episode, Span, SpanStatus
from learnloop.loop import Workspace
from learnloop.serve.routes.gateway import Gateway, GatewayOptions, make_gateway
from learnloop.serve.routes.gateway_runs import RunName, Runs
from learnloop.serve.service import Service
from learnloop.traces.conversation.dialects.openai import ChatCompletions
from learnloop.traces.conversation.messages import text_of
from learnloop.traces.recording.clients.calls import ModelCall
from tests.serve.conftest import Running, Start
from tests.serve.running import read_all, status_of
from tests.traces.sink import Sink
from tests.waiting import PATIENCE_SECONDS, eventually

ASK = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
STREAM = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]})
SAID = {"id": "c", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}}]}
DELTA = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "hel"}}]}

Answering = Callable[[BaseHTTPRequestHandler], None]


class Upstream:
    """A server whose answers a test writes itself."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.headers: list[list[tuple[str, str]]] = []
        self.bodies: list[bytes] = []
        self.answering: Answering = answer()
        self.num_left = 0
        """Clients that were gone when something was written to them, or waited for."""
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                super().handle_one_request()

            def log_message(self, *args: Any) -> None:
                pass

            def _answer(self) -> None:
                upstream.lines.append(self.requestline)
                upstream.headers.append([(key.lower(), value) for key, value in self.headers.items()])
                upstream.bodies.append(self.rfile.read(int(self.headers.get("content-length") or 0)))
                try:
                    upstream.answering(self)
                except OSError:
                    upstream.num_left += 1
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _answer

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def answer(
    body: bytes = json.dumps(SAID).encode(),
    status: int = 200,
    *headers: tuple[str, str],
    kind: str = "application/json",
) -> Answering:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for key, value in headers:
            handler.send_header(key, value)
        if status not in (204, 304):
            handler.send_header("content-type", kind)
            handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body if status not in (204, 304) else b"")

    return send


def wait_until_left(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.settimeout(PATIENCE_SECONDS)
    if handler.connection.recv(1) == b"":
        raise ConnectionResetError


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    started = Upstream()
    yield started
    started.close()


@pytest.fixture
def gateway(start: Start, upstream: Upstream) -> Running:
    return start(make_gateway(GatewayOptions(upstream=upstream.url)))


def chats(workspace: Workspace, number: int = 1) -> list[Span]:
    def found() -> list[Span]:
        return list(workspace.store.iterate(Span, where={"operation": "chat"}))

    assert eventually(lambda: len(found()) == number), f"{len(found())} spans, not {number}"
    return found()


def part(server: Running) -> Gateway:
    service: Service = server.app.shared
    return service.part(Gateway)


@pytest.mark.parametrize(
    "path", ["/files/a%2Fb", "/x%3Fy=1/z", "/a%23b", "//double", "/q?a=1&b=%26c&a=2", "/sp%20ace", "/%E2%82%AC"]
)
def test_paths_and_queries_pass_unchanged(gateway: Running, upstream: Upstream, path: str) -> None:
    assert gateway.ask("GET", f"/gateway{path}").status == 200
    assert upstream.lines == [f"GET /v1{path} HTTP/1.1"]


@pytest.mark.parametrize("path", ["/../admin", "/a/%2e%2e/%2E%2e/admin", "/./a", "/@task=t/../x", "/a/.."])
def test_no_path_leads_out_of_the_base_url(gateway: Running, upstream: Upstream, path: str) -> None:
    assert (
        status_of(gateway.raw(f"GET /gateway{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()))
        == 422
    )
    assert upstream.lines == []


@pytest.mark.parametrize(
    "path", ["/@run=a%0d%0aX-Evil:%201/models", "/%0d%0aX-Evil:%201", "/@task=a@evil.example/models"]
)
def test_nothing_in_a_path_becomes_a_header_or_a_host(gateway: Running, upstream: Upstream, path: str) -> None:
    status = gateway.ask("GET", f"/gateway{path}").status
    assert status == (404 if "%0a" in path else 200)
    assert all("x-evil" not in dict(headers) for headers in upstream.headers)
    assert all(line.startswith("GET /v1/") and "\n" not in line for line in upstream.lines)


def test_cookies_of_one_agent_are_not_sent_with_the_call_of_another(gateway: Running, upstream: Upstream) -> None:
    upstream.answering = answer(b"{}", 200, ("set-cookie", "who=first; Path=/"), ("set-cookie", "b=2"))
    data = gateway.raw(b"GET /gateway/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert data.lower().count(b"set-cookie:") == 2
    gateway.ask("GET", "/gateway/models")
    assert [dict(each).get("cookie") for each in upstream.headers] == [None, None]
    gateway.ask("GET", "/gateway/models", cookie="mine=1")
    assert dict(upstream.headers[2])["cookie"] == "mine=1"
    assert not list(part(gateway).client.cookies.jar)


def test_only_headers_of_the_agent_are_sent_on(gateway: Running, upstream: Upstream) -> None:
    request = (
        f"POST /gateway/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(ASK)}\r\n"
        "Connection: close, X-Hop\r\nX-Hop: 1\r\nX-Twice: a\r\nX-Twice: b\r\nTE: trailers\r\n"
        "X-Api-Key: llk_secret\r\nAuthorization: bearer llk_other\r\nX-Learnloop-Key: llk_third\r\n\r\n" + ASK
    )
    assert status_of(gateway.raw(request.encode())) == 200
    (sent,) = upstream.headers
    names = [name for name, _ in sent]
    assert sorted(set(names) - {"host", "accept-encoding", "content-length", "connection"}) == ["x-twice"]
    assert [value for name, value in sent if name == "x-twice"] == ["a", "b"]
    assert "llk_" not in str(sent)


def test_headers_of_an_answer_pass_once(gateway: Running, upstream: Upstream) -> None:
    upstream.answering = answer(
        b"{}", 429, ("retry-after", "7"), ("x-request-id", "theirs"), ("connection", "X-Hop"), ("x-hop", "1"),
        ("x-learnloop-episode", "made-up"),
    )  # fmt: skip
    data = gateway.raw(b"GET /gateway/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").lower()
    assert status_of(data) == 429
    assert b"retry-after: 7" in data
    assert b"x-upstream-request-id: theirs" in data
    assert (data.count(b"\r\ndate:"), data.count(b"\r\nx-request-id:")) == (1, 1)
    assert b"x-hop" not in data
    assert b"made-up" not in data


@pytest.mark.parametrize("status", [204, 302, 304, 404, 500])
def test_any_status_passes(gateway: Running, upstream: Upstream, status: int) -> None:
    upstream.answering = answer(b"gone", status, ("location", "https://elsewhere.example/x"))
    reply = gateway.ask("GET", "/gateway/models")
    assert (reply.status, reply.headers["location"]) == (status, "https://elsewhere.example/x")
    assert reply.body == (b"" if status in (204, 304) else b"gone")
    assert len(upstream.lines) == 1, "a redirection is the agent's to follow"


def test_compressed_bodies(gateway: Running, upstream: Upstream, workspace: Workspace) -> None:
    """A server may compress though it was asked not to; the agent gets what it sent, the record what it says."""
    packed = gzip.compress(json.dumps(SAID).encode())
    upstream.answering = answer(packed, 200, ("content-encoding", "gzip"))
    reply = gateway.ask("POST", "/gateway/chat/completions", gzip.compress(ASK.encode()), content_encoding="gzip")
    assert (reply.body, reply.headers["content-encoding"]) == (packed, "gzip")
    assert upstream.bodies == [ASK.encode()]
    assert "content-encoding" not in dict(upstream.headers[0])
    (span,) = chats(workspace)
    assert text_of(span.attributes["output"][0]) == "hello"


def test_a_damaged_compressed_answer_passes_and_its_call_ends(
    gateway: Running, upstream: Upstream, workspace: Workspace
) -> None:
    upstream.answering = answer(b"not gzip at all", 200, ("content-encoding", "gzip"))
    assert gateway.ask("POST", "/gateway/chat/completions", ASK).body == b"not gzip at all"
    assert "output" not in chats(workspace)[0].attributes


def test_uploads_pass(gateway: Running, upstream: Upstream) -> None:
    body = b"--b\r\ncontent-disposition: form-data; name=file; filename=a.wav\r\n\r\n\x00\xff\x80RIFF\r\n--b--\r\n"
    upstream.answering = answer(b'{"text": "hello"}')
    kind = "multipart/form-data; boundary=b"
    assert gateway.ask("POST", "/gateway/audio/transcriptions", body, content_type=kind).status == 200
    assert upstream.bodies == [body]
    assert dict(upstream.headers[0])["content-type"] == kind


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_refused(gateway: Running, upstream: Upstream, method: str) -> None:
    data = gateway.raw(f"{method} /gateway/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert 400 <= status_of(data) < 500
    assert upstream.lines == []


def test_an_upgrade_is_answered_as_a_plain_request(gateway: Running, upstream: Upstream) -> None:
    data = gateway.raw(
        b"GET /gateway/realtime HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert status_of(data) != 101
    assert all("upgrade" not in dict(each) for each in upstream.headers)


def leave_after(server: Running, body: str, first: bytes, has_come: Callable[[], Any]) -> None:
    """Asks, reads until ``first`` has come (at once where empty) and the request has too, and hangs up."""
    with server.connect() as connection:
        head = f"POST /gateway/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        data = b""
        while first not in data:
            data += connection.recv(65_536)
        assert eventually(has_come)


@pytest.mark.parametrize("when", ["before the answer", "in the stream"])
def test_an_agent_that_leaves_ends_the_call(
    gateway: Running, upstream: Upstream, workspace: Workspace, when: str
) -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        if when == "in the stream":
            handler.send_response(200)
            handler.send_header("content-type", "text/event-stream")
            handler.end_headers()
            handler.wfile.write(b"data: " + json.dumps(DELTA).encode() + b"\n\n")
        wait_until_left(handler)

    upstream.answering = slow
    leave_after(gateway, STREAM, b"" if when == "before the answer" else b"hel", lambda: upstream.lines)
    assert eventually(lambda: upstream.num_left == 1), "the connection upstream is closed"
    (span,) = chats(workspace)
    if when == "in the stream":
        assert span.attributes["incomplete"] is True
        assert text_of(span.attributes["output"][0]) == "hel"
    else:
        assert span.status is SpanStatus.ERROR
    runs = part(gateway).runs
    assert [run.num_open for run in runs.open_runs.values()] == [0]


def test_a_server_that_stops_ends_open_streams(start: Start, upstream: Upstream, workspace: Workspace) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        while True:
            handler.wfile.write(b"data: " + json.dumps(DELTA).encode() + b"\n\n")
            time.sleep(0.05)

    upstream.answering = endless
    server = start(make_gateway(GatewayOptions(upstream=upstream.url)), drain_seconds=1.0)
    with server.connect() as connection:
        head = f"POST /gateway/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(STREAM)}\r\n\r\n"
        connection.sendall((head + STREAM).encode())
        connection.recv(1000)
        server.stop()
        read_all(connection)
    workspace.store.flush()
    (span,) = chats(workspace)
    assert span.attributes["incomplete"] is True
    (episode,) = workspace.store.iterate(Episode)
    assert episode.truncated
    assert eventually(lambda: upstream.num_left == 1)


@pytest.mark.parametrize("where", ["read_request", "read_response", "join_chunks", "said", "span", "runs"])
def test_a_fault_in_recording_never_fails_the_call(
    gateway: Running, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("recording is broken")

    if where == "said":
        monkeypatch.setattr(ModelCall, "said", property(broken))
    elif where == "span":
        monkeypatch.setattr(ModelCall, "__init__", broken)
    elif where == "runs":
        monkeypatch.setattr(Runs, "end", broken)
    else:
        monkeypatch.setattr(ChatCompletions, where, broken)
    assert gateway.ask("POST", "/gateway/chat/completions", ASK).json() == SAID
    events = b": hello\r\n\r\nevent: x\r\ndata: " + json.dumps(DELTA).encode() + b"\r\n\r\ndata: [DONE]\r\n\r\n"
    upstream.answering = answer(events, kind="text/event-stream")
    assert gateway.ask("POST", "/gateway/chat/completions", STREAM).body == events
    if where != "runs":
        opened = part(gateway).runs.open_runs
        assert eventually(lambda: all(run.num_open == 0 for run in list(opened.values())))


def test_a_stream_with_comments_names_and_any_line_ends_is_read(
    gateway: Running, upstream: Upstream, workspace: Workspace
) -> None:
    chunk = json.dumps(DELTA).encode()

    def pieces(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream; charset=utf-8")
        handler.send_header("connection", "close")
        handler.end_headers()
        data = b": ping\r\n\r\nid: 1\r\nevent: m\r\ndata: " + chunk + b"\r\n\r\ndata:" + chunk + b"\r\rdata: [DONE]\n\n"
        for byte in range(0, len(data), 7):
            handler.wfile.write(data[byte : byte + 7])
            handler.wfile.flush()
        handler.close_connection = True

    upstream.answering = pieces
    assert gateway.ask("POST", "/gateway/chat/completions", STREAM).status == 200
    assert text_of(chats(workspace)[0].attributes["output"][0]) == "helhel"


def test_agents_with_any_names_leave_nothing_behind() -> None:
    sink = Sink()
    time_now = [0.0]
    runs = Runs(sink, 10.0, lambda: time_now[0])
    for number in range(500):
        runs.end(runs.begin(RunName(agent=f"a{number}"), ["m"]), ["m", "n"], answered=True)
    time_now[0] = 20.0
    assert runs.close_idle() == 500
    kept = [value for value in vars(runs).values() if isinstance(value, dict)]
    assert all(not each for each in kept), "neither runs nor recorders nor digests"
