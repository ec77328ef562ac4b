"""A real server on a loopback port, in a thread, and a client that hides nothing."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from learnloop.serve.http.application import Application
from learnloop.serve.http.server import Server
from tests.waiting import PATIENCE_SECONDS


class Reply(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Running:
    """A server that runs in a thread until it is stopped."""

    def __init__(self, app: Application, host: str = "127.0.0.1") -> None:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.bind((host, 0))
        listening.listen(128)
        self.port: int = listening.getsockname()[1]
        self.app = app
        ready = threading.Event()
        self.server = Server(app, on_ready=ready.set)
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]}, daemon=True)
        self._thread.start()
        assert ready.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        *,
        timeout: float = PATIENCE_SECONDS,
        **headers: str,
    ) -> Reply:
        """Returns the answer; header names are given with _ for -."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and "content-type" not in given:
            given["content-type"] = "application/json"
        connection.request(method, path, body, given)
        response = connection.getresponse()
        reply = Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        connection.close()
        return reply

    def connect(self) -> socket.socket:
        """Returns a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)

    def raw(self, data: bytes) -> bytes:
        """Sends bytes as they are and returns all that comes until the server closes."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """Returns what comes until the other side closes."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def status_of(answer: bytes) -> int:
    """Returns the status of a raw answer."""
    return int(answer.split(b" ", 2)[1])


Start = Callable[..., Running]
