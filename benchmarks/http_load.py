"""A client that costs little: HTTP/1.1 over raw sockets, many connections in one thread, each latency kept."""

from __future__ import annotations

import heapq
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F64

_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
ANSWER_SECONDS = 30.0
"""A server that is silent for longer is taken to hang."""


class Load(NamedTuple):
    """What a server did under load."""

    num_answers: int
    seconds: float
    latencies: F64
    """Seconds from the moment a request was due to its answer, shape ``(num_answers,)``."""

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.num_answers / self.seconds

    def percentile_ms(self, percent: float) -> float:
        """Milliseconds within which so many percent of the requests were answered."""
        return float(np.percentile(self.latencies, percent)) * 1e3


def post(path: str, body: bytes) -> bytes:
    """Returns a request as bytes."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + _END + body


class _Connection:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due = 0.0
        self._received = b""

    def send(self, request: bytes, due: float) -> None:
        self.due = due
        self.socket.sendall(request)

    def has_answer(self) -> bool:
        """Takes in what came; returns whether an answer is whole.

        Raises:
            RuntimeError: the server refused, or went away.
        """
        data = self.socket.recv(262_144)
        if not data:
            raise RuntimeError("the server closed the connection")
        self._received += data
        end = self._received.find(_END)
        if end < 0:
            return False
        head = self._received[:end].lower()
        start = head.index(_LENGTH) + len(_LENGTH)
        length = int(head[start:].split(b"\r\n", 1)[0])
        if len(self._received) < end + len(_END) + length:
            return False
        if not self._received.startswith((b"HTTP/1.1 2", b"HTTP/1.0 2")):
            raise RuntimeError(f"the server answered {self._received[:500]!r}")
        self._received = b""
        return True


def closed_loop(port: int, requests: Sequence[bytes], num_clients: int, seconds: float) -> Load:
    """Each client sends its next request as soon as the last one is answered.

    Raises:
        RuntimeError: the server refuses, goes away or is silent.
    """
    with _connected(port, num_clients) as clients:
        return _closed_loop(clients, requests, seconds)


def _closed_loop(clients: Sequence[_Connection], requests: Sequence[bytes], seconds: float) -> Load:
    poll = selectors.DefaultSelector()
    num_clients = len(clients)
    for client in clients:
        poll.register(client.socket, selectors.EVENT_READ, client)
    latencies: list[float] = []
    number = 0
    began = time.perf_counter()
    for client in clients:
        client.send(requests[number % len(requests)], time.perf_counter())
        number += 1
    waiting = num_clients
    while waiting:
        events = poll.select(ANSWER_SECONDS)
        if not events:
            raise RuntimeError(f"no answer for {ANSWER_SECONDS:g} s")
        for key, _ in events:
            client = key.data
            if not client.has_answer():
                continue
            moment = time.perf_counter()
            latencies.append(moment - client.due)
            if moment - began < seconds:
                client.send(requests[number % len(requests)], moment)
                number += 1
            else:
                waiting -= 1
    return _load(latencies, began)


def open_loop(port: int, requests: Sequence[bytes], num_agents: int, rate: float, seconds: float) -> Load:
    """Each agent has ``rate * seconds`` requests, one due every ``1 / rate`` seconds, whatever became of its last one.

    A latency counts from the moment at which the request was due, so that a server that makes agents wait does not
    look better for it (Tene, coordinated omission).

    Raises:
        RuntimeError: the server refuses, or goes away.
    """
    with _connected(port, num_agents) as agents:
        return _open_loop(agents, requests, rate, seconds)


def _open_loop(agents: Sequence[_Connection], requests: Sequence[bytes], rate: float, seconds: float) -> Load:
    poll = selectors.DefaultSelector()
    num_agents = len(agents)
    num_each = max(1, round(rate * seconds))  # counted: sums of 1 / rate end a little before the end or a little after
    began = time.perf_counter() + 0.05
    starts = [began + number / (rate * num_agents) for number in range(num_agents)]
    schedule = [(start, number, 0) for number, start in enumerate(starts)]
    heapq.heapify(schedule)
    busy = [False] * num_agents
    late: list[list[float]] = [[] for _ in range(num_agents)]
    for number, agent in enumerate(agents):
        poll.register(agent.socket, selectors.EVENT_READ, (number, agent))
    latencies: list[float] = []
    sent = 0
    while schedule or any(busy):
        moment = time.perf_counter()
        while schedule and schedule[0][0] <= moment:
            due, number, count = heapq.heappop(schedule)
            if count + 1 < num_each:
                heapq.heappush(schedule, (starts[number] + (count + 1) / rate, number, count + 1))
            if busy[number]:
                late[number].append(due)
            else:
                busy[number] = True
                agents[number].send(requests[sent % len(requests)], due)
                sent += 1
        timeout = max(0.0, schedule[0][0] - time.perf_counter()) if schedule else None
        for key, _ in poll.select(timeout):
            number, agent = key.data
            if not agent.has_answer():
                continue
            latencies.append(time.perf_counter() - agent.due)
            if late[number]:
                agent.send(requests[sent % len(requests)], late[number].pop(0))
                sent += 1
            else:
                busy[number] = False
    return _load(latencies, began)


def _load(latencies: list[float], began: float) -> Load:
    return Load(len(latencies), time.perf_counter() - began, np.array(latencies))


@contextmanager
def _connected(port: int, number: int) -> Iterator[list[_Connection]]:
    connections: list[_Connection] = []
    try:
        for _ in range(number):
            connections.append(_Connection(port))
        yield connections
    finally:
        for connection in connections:
            connection.socket.close()
