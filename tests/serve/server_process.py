"""``learnloop serve`` in a process of its own, over a store that is looked at from outside."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from tests.serve.running import Reply
from tests.waiting import PATIENCE_SECONDS


class ServerProcess:
    """A server as users start it.

    Args:
        home: its folder.
        database: its URL; None: a file in the folder.
        env: further environment variables.
    """

    def __init__(self, home: Path, database: str | None = None, *arguments: str, **env: str) -> None:
        place = ["--home", str(home), *([] if database is None else ["--database", database])]
        self.errors = home.parent / f"{home.name}.errors"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "learnloop", *place, "serve", "--port", "0", "--json", *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=home.parent,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **env},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.errors.read_text()
        self.url: str = json.loads(line)["urls"][0]
        self.port = int(self.url.rpartition(":")[2])
        self._watched = psutil.Process(self.process.pid)

    def cpu_seconds(self) -> float:
        """Returns the CPU time that the server has used so far, in user code and in the kernel."""
        times = self._watched.cpu_times()
        return float(times.user + times.system)

    def ask(self, method: str, path: str, body: bytes | str | None = None, **headers: str) -> Reply:
        """Returns the answer; header names are given with _ for -."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            given.setdefault("content-type", "application/json")
        try:
            connection.request(method, path, body, given)
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """Returns a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)

    def document(self) -> Any:
        """Returns the description of its routes."""
        return self.ask("GET", "/openapi.json").json()

    def stop(self) -> None:
        """Ends it; it must end by itself and in order."""
        self.process.terminate()
        out, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert self.process.returncode == 0, (out, self.errors.read_text())
