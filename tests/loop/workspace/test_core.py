"""learnloop.loop.workspace.core: which setting wins, and what is said when one is wrong."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from learnloop.core.errors import NotFoundError, StoreReadOnlyError, UsageError
from learnloop.loop import Settings, Workspace, find_settings
from learnloop.loop.workspace.doctor import examine


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


def test_a_search_may_start_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "learnloop.toml").write_text('home = "data"\ndatabase = "sqlite:///x.db"\n')
    settings = find_settings(start=Path("a/b"))
    assert (settings.home, settings.database) == (tmp_path / "a" / "data", f"sqlite:///{tmp_path}/a/x.db")
    assert find_settings("h", start=tmp_path / "a").home == tmp_path / "h"
    assert find_settings(start=tmp_path).home == tmp_path / ".learnloop"


@pytest.mark.parametrize("name", ["a?b", "a%20b", "a#b", "a%b", "a b", "ä&=:@"])
def test_a_store_lies_in_its_home_whatever_that_is_called(tmp_path: Path, name: str) -> None:
    with Workspace(find_settings(tmp_path / name), create=True) as workspace:
        assert workspace.settings.database_file == tmp_path / name / "learnloop.db"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name / "learnloop.db").exists()
    Workspace(find_settings(tmp_path / name)).close()


def test_a_home_that_no_url_can_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no URL can hold"):
        find_settings(tmp_path / "\udcff")


@pytest.mark.parametrize(
    "database",
    [
        "postgresql://me:hunter2@host/x",
        "postgresql://me:hunter2@/x?host=/tmp",
        "postgresql+psycopg://me:hun%40ter2@host:5432/x",
        "postgresql://me:a/hunter2@host/x",
        "postgresql://me:a?hunter2#@host/x",
        "postgresql://me:a@hunter2@host/x",
        "postgresql://me:a@hunter2/b@host/x",
        "postgresql://host/x?user=me&password=hunter2",
        "postgresql://host/x?sslpassword=hunter2",
        "postgresql://me:hunter2@host:port/x",
        "me:hunter2@host",
        "mysql://me:hunter2@host/x",
    ],
)
def test_no_password_is_shown(tmp_path: Path, database: str) -> None:
    shown = Settings(home=tmp_path, database=database, origins={}).shown_database
    assert not any(part in shown for part in ("hunter2", "ter2", "hun"))
    try:
        find_settings(database=database)
    except UsageError as error:
        assert "hunter2" not in str(error)  # noqa: PT017 - some of these are URLs


def test_what_is_no_password_is_shown(tmp_path: Path) -> None:
    for database in ("postgresql://me@host:5432/x", "sqlite:////a/b@c.db", "sqlite:///:memory:"):
        assert Settings(home=tmp_path, database=database, origins={}).shown_database == database


@pytest.mark.parametrize("database", ["nonsense", "postgresql://me:hunter2@host:port/x"])
def test_a_database_that_is_no_url_is_named_by_its_origin(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEARNLOOP_DATABASE", database)
    with pytest.raises(UsageError, match=r"from: environment.*is not a URL"):
        find_settings()


@contextmanager
def folder_of_another() -> Iterator[Path]:
    """Gives a folder that an unprivileged process can reach, and takes the privileges of this one away."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "closed").mkdir()
        Workspace(find_settings(folder / "closed"), create=True).close()
        (folder / "learnloop.toml").write_text('home = "x"\n')
        (folder / "learnloop.toml").chmod(0)
        (folder / "closed").chmod(0)
        if user == 0:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(user)
            (folder / "closed").chmod(0o755)


def test_what_may_not_be_read_is_named() -> None:
    with folder_of_another() as folder:
        with pytest.raises(UsageError, match=r"learnloop\.toml cannot be read \(Permission denied\)"):
            find_settings(start=folder)
        with pytest.raises(UsageError, match=r"closed/learnloop\.toml cannot be read \(Permission denied\)"):
            find_settings(start=folder / "closed")
        settings = Settings(home=folder / "closed", database=f"sqlite:///{folder}/closed/learnloop.db", origins={})
        with pytest.raises(StoreReadOnlyError, match="closed"):
            Workspace(settings)
        assert "closed" in next(check.advice for check in examine(settings) if not check.ok)
