"""Connections: limits on heads, requests one after the other on one connection, answers without delay."""

from __future__ import annotations

import re
import socket
import time

import pytest

from learnloop.serve import Limits
from tests.serve.conftest import Running, Start, status_of
from tests.serve.probes import probes

GET = b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n"


@pytest.fixture
def server(start: Start) -> Running:
    return start(probes, limits=Limits(header_bytes=8_192, header_seconds=0.5))


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
def test_a_kept_connection_that_drips_is_given_up(server: Running, drip: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(GET + b"\r\n")
        assert connection.recv(65_536)
        began = time.monotonic()
        try:
            while time.monotonic() - began < 10:
                connection.sendall(drip)
                time.sleep(0.1)
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert time.monotonic() - began < 5


def test_an_answer_that_takes_longer_than_a_head_may_is_not_cut(server: Running) -> None:
    """The time limit is on the client's head, not on us."""
    assert server.ask("POST", "/probe/stream", "1.5").body == b"." * 15


def test_small_answers_do_not_wait_for_the_network(server: Running) -> None:
    """A fault of ours: asyncio turns Nagle's algorithm off only for sockets that name their protocol.

    Without, each answer on a kept connection waited some 40 ms for the client's acknowledgement.
    """
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(GET + b"\r\n")
        assert connection.recv(65_536)
        (transport,) = [protocol.transport for protocol in server.server.server_state.connections]
        accepted = transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
