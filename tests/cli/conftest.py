"""Runs command lines in this process, as a user would in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from learnloop.cli.main import run
from tests.cli.calling import Call, Outcome


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEARNLOOP_HOME", raising=False)
    monkeypatch.delenv("LEARNLOOP_DATABASE", raising=False)

    def called(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = run(list(arguments))
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return called
