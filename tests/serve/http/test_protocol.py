"""Connections: limits on heads, requests one after the other on one connection, answers without delay."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from learnloop.serve.http.operations import Operations
from learnloop.serve.http.protocol import GuardedProtocol, JoinedWrites
from learnloop.serve.http.site import RequestLimits
from tests.serve.http.conftest import run
from tests.serve.http.probes import probes
from tests.serve.running import Running, Start, read_all, status_of
from tests.waiting import costs_at_most, eventually

FLOOD_BYTES = 8 << 20
floods = Operations("floods")


@floods.get("/probe/flood", scope=None)
async def flood(request: Request) -> Response:
    """Send much, in parts."""

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(FLOOD_BYTES >> 16):
            yield b"x" * 65_536

    return StreamingResponse(parts())


GET = b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """One server for all tests of this file; it has patience with clients."""
    running = run(probes, limits=RequestLimits(header_bytes=8_192))
    yield running
    running.stop()


@pytest.fixture
def hasty(start: Start) -> Running:
    return start(probes, limits=RequestLimits(header_seconds=0.5))


@pytest.mark.parametrize(
    "head",
    [
        GET + b"x: " + b"a" * 9_000 + b"\r\n\r\n",
        GET + b"".join(b"x%d: %s\r\n" % (number, b"a" * 80) for number in range(110)) + b"\r\n",
        b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        GET + b"x: " + b"a" * 20_000,
        b"a" * 20_000,
        b"\r\n" * 10_000,
    ],
    ids=["one header", "many headers", "target", "a header without an end", "no HTTP", "empty lines"],
)
def test_a_head_that_is_too_large_is_refused(server: Running, head: bytes) -> None:
    answer = server.raw(head)
    assert status_of(answer) == 400
    assert b"application/problem+json" in answer
    assert server.ask("GET", "/livez").status == 200


def test_a_head_within_the_limit_is_taken(server: Running) -> None:
    assert status_of(server.raw(GET + b"connection: close\r\nx: " + b"a" * 7_000 + b"\r\n\r\n")) == 200


def test_requests_sent_together_are_answered_in_their_order(server: Running) -> None:
    wrong = b"GET /nowhere HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    answer = server.raw(GET + b"\r\n" + wrong + GET + b"connection: close\r\n\r\n")
    assert re.findall(rb"HTTP/1\.1 (\d+) ", answer) == [b"200", b"404", b"200"]


def test_a_large_body_in_one_piece_does_not_count_as_a_head(server: Running) -> None:
    body = b"x" * 200_000
    head = b"POST /probe/large HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/octet-stream\r\n"
    request = head + b"content-length: %d\r\n\r\n" % len(body) + body
    answer = server.raw(request + GET + b"connection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize("drip", [b"\r\n", b"x"])
def test_a_kept_connection_that_drips_is_given_up(hasty: Running, drip: bytes) -> None:
    with hasty.connect() as connection:
        connection.sendall(GET + b"\r\n")
        assert connection.recv(65_536)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(80):  # 8 s or more, and less than heads may take by default
                connection.sendall(drip)
                time.sleep(0.1)


def test_an_answer_that_takes_longer_than_a_head_may_is_not_cut(hasty: Running) -> None:
    """The time limit is on the client's head, not on us."""
    assert hasty.ask("POST", "/probe/stream", "1.0").body == b"." * 10


def test_small_answers_do_not_wait_for_the_network(server: Running) -> None:
    """A fault of ours: asyncio turns Nagle's algorithm off only for sockets that name their protocol.

    Without, each answer on a kept connection waited some 40 ms for the client's acknowledgement.
    """
    with server.connect() as connection:
        connection.sendall(GET + b"\r\n")
        assert connection.recv(65_536)
        (transport,) = [protocol.transport for protocol in server.server.server_state.connections]
        accepted = transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


POST = b"POST /probe/things HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
THING = b'{"name":"a"}'
SIZED = b"content-length: 12\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKS = b"c\r\n" + THING + b"\r\n0\r\n"
LAST = GET + b"connection: close\r\n\r\n"


def statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]


