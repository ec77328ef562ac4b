"""What a person sees: whole columns on a terminal of 80 columns, and nothing that commands it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from learnloop.cli.main import run
from learnloop.cli.output import shown
from learnloop.core.clock import now
from learnloop.core.errors import UsageError
from learnloop.core.records import Reward
from learnloop.loop import Loop
from tests.cli.test_commands import register_version
from tests.waiting import PATIENCE_SECONDS

_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(*arguments: str, home: Path, columns: int = 80) -> list[str]:
    """Runs a command line with its standard output on a terminal, and returns the lines without their colours."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LEARNLOOP_DATABASE")}
    environment |= {"LEARNLOOP_HOME": str(home), "TERM": "xterm"}
    command = [sys.executable, "-m", "learnloop", *arguments]
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=follower, stderr=subprocess.PIPE, env=environment
    )
    os.close(follower)
    written = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # how Linux says that the last writer is gone
            break
        if not part:
            break
        written += part
    child.communicate(timeout=PATIENCE_SECONDS)
    os.close(leader)
    return _STYLE.sub("", written.decode()).replace("\r\n", "\n").splitlines()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with Loop("bot", home=tmp_path / "home", seed=1) as loop:
        with loop.episode(task="t" * 60) as episode:
            episode.reward(solved=0.75)
        register_version(loop.workspace, 1)
        version = loop.workspace.registry.resolve("bot.route")
        for alias in ("champion", "stable"):
            loop.workspace.registry.set_alias("bot.route", alias, version, actor="me", reason="test")
    return tmp_path / "home"


def test_traces_list_keeps_all_but_the_task(home: Path) -> None:
    lines = on_terminal("traces", "list", home=home)
    assert lines[0].split() == ["episode", "id", "agent", "task", "status", "reward", "started", "(UTC)", "seconds"]
    cells = lines[1].split()
    assert len(cells[0]) == 36
    assert cells[2] == "t" * 9 + "…"
    assert cells[3:5] == ["completed", "0.7500"]
    assert float(cells[-1]) >= 0
    assert ("t" * 60) in on_terminal("traces", "list", home=home, columns=300)[1]


def test_policy_list_keeps_all(home: Path) -> None:
    lines = on_terminal("policies", "list", home=home)
    assert lines[0].split() == ["policy", "held-out", "kind", "registered", "(UTC)", "aliases"]
    cells = lines[1].split()
    assert (cells[0], cells[2]) == ("bot.route@1", "linear")
    assert float(cells[1]) > 0.5
    assert lines[1].endswith("candidate, champion, stable")


def test_doctor_keeps_all_but_advice(home: Path) -> None:
    lines = on_terminal("doctor", home=home)
    wide = on_terminal("doctor", home=home, columns=400)
    assert [line.split()[:2] for line in lines] == [line.split()[:2] for line in wide]
    settings = next(line for line in lines if " settings " in line)
    assert f"sqlite:///{home}/learnloop.db (home: environment, database: default)" in settings


def test_only_what_is_left_over_is_cut(tmp_path: Path) -> None:
    with Loop("b", home=tmp_path / "home") as loop, loop.episode(task="x" * 50):
        loop.flush()
    (line,) = on_terminal("traces", "list", home=tmp_path / "home", columns=120)[1:]
    assert len(line) <= 120
    assert 10 <= len(re.search("x+…", line)[0]) < 50  # type: ignore[index]


@pytest.mark.parametrize(
    ("value", "visible"),
    [
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("a\r\n\tb", r"a\x0d\x0a\x09b"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("\u202etxt.exe\u2066\u061c", r"\u202etxt.exe\u2066\u061c"),
        ("\ud800", r"\ud800"),
        ("Grüße, 世界 …", "Grüße, 世界 …"),
    ],
)
def test_control_characters_become_visible(value: str, visible: str) -> None:
    assert shown(value) == visible


def test_stored_text_cannot_command_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b]0;owned\x07\u202e\x9b2J\nnext"
    home = tmp_path / "home"
    with Loop("bot", home=home) as loop:
        with loop.episode(task=evil) as episode, loop.span(evil, "execute_tool"):
            loop.choose("route", [evil, "b"], {"kind": "x"})
            with pytest.raises(UsageError, match="cannot name a reward"):  # no door takes it
                episode.reward(**{evil: 1.0})
            told = Reward(
                reward_id="r", episode_id=episode.episode_id, name=evil, value=1.0, reason=evil, created_at=now()
            )
            loop.workspace.store.offer(told)  # but an earlier version did
        with pytest.raises(ValueError), loop.episode(task="failed"):
            raise ValueError(evil)
        register_version(loop.workspace, 1)
        loop.flush()
    monkeypatch.setenv("LEARNLOOP_HOME", str(home))

    def output(*arguments: str) -> str:
        capfd.readouterr()
        run(arguments)
        return "".join(capfd.readouterr())

    listed = json.loads(output("traces", "list", "--json"))["data"]
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps({"goal": "g", "action": "a", "result": {"success": True}, "timestamp": evil}) + "\n")
    texts = [
        output("traces", "list"),
        output("traces", "show", evil.replace("\n", "")),
        output("traces", "import", str(bad)),
    ]
    texts += [output("traces", "show", row["episode"]["episode_id"]) for row in listed]
    texts += [output("policies", "show", evil), output("traces", "list", evil), output(evil)]
    for found in texts:
        assert not set(found) & {"\x1b", "\x07", "\u202e", "\x9b"}, found
    assert any("owned" in found for found in texts[3:])
