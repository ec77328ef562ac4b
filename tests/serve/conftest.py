"""A real server on a loopback port, in a thread, and a client that hides nothing."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from learnloop.loop.workspace.settings import find_settings
from learnloop.loop.workspace.workspace import Workspace
from learnloop.serve import Operations, ServeOptions, create_app
from learnloop.serve.http.sockets import listen
from learnloop.serve.server import Server
from tests.serve.probes import plain, probes


class Reply(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Running:
    """A server that runs in a thread until it is stopped."""

    def __init__(self, workspace: Workspace, options: ServeOptions, *extra: Operations) -> None:
        self.workspace = workspace
        self.listening = listen(options.host, [0])
        self.port: int = self.listening.sockets[0].getsockname()[1]
        self.app = create_app(workspace, options, *extra)
        ready = threading.Event()
        self.server = Server(self.app, ready.set)
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": self.listening.sockets}, daemon=True)
        self._thread.start()
        assert ready.wait(20)

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def ask(
        self, method: str, path: str, body: bytes | str | None = None, *, timeout: float = 20.0, **headers: str
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

    def raw(self, data: bytes, *, timeout: float = 20.0) -> bytes:
        """Sends bytes as they are and returns all that comes until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
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


def eventually(check: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Returns whether ``check`` becomes true in time."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


Start = Callable[..., Running]


@pytest.fixture
def workspace(tmp_path: Path, sqlite_template: Path) -> Iterator[Workspace]:
    (tmp_path / "home").mkdir()
    shutil.copy(sqlite_template, tmp_path / "home" / "learnloop.db")
    with Workspace(find_settings(tmp_path / "home"), create=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server without keys for all tests of a file that leave it as it is."""
    home = tmp_path_factory.mktemp("shared")
    with Workspace(find_settings(home), create=True) as opened:
        server = Running(opened, ServeOptions(allow_hosts=("loop.example.com",)), probes, plain)
        yield server
        server.stop()


@pytest.fixture
def start(workspace: Workspace) -> Iterator[Start]:
    """Starts servers over ``workspace``: ``start(*groups, **options)``."""
    started: list[Running] = []

    def run(*extra: Operations, on: Workspace | None = None, **options: Any) -> Running:
        started.append(Running(on or workspace, ServeOptions(**{"key_seconds": 0.1, **options}), *extra))
        return started[-1]

    yield run
    for server in started:
        server.stop()
