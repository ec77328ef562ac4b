"""The disk refuses: full, read-only, missing, in the way. On real file systems, mounted in a namespace of their own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from learnloop.core.errors import (
    MissingExtraError,
    NotFoundError,
    UnreachableError,
    UsageError,
)
from learnloop.store import Store
from learnloop.store.engine import parse_url
from learnloop.store.failures import translate
from tests.waiting import PATIENCE_SECONDS

_COMMON = """
import os, subprocess, sys
from pathlib import Path
from learnloop.core.clock import now
from learnloop.core.errors import LearnloopError, StoreFullError, StoreReadOnlyError
from learnloop.core.records import Agent, Span, SpanStatus
from learnloop.store import BlobStore, Patience, Store, backup

folder = Path(sys.argv[1])
url = f"sqlite:///{folder}/learnloop.db"

def span(name, size=10):
    return Span(span_id=name, trace_id="t", episode_id=None, parent_id=None, operation="chat", name="n",
                status=SpanStatus.OK, started_at=now(), ended_at=now(), attributes={"input": "x" * size})

def refusal(work):
    try:
        work()
    except LearnloopError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it was not refused")

def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)
"""


def _in_namespace(folder: Path, program: str) -> list[str]:
    """Runs ``program`` where it may mount file systems and returns the lines that it prints."""
    command = ["unshare", "--mount", "--map-root-user", sys.executable, "-W", "error", "-c", _COMMON + program]
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_full_disk_is_reported_and_writing_goes_on_when_there_is_space(tmp_path: Path) -> None:
    program = """
mount("-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder))
store = Store.open(url)
store.write([span("first")])
ballast = folder / "ballast"
with open(ballast, "wb") as file:
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    file.write(b"x" * (free - 150_000))
acknowledged = ["first"]
def fill():
    for number in range(1000):
        store.write([span(f"s{number}", 20_000)])
        acknowledged.append(f"s{number}")
print(refusal(fill))
store.offer(span("offered", 50_000))
print(refusal(store.flush))
print(refusal(lambda: BlobStore(folder / "blobs").put(os.urandom(300_000))))
print(sum(1 for path in folder.rglob("*") if path.name.endswith(".part")))
print(refusal(lambda: backup(url, None, folder / "backup.tar")), (folder / "backup.tar").exists())
print(store.counters().num_failed, store.counters().num_dropped)
ballast.unlink()
store.flush()
store.write([span("last")])
print(all(store.find(Span, name) for name in [*acknowledged, "offered", "last"]), len(acknowledged) > 2)
print(store.run(lambda connection: connection.exec_driver_sql("PRAGMA integrity_check").scalar()))
store.close()
"""
    lines = _in_namespace(tmp_path, program)
    assert lines[0].startswith("StoreFullError: no space is left for ")
    assert lines[1].startswith("StoreFullError: ")
    assert lines[2].startswith("StoreFullError: ")
    assert lines[3] == "0"
    assert lines[4].startswith("StoreFullError: ")
    assert lines[4].endswith(" False")
    assert lines[5:] == ["0 0", "True True", "ok"]


def test_a_full_disk_at_the_start(tmp_path: Path) -> None:
    program = """
mount("-t", "tmpfs", "-o", "size=60k", "tmpfs", str(folder))
print(refusal(lambda: Store.open(url)))
"""
    assert _in_namespace(tmp_path, program)[0].startswith("StoreFullError: no space is left for ")


def test_a_read_only_disk(tmp_path: Path) -> None:
    program = """
mount("-t", "tmpfs", "tmpfs", str(folder))
store = Store.open(url, blobs=folder / "blobs")
store.write([span("first")])
store.close()
mount("-o", "remount,ro", str(folder))
print(refusal(lambda: Store.open(url)))
print(refusal(lambda: Store.open(f"sqlite:///{folder}/new.db")))
print(refusal(lambda: BlobStore(folder / "blobs").put(b"x")))
mount("-o", "remount,rw", str(folder))
with Store.open(url) as store:
    print(store.get(Span, "first").span_id)
"""
    lines = _in_namespace(tmp_path, program)
    assert [line.split(":")[0] for line in lines] == ["StoreReadOnlyError"] * 3 + ["first"]
    assert "cannot be written; check its permissions" in lines[0]


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="create it"):
        Store.open(f"sqlite:///{tmp_path}/missing/learnloop.db")
    assert not (tmp_path / "missing").exists()


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        Store.open(f"sqlite:///{tmp_path}")


@pytest.mark.parametrize("url", ["", "learnloop.db", "mysql://host/db", "http://host", "sqlite+aiosqlite:///x"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(UsageError, match="allowed: sqlite:///"):
        Store.open(url)


def test_postgresql_without_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r'pip install "learnloop\[postgres\]"'):
        Store.open("postgresql://host/database")


def test_a_password_is_never_shown() -> None:
    place = parse_url("postgresql://ann:secret@host/database")
    assert "secret" not in place.name
    assert parse_url("postgresql+psycopg://host/database").url.drivername == "postgresql+psycopg"
    with pytest.raises(UnreachableError) as caught:
        Store.open("postgresql://ann:secret@127.0.0.1:1/database")
    assert "secret" not in str(caught.value)


def test_what_is_not_of_a_driver_is_not_translated() -> None:
    assert translate(ValueError("ours"), "p") is None


def test_an_unreadable_file_is_explained(tmp_path: Path) -> None:
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN  # type: ignore[misc]
    wrapped = OperationalError("SELECT 1", {}, error)
    assert isinstance(translate(wrapped, str(tmp_path / "gone" / "x.db")), NotFoundError)
    assert os.access(tmp_path, os.W_OK)
