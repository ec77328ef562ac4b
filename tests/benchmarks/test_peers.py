"""Peers run as children that speak JSON; a failure says which command and why."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.peers import PeerError, peer_python, run_peer


def test_a_peer_answers_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "benchmarks").mkdir()
    script = tmp_path / "benchmarks" / "double.py"
    script.write_text("import json, sys; json.dump({'twice': 2 * json.load(sys.stdin)['number']}, sys.stdout)")
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    assert run_peer(Path(sys.executable), "double.py", {"number": 21}) == {"twice": 42}
    with pytest.raises(PeerError, match="KeyError: 'number'"):
        run_peer(Path(sys.executable), "double.py", {})


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], text: str | None) -> str:
        commands.append(command)
        return ""

    monkeypatch.setattr(peers, "ROOT", tmp_path)
    monkeypatch.setattr(peers, "_run", run)
    monkeypatch.setattr(venv, "create", lambda folder, with_pip, clear: folder.mkdir(parents=True, exist_ok=True))
    for requirement in ("thing==1", "thing==1", "thing==2"):
        assert peer_python("thing", requirement) == tmp_path / ".bench" / "thing" / "bin" / "python"
    assert [command[-1] for command in commands] == ["thing==1", "thing==2"]
