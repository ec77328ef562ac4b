"""Standard output that is full, closed or not read any more, Ctrl-C at any moment, and disks that refuse."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from learnloop.cli.main import run
from learnloop.loop import Loop
from tests.signals import heed_interrupts
from tests.waiting import PATIENCE_SECONDS

_LIMIT = 64 * 1024 * 1024
LEARNLOOP = [sys.executable, "-m", "learnloop"]
COMMANDS = [
    "--help",
    "traces list --json",
    "traces list",
    "traces export -",
    "policies list --json",
    "doctor",
    "db current",
]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    with Loop("bot", home=tmp_path / "home") as loop, loop.episode(task="t"):
        loop.flush()
    return {**os.environ, "LEARNLOOP_HOME": str(tmp_path / "home")}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_standard_output_is_said(environment: dict[str, str], tmp_path: Path, command: str) -> None:
    """The file has the size that no file may exceed, so the first byte written to it is refused."""
    target = tmp_path / "full"
    with target.open("ab") as full:
        full.truncate(_LIMIT)
        done = subprocess.run(
            [*LEARNLOOP, *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (_LIMIT, _LIMIT)),
        )
    assert done.returncode == 1, done.stderr
    assert "Error: standard output cannot be used: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert target.stat().st_size == _LIMIT


@pytest.mark.parametrize("command", ["--help", "traces list", "init"])
def test_a_closed_standard_output_is_said_and_nothing_is_done(
    environment: dict[str, str], tmp_path: Path, command: str
) -> None:
    line = f"{' '.join(LEARNLOOP)} {command} >&-"
    environment["LEARNLOOP_HOME"] = str(tmp_path / "other")
    done = subprocess.run(["bash", "-c", line], capture_output=True, env=environment, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: standard output is closed; send it somewhere, such as to /dev/null\n"
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("command", ["--help", "traces list --json", "traces list", "traces export -", "doctor"])
def test_a_reader_that_is_gone_is_no_error(environment: dict[str, str], command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*LEARNLOOP, *command.split()], stdout=writer, stderr=subprocess.PIPE, env=environment, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr.replace(b"1 records\n", b"")) == (0, b"")


@pytest.mark.parametrize("delay", [0.12, 0.2, 0.3, 0.45, 0.6, 0.9])
def test_an_interrupt_at_any_moment_says_no_traceback(environment: dict[str, str], delay: float) -> None:
    """Python ends itself by the signal, which a shell shows as 130 too, where one of its own evals was hit."""
    child = subprocess.Popen(
        [*LEARNLOOP, "demo"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    time.sleep(delay)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=PATIENCE_SECONDS)
    if "learnloop/cli/entry.py" in err or "Traceback" not in err:  # before our first line Python itself was hit
        assert child.returncode in (130, -signal.SIGINT), err
        assert err == "Interrupted.\n" or (child.returncode, err) == (-signal.SIGINT, "")


def test_a_demo_without_its_folder_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEARNLOOP_HOME", str(tmp_path / "home"))
    Loop("packer").close()
    (tmp_path / "home" / "demo").write_text("a file")
    assert run(["demo"]) == 1
    err = capfd.readouterr().err
    assert err.startswith("Error: ")
    assert "demo" in err


def test_a_piped_import_says_only_what_there_is_to_say(tmp_path: Path, environment: dict[str, str]) -> None:
    goal = {"timestamp": "2026-01-01T10:00:01Z", "goal": "g", "action": "ls", "result": {"success": True}}
    file = tmp_path / "g.jsonl"
    file.write_text(json.dumps(goal) + "\n")
    done = subprocess.run(
        [*LEARNLOOP, "traces", "import", str(file)], capture_output=True, env=environment, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "goal: 1 lines, 1 episodes, 1 rewards, 1 spans; 3 records are new",
        "1 steps; 1 of 1 episodes have an outcome",
        "1 groups of attempts, 0 with several: 0 mixed, 0 without signal, 0 unknown",
    ]


def test_damaged_gzip_is_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEARNLOOP_HOME", str(tmp_path / "home"))
    data = bytearray(gzip.compress(b'{"goal": "g"}\n' * 5_000 + os.urandom(5_000)))
    data[20:60] = b"\xff" * 40
    (tmp_path / "bad.gz").write_bytes(data)
    assert run(["traces", "import", str(tmp_path / "bad.gz")]) == 2
    assert "damaged gzip" in capfd.readouterr().err
