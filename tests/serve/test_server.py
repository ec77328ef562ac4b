"""The process: it starts, tells, drains and ends; each in a process of its own."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from learnloop.core.clock import now
from learnloop.core.errors import AuthError, ConflictError, NotFoundError, UsageError
from learnloop.core.records import Agent
from learnloop.loop import Workspace
from learnloop.loop.workspace.settings import find_settings
from learnloop.serve.sockets import listen
from tests.waiting import PATIENCE_SECONDS, eventually

PROGRAM = """
import asyncio, sys
from pathlib import Path
from learnloop.core.clock import now
from learnloop.core.records import Agent, ApiScope
from learnloop.loop.workspace.settings import find_settings
from learnloop.loop import Workspace
from starlette.requests import Request
from learnloop.serve import Operations, ServeOptions, answer, serve, service_of
from learnloop.serve.http.server import Server

home = Path(sys.argv[1])
slow = Operations("slow")

async def until(holds):
    while not holds():
        await asyncio.sleep(0.01)

@slow.get("/slow", scope=ApiScope.READ)
async def wait(request: Request):
    "Wait for leave, and offer a record at the end."
    print("begun", flush=True)
    await until((home / "may-end").exists)
    service_of(request).workspace.store.offer(Agent(agent_id="late", created_at=now()))
    return answer("waited")

shut_down = Server.shutdown

async def shut_down_later(server, sockets=None):
    await until(lambda: not (home / "may-not-close").exists())
    await shut_down(server, sockets)

Server.shutdown = shut_down_later
workspace = Workspace(find_settings(sys.argv[1]), create=True)
options = ServeOptions(port=0, otlp_port=0, drain_seconds=float(sys.argv[2]))
serve(workspace, options, slow, on_ready=lambda found: print(" ".join(found.urls), flush=True))
print("ended", flush=True)
"""
LONG = 100 * PATIENCE_SECONDS
"""For draining: longer than any of the tests waits."""
DRAINED_SECONDS = 30.0
"""Within this a server has ended that may drain for a second, on a machine however busy."""


class Child:
    """A server in a process of its own."""

    def __init__(self, home: Path, drain_seconds: float = LONG) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(home), str(drain_seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.urls = self.read_line().split()
        self.port = int(self.urls[0].rpartition(":")[2])
        self.statuses: list[int] = []
        """Of the slow requests that ended."""

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)

    def get(self, path: str, port: int | None = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=PATIENCE_SECONDS)
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        return status

    def ask_slowly(self) -> threading.Thread:
        """Returns a thread that waits for the answer to a request which has begun."""
        thread = threading.Thread(target=lambda: self.statuses.append(self.get("/slow")))
        thread.start()
        assert self.read_line() == "begun\n"
        return thread

    def accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS).close()
        except ConnectionRefusedError:
            return False
        return True

    def end(self) -> tuple[int, str]:
        """Returns exit code and standard error when it has ended."""
        _, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_drains_and_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    """S7: what runs ends, what was offered is stored, and nothing is waited for any longer."""
    child = Child(tmp_path)
    assert [child.get("/health"), child.get("/livez", int(child.urls[1].rpartition(":")[2]))] == [200, 200]
    kept = child.connect()
    kept.request("GET", "/health")
    kept.getresponse().read()
    waiting = child.ask_slowly()
    child.process.send_signal(number)
    assert eventually(lambda: not child.accepts())
    (tmp_path / "may-end").touch()
    code, err = child.end()
    waiting.join()
    kept.close()
    assert (code, child.statuses) == (0, [200])
    assert "Traceback" not in err
    with Workspace(find_settings(tmp_path)) as workspace:
        assert [agent.agent_id for agent in workspace.store.select(Agent)] == ["late"]


def test_it_is_not_ready_and_accepts_nothing_while_it_drains(tmp_path: Path) -> None:
    child = Child(tmp_path)
    waiting = child.ask_slowly()
    (tmp_path / "may-not-close").touch()
    child.process.send_signal(signal.SIGTERM)
    assert eventually(lambda: child.get("/health") == 503)
    (tmp_path / "may-not-close").unlink()
    assert eventually(lambda: not child.accepts())
    (tmp_path / "may-end").touch()
    waiting.join()
    assert (child.end()[0], child.statuses) == (0, [200])


def test_what_does_not_end_in_time_is_ended(tmp_path: Path) -> None:
    child = Child(tmp_path, drain_seconds=1)
    waiting = child.ask_slowly()  # until it may end, which it never may
    begun = time.monotonic()
    child.process.send_signal(signal.SIGTERM)
    code, err = child.end()
    seconds = time.monotonic() - begun
    waiting.join()
    assert (code, child.statuses) == (0, [503])
    assert seconds < DRAINED_SECONDS
    assert "Traceback" not in err


def test_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    child = Child(tmp_path)
    with socket.create_connection(("127.0.0.1", child.port)) as connection:
        connection.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert child.read_line() == "begun\n"
        child.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: not child.accepts())
        child.process.send_signal(signal.SIGTERM)
        assert child.end() == (128 + signal.SIGTERM, "")


def test_killed_it_loses_nothing_acknowledged(tmp_path: Path) -> None:
    child = Child(tmp_path)
    assert child.get("/health") == 200
    child.process.kill()
    child.end()
    with Workspace(find_settings(tmp_path)) as workspace:
        workspace.store.write([Agent(agent_id="a", created_at=now())])


def test_listening(tmp_path: Path) -> None:
    found = listen("127.0.0.1", [0, 0])
    assert found.is_local
    ports = [each.getsockname()[1] for each in found.sockets]
    assert found.urls == [f"http://127.0.0.1:{port}" for port in ports]
    with pytest.raises(ConflictError, match=rf"port {ports[0]} is in use.*--port"):
        listen("127.0.0.1", [ports[0]])
    found.close()
    for host, is_local in (("localhost", True), ("127.0.0.2", True), ("0.0.0.0", False)):
        each = listen(host, [0])
        assert each.is_local is is_local
        assert len({socket_.getsockname()[1] for socket_ in each.sockets}) == 1
        each.close()


@pytest.mark.parametrize(
    ("host", "port", "kind", "words"),
    [
        ("no.such.host.invalid", 0, NotFoundError, "not known here"),
        ("x" * 300, 0, NotFoundError, "not known here"),
        ("192.0.2.1", 0, NotFoundError, "not an address of this machine"),
        ("127.0.0.1", 65_536, UsageError, "0 to 65,535"),
        ("127.0.0.1", -1, UsageError, "0 to 65,535"),
    ],
)
def test_where_it_cannot_listen(host: str, port: int, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        listen(host, [port])


def test_ports_that_are_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: object) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(AuthError, match="below 1024"):
        listen("127.0.0.1", [80])
