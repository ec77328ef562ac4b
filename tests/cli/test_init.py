"""``learnloop init``: the next command finds what it made, and a failed one leaves nothing behind."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from learnloop.cli.main import run


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEARNLOOP_HOME", raising=False)
    monkeypatch.delenv("LEARNLOOP_DATABASE", raising=False)


def settings(folder: Path) -> dict[str, str]:
    return tomllib.loads((folder / "learnloop.toml").read_text())


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ("", {"home": ".learnloop"}),
        ("--home data/x", {"home": "data/x"}),
        ("--database sqlite:///my.db", {"home": ".learnloop", "database": "sqlite:///my.db"}),
        ("--home a?b", {"home": "a?b"}),
    ],
)
def test_the_next_command_finds_what_options_named(tmp_path: Path, options: str, written: dict[str, str]) -> None:
    assert run([*options.split(), "init"]) == 0
    assert settings(tmp_path) == written
    assert run(["traces", "list"]) == 0


def test_a_home_elsewhere_is_named_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["--home", "data", "init", "project"]) == 0
    assert settings(tmp_path / "project") == {"home": str(tmp_path / "data")}
    monkeypatch.chdir(tmp_path / "project")
    assert run(["traces", "list"]) == 0


def test_the_environment_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEARNLOOP_HOME", str(tmp_path / "env"))
    assert run(["init"]) == 0
    assert (tmp_path / "env" / "learnloop.db").exists()
    assert not (tmp_path / ".learnloop").exists()
    assert settings(tmp_path) == {}
    assert run(["traces", "list"]) == 0


def test_a_settings_file_is_obeyed_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "learnloop.toml").write_text('home = "mine"\n')
    assert run(["init"]) == 0
    assert (tmp_path / "mine" / "learnloop.db").exists()
    assert (tmp_path / "learnloop.toml").read_text() == 'home = "mine"\n'
    assert run(["traces", "list"]) == 0


def test_an_empty_settings_file_is_filled(tmp_path: Path) -> None:
    (tmp_path / "learnloop.toml").write_text("\n")
    assert run(["--home", "x", "init"]) == 0
    assert settings(tmp_path) == {"home": "x"}


def test_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["init", "below/it"]) == 0
    monkeypatch.chdir(tmp_path / "below" / "it")
    assert run(["traces", "list"]) == 0


def test_a_folder_below_a_settings_file_shares_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["init"]) == 0
    assert run(["init", "below"]) == 0
    assert not (tmp_path / "below" / "learnloop.toml").exists()
    monkeypatch.chdir(tmp_path / "below")
    assert run(["traces", "list"]) == 0


def test_what_other_commands_will_not_find_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "learnloop.toml").write_text('home = "mine"\n')
    assert run(["--home", "other", "init"]) == 0
    assert f"Note: other commands use sqlite:///{tmp_path}/mine/learnloop.db" in capfd.readouterr().err


def test_a_password_is_not_written(tmp_path: Path, postgres_url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--database", f"{postgres_url}&password=hunter2", "init"]) == 0
    text = (tmp_path / "learnloop.toml").read_text()
    assert "hunter2" not in text
    assert "set LEARNLOOP_DATABASE" in text
    assert settings(tmp_path) == {"home": ".learnloop"}
    captured = capfd.readouterr()
    assert "hunter2" not in captured.out + captured.err
    assert "Note: other commands use sqlite" in captured.err


def test_a_server_is_written(tmp_path: Path, postgres_url: str) -> None:
    assert run(["--database", postgres_url, "init"]) == 0
    assert settings(tmp_path)["database"] == postgres_url
    assert run(["traces", "list"]) == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("--database postgresql://nobody@127.0.0.1:9/none?connect_timeout=1 init deep/er", 6),
        ("--database sqlite:///nowhere/x.db init deep/er", 3),
        ("--database mysql://x init deep/er", 2),
        ("--database sqlite:///:memory: init deep/er", 2),
        ("--database sqlite:// init", 2),
        ("init file/below", 1),
    ],
)
def test_a_failed_init_leaves_nothing_behind(
    tmp_path: Path, options: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run(options.split()) == code
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    err = capfd.readouterr().err
    assert err.startswith("Error: ")
    if "memory" in options:
        assert "in memory is gone" in err
