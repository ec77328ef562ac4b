"""learnloop serve, as a user starts it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.signals import heed_interrupts
from tests.test_import_cost import HEAVY, measure
from tests.waiting import PATIENCE_SECONDS, eventually


def begin(home: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "LEARNLOOP_HOME": str(home)}
    environment.pop("LEARNLOOP_DATABASE", None)
    return subprocess.Popen(
        [sys.executable, "-m", "learnloop", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )


def end(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=PATIENCE_SECONDS)
    return child.returncode, out, err


def get(url: str, path: str, **headers: str) -> int:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
    connection.request("GET", path, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    child = begin(tmp_path, "serve", "--port", "0", "--otlp-port", "0", "--allow-host", "me.example.com")
    assert child.stdout is not None
    urls = [child.stdout.readline().removeprefix("Listening on ").strip() for _ in range(2)]
    assert len(set(urls)) == 2
    for url in urls:
        assert get(url, "/health") == 200
        assert get(url, "/v1/info", Host="me.example.com") == 200
        assert get(url, "/v1/info", Host="evil.com") == 421
    secret = end(begin(tmp_path, "keys", "create", "k", "--scope", "read"))[1].strip()
    assert eventually(lambda: get(urls[0], "/v1/info") == 401)  # the server reads its keys again every second
    assert get(urls[0], "/v1/info", Authorization=f"Bearer {secret}") == 200
    child.send_signal(number)
    code, _, err = end(child)
    assert code == 0
    assert err == "Ctrl-C stops it, letting requests end; a second one stops at once.\n"


def test_it_tells_a_program_where_it_listens(tmp_path: Path) -> None:
    child = begin(tmp_path, "serve", "--port", "0", "--json")
    assert child.stdout is not None
    told = json.loads(child.stdout.readline())
    assert told["schema"] == "learnloop.serve/v1"
    assert get(told["urls"][0], "/livez") == 200
    child.send_signal(signal.SIGTERM)
    assert end(child)[0] == 0


def test_it_starts_as_the_seed_does(tmp_path: Path) -> None:
    """S1.5: clients of seed 1 start ``--server PORT`` and wait for a line on the standard output."""
    child = begin(tmp_path, "serve", "--server", "0")
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line.startswith("Server started on port ")
    port = line.split()[-1]
    assert child.stdout.readline().endswith(f":{port}\n")
    assert get(f"http://127.0.0.1:{port}", "/stats") == 200
    child.send_signal(signal.SIGTERM)
    assert end(child)[0] == 0


def test_where_it_may_not_listen(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for arguments, code, words in (
            (("--port", port), 5, "in use"),
            (("--host", "no.such.host.invalid"), 3, "not known"),
            (("--host", "0.0.0.0", "--port", "0"), 4, "learnloop keys create"),
            (("--port", "70000"), 2, "65535"),
        ):
            found, out, err = end(begin(tmp_path, "serve", *arguments))
            assert (found, out) == (code, ""), err
            assert words in err
            assert "Traceback" not in err


def test_help_loads_nothing_heavy() -> None:
    for command in ("serve", "keys"):
        _, modules = measure(f"from learnloop.cli.main import run; run([{command!r}, '--help'])", repetitions=1)
        assert modules & (HEAVY - {"rich"}) == set()
