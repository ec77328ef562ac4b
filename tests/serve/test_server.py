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

PROGRAM = """
import asyncio, sys
from learnloop.core.clock import now
from learnloop.core.records import Agent, ApiScope
from learnloop.loop.workspace.settings import find_settings
from learnloop.loop import Workspace
from starlette.requests import Request
from learnloop.serve import Operations, ServeOptions, answer, serve, service_of

slow = Operations("slow")

@slow.get("/slow/{seconds}", scope=ApiScope.READ)
async def wait(request: Request, seconds: float):
    "Wait, and offer a record at the end."
    await asyncio.sleep(seconds)
    service_of(request).workspace.store.offer(Agent(agent_id="late", created_at=now()))
    return answer({"waited": seconds})

workspace = Workspace(find_settings(sys.argv[1]), create=True)
options = ServeOptions(port=0, otlp_port=0, drain_seconds=float(sys.argv[2]))
serve(workspace, options, slow, on_ready=lambda found: print(" ".join(found.urls), flush=True))
print("ended", flush=True)
"""


class Child:
    """A server in a process of its own."""

    def __init__(self, home: Path, drain_seconds: float = 7.0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(home), str(drain_seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.urls = self.process.stdout.readline().split()
        self.port = int(self.urls[0].rpartition(":")[2])

    def get(self, path: str, port: int | None = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=20)
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        return status

    def end(self) -> tuple[int, str, float]:
        """Returns exit code, standard error and how long it took."""
        began = time.monotonic()
        _, err = self.process.communicate(timeout=20)
        return self.process.returncode, err, time.monotonic() - began


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_drains_and_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    """S7: not ready at once, what runs ends, what was offered is stored."""
    child = Child(tmp_path)
    assert [child.get("/health"), child.get("/livez", int(child.urls[1].rpartition(":")[2]))] == [200, 200]
    kept = http.client.HTTPConnection("127.0.0.1", child.port, timeout=20)
    kept.request("GET", "/health")
    kept.getresponse().read()
    statuses: list[int] = []
    waiting = threading.Thread(target=lambda: statuses.append(child.get("/slow/1.2")))
    waiting.start()
    time.sleep(0.4)
    child.process.send_signal(number)
    code, err, seconds = child.end()
    waiting.join()
    kept.close()
    assert (code, statuses) == (0, [200])
    assert seconds < 5
    assert "Traceback" not in err
    with Workspace(find_settings(tmp_path)) as workspace:
        assert [agent.agent_id for agent in workspace.store.select(Agent)] == ["late"]


def test_it_is_not_ready_and_accepts_nothing_while_it_drains(tmp_path: Path) -> None:
    child = Child(tmp_path)
    waiting = threading.Thread(target=child.get, args=("/slow/1.5",))
    waiting.start()
    kept = http.client.HTTPConnection("127.0.0.1", child.port, timeout=20)
    kept.request("GET", "/livez")
    kept.getresponse().read()
    time.sleep(0.3)
    child.process.send_signal(signal.SIGTERM)
    kept.request("GET", "/health")
    assert kept.getresponse().status == 503
    kept.close()
    time.sleep(0.5)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", child.port), timeout=2)
    waiting.join()
    assert child.end()[0] == 0


def test_what_does_not_end_in_time_is_ended(tmp_path: Path) -> None:
    child = Child(tmp_path, drain_seconds=1)
    statuses: list[int] = []
    waiting = threading.Thread(target=lambda: statuses.append(child.get("/slow/60")))
    waiting.start()
    time.sleep(0.4)
    child.process.send_signal(signal.SIGTERM)
    code, err, seconds = child.end()
    waiting.join()
    assert (code, statuses) == (0, [503])
    assert seconds < 5
    assert "Traceback" not in err


def test_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    child = Child(tmp_path)
    with socket.create_connection(("127.0.0.1", child.port)) as connection:
        connection.sendall(b"GET /slow/60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.3)
        child.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        child.process.send_signal(signal.SIGTERM)
        code, err, seconds = child.end()
    assert (code, err) == (128 + signal.SIGTERM, "")
    assert seconds < 1


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
        ("192.0.2.1", 0, NotFoundError, "no address of this machine"),
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
