"""The client of benchmark ``service``: it counts each answer once, and waits where an agent is late."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from benchmarks.http_load import closed_loop, open_loop, post


@contextmanager
def serving(seconds: float, status: int = 200) -> Iterator[tuple[int, list[bytes]]]:
    """Gives the port of a server that takes so long for each answer, and the bodies that it got."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            time.sleep(seconds)
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port, bodies
    finally:
        server.shutdown()
        server.server_close()


REQUESTS = [post("/a", b'{"a": 1}'), post("/a", b'{"b": 2}')]


def test_a_closed_loop_has_an_answer_for_each_request() -> None:
    with serving(0.01) as (port, bodies):
        load = closed_loop(port, REQUESTS, 4, 0.5)
    assert load.num_answers == len(bodies) == len(load.latencies)
    assert set(bodies) == {b'{"a": 1}', b'{"b": 2}'}
    assert load.latencies.min() >= 0.01
    assert load.rate == pytest.approx(load.num_answers / load.seconds)


def test_an_open_loop_counts_from_when_a_request_was_due() -> None:
    """An agent that asks every 20 ms of a server that takes 50 or more waits longer each time, by 30 ms or more."""
    with serving(0.05) as (port, bodies):
        load = open_loop(port, REQUESTS, 1, 50.0, 0.4)
    assert load.num_answers == len(bodies) == 20
    assert load.latencies[0] >= 0.05
    assert np.diff(load.latencies).min() >= 0.03 - 1e-6


@pytest.mark.parametrize(("rate", "seconds"), [(10.0, 0.3), (49.0, 0.2), (300.0, 0.1)])
def test_an_open_loop_asks_as_often_as_it_should(rate: float, seconds: float) -> None:
    """A fault of ours: moments that were added up were now and then one more than the rate times the seconds."""
    with serving(0.0) as (port, bodies):
        load = open_loop(port, REQUESTS, 3, rate, seconds)
    assert load.num_answers == len(bodies) == 3 * round(rate * seconds)


def test_an_error_ends_the_measurement() -> None:
    with serving(0.0, status=500) as (port, _), pytest.raises(RuntimeError, match="500"):
        closed_loop(port, REQUESTS, 1, 0.2)