@pytest.mark.parametrize(
    "request_",
    [
        POST + SIZED + CHUNKED + b"\r\n" + CHUNKS + b"\r\n",
        POST + SIZED + SIZED + b"\r\n" + THING,
        POST + b"content-length: +12\r\n\r\n" + THING,
        POST + b"transfer-encoding: xchunked\r\n\r\n" + CHUNKS + b"\r\n",
        POST + b"transfer-encoding: gzip, chunked\r\n\r\n" + CHUNKS + b"\r\n",
        POST + CHUNKED + b"\r\nzz\r\n" + THING,
        POST + CHUNKED + b"\r\n3\r\n" + THING,
        POST + CHUNKED + b"\r\n" + CHUNKS.replace(b"\r\n", b"\n") + b"\n",
        GET + b"x: a\r\n b\r\n\r\n",
        b"GET /livez HTTP/1.1\nhost: 127.0.0.1\n\n",
        b"GET http://evil.example/livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET http://127.0.0.1@evil/livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET /livez#/../v1 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"CONNECT /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET /livez\r\n\r\n",
        b"GET /livez HTTP/2.0\r\nhost: 127.0.0.1\r\n\r\n",
    ],
    ids=[
        *(
            "two lengths",
            "a length twice",
            "a signed length",
            "another coding",
            "two codings",
            "no chunk",
            "long chunk",
        ),
        *("bare LF in chunks", "folded", "bare LF", "another host", "a user"),
        *("fragment", "CONNECT", "CONNECT to a path", "HTTP/0.9", "HTTP/2.0"),
    ],
)
def test_what_others_may_read_in_another_way_is_refused(
    server: Running, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """One answer, at once, and nothing after it is read: a fault of ours was to say nothing where a body is broken."""
    answer = server.raw(request_)
    assert statuses(answer) == [400]
    assert b"application/problem+json" in answer
    assert caplog.text == ""


@pytest.mark.parametrize(
    "request_",
    [
        b"GET http://127.0.0.1/livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        POST + CHUNKED + b"\r\nc;a=b\r\n" + THING + b"\r\n0\r\n\r\n",
        GET + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n",
        POST + SIZED + b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n\r\n" + THING,
        POST + CHUNKED + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n" + CHUNKS + b"\r\n",
        POST + b"content-length: 12\r\nexpect: 100-continue\r\n\r\n" + THING,
    ],
    ids=["whole URL", "extension", "upgrade", "upgrade with a body", "upgrade with chunks", "expect"],
)
def test_what_is_meant_for_others_does_not_disturb(
    server: Running, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of ours: who offered HTTP/2, as Java's client does, lost the body, and what came after it."""
    found = statuses(server.raw(request_ + LAST))
    assert [status for status in found if status != 100] == [201 if request_.startswith(POST) else 200, 200]
    assert caplog.text == ""


def test_the_body_of_a_request_that_offers_another_protocol_is_no_request(server: Running) -> None:
    """A fault of ours: what came in another packet than the head was read as the next request (smuggling)."""
    body = b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    head = POST + b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: %d\r\n\r\n" % len(body)
    with server.connect() as connection:
        connection.sendall(head)
        time.sleep(0.2)
        connection.sendall(body)
        time.sleep(0.2)
        connection.sendall(LAST)
        assert statuses(read_all(connection)) == [400, 200]


def test_a_trailer_is_no_header(server: Running) -> None:
    """A fault of ours: it counted as one, past whatever a proxy does with headers (RFC 9110, section 6.5.1)."""
    trailers = b"x-request-id: smuggled\r\nhost: evil\r\nauthorization: Bearer x\r\n\r\n"
    answer = server.raw(POST + CHUNKED + b"\r\n" + CHUNKS + trailers + LAST)
    assert statuses(answer) == [201, 200]
    assert b"smuggled" not in answer


@pytest.mark.parametrize("rest", [b"xxxx", b"\x00\x01\r\n\r\n", b"GET /" + b"a" * 9_000])
def test_a_whole_request_is_answered_whatever_follows(server: Running, rest: bytes) -> None:
    """A fault of ours: a body longer than its length had the request done and the connection closed without a word."""
    answer = server.raw(POST + SIZED + b"\r\n" + THING + rest)
    assert statuses(answer) == [201]
    assert answer.endswith(b'"parts":[]}')


@pytest.mark.parametrize("begun", [CHUNKS + b"x: ", CHUNKS, b"c;"], ids=["value", "name", "extension"])
def test_what_has_no_end_within_a_body_costs_nothing(server: Running, begun: bytes) -> None:
    """A fault of ours: a trailer was kept, and copied whole with each part that came."""
    part = b"x" * 262_144
    with costs_at_most(1), server.connect() as connection:
        try:
            connection.sendall(POST + CHUNKED + b"\r\n" + begun)
            for _ in range(400):
                connection.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass
        else:
            pytest.fail("100 MB were taken in")


@pytest.mark.parametrize("reads", [False, True])
def test_who_does_not_read_is_cut_off(start: Start, monkeypatch: pytest.MonkeyPatch, *, reads: bool) -> None:
    """A fault of ours: each held one of the requests at once for ever, and so many of them the whole server."""
    monkeypatch.setattr(GuardedProtocol, "write_seconds", 1.0 if reads else 0.4)
    server = start(floods)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"GET /probe/flood HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        assert eventually(lambda: any(each.flow.write_paused for each in server.server.server_state.connections))
        if not reads:
            assert eventually(lambda: not server.server.server_state.connections)
            assert eventually(lambda: not server.server.server_state.tasks)
            return
        num_read = 0
        while part := connection.recv(1 << 20):
            num_read += len(part)
            time.sleep(1.5 * len(part) / FLOOD_BYTES)  # all of it takes longer than a pause may
        assert num_read > FLOOD_BYTES


class Kept:
    """A transport that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.told


def test_head_and_body_go_together_and_a_stream_does_not_wait() -> None:
    async def run() -> None:
        whole, stream, short = Kept(), Kept(), Kept()
        loop = asyncio.get_running_loop()
        writes: Any = JoinedWrites(whole, loop)  # type: ignore[arg-type]
        writes.write(b"head")
        writes.write(b"body")
        writes.write(b"more")
        assert whole.told == [b"headbody", b"more"]
        writes = JoinedWrites(stream, loop)  # type: ignore[arg-type]
        writes.write(b"head")
        assert stream.told == []
        await asyncio.sleep(0)
        assert stream.told == [b"head"]
        writes.write(b"part")
        assert stream.told == [b"head", b"part"]
        told, asked = Kept(), Kept()
        writes = JoinedWrites(told, loop)  # type: ignore[arg-type]
        writes.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
        await asyncio.sleep(0)
        assert told.told == []  # its body comes right behind
        writes.write(b"")
        assert told.told == [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"]
        writes = JoinedWrites(asked, loop, has_body=False)  # type: ignore[arg-type]
        writes.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
        await asyncio.sleep(0)
        assert asked.told == [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"]
        writes = JoinedWrites(short, loop)  # type: ignore[arg-type]
        writes.write(b"head")
        writes.close()
        assert writes.is_closing()
        await asyncio.sleep(0)
        assert short.told == [b"head", "closed"]

    asyncio.run(run())
