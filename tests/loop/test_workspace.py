"""learnloop.loop.workspace: which setting wins, and what is said when one is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from learnloop.core.errors import NotFoundError, UsageError
from learnloop.loop import Workspace, find_settings


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEARNLOOP_HOME", raising=False)
    monkeypatch.delenv("LEARNLOOP_DATABASE", raising=False)


def test_default(tmp_path: Path) -> None:
    settings = find_settings()
    assert settings.home == tmp_path / ".learnloop"
    assert settings.database == f"sqlite:///{tmp_path}/.learnloop/learnloop.db"
    assert settings.origins == {"home": "default", "database": "default"}


def test_the_nearest_file_above_wins_over_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "learnloop.toml").write_text('home = "data"\ndatabase = "postgresql://x@y/z"\n')
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    settings = find_settings()
    assert (settings.home, settings.database) == (tmp_path / "data", "postgresql://x@y/z")
    assert settings.origins["home"] == str(tmp_path / "learnloop.toml")


def test_environment_over_file_and_argument_over_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "learnloop.toml").write_text('home = "data"\n')
    monkeypatch.setenv("LEARNLOOP_HOME", str(tmp_path / "env"))
    assert find_settings().home == tmp_path / "env"
    settings = find_settings(tmp_path / "arg", "sqlite:///:memory:")
    assert (settings.home, settings.database) == (tmp_path / "arg", "sqlite:///:memory:")
    assert settings.origins == {"home": "argument", "database": "argument"}


@pytest.mark.parametrize("content", ["hom = 'x'", "home = 3", "home = ", "home = '\ud800'"])
def test_a_wrong_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "learnloop.toml").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(UsageError, match=r"learnloop\.toml cannot be used.*'home', 'database'"):
        find_settings()


def test_what_is_not_there_is_not_made_unasked(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="learnloop init"):
        Workspace()
    assert list(tmp_path.iterdir()) == []
    Workspace(create=True).close()
    Workspace().close()
