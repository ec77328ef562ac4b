"""Checkpoints of SQLite's write-ahead log beside the commits."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from learnloop.core.clock import now
from learnloop.core.records import Agent, Decision
from learnloop.store import Store
from learnloop.store.engine import parse_url, prepare_sqlite_writer
from learnloop.store.wal_checkpoints import LOOK_SECONDS, MAX_PAGES, WalCheckpoints, num_frames
from tests.waiting import eventually

PAGE_BYTES = 4096
VECTOR = bytes(4 * PAGE_BYTES)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def connection(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database)) as connection:
        prepare_sqlite_writer(connection)
        connection.execute("CREATE TABLE pages (content BLOB)")
        yield connection


def wal_of(database: Path) -> Path:
    return Path(f"{database}-wal")


def fill(connection: sqlite3.Connection, num_pages: int) -> None:
    connection.execute("INSERT INTO pages VALUES (?)", (bytes(PAGE_BYTES * num_pages),))


@pytest.mark.parametrize("num_pages", [0, 1, 2, 7, 100])
def test_the_frames_of_a_log_are_those_that_sqlite_counts(
    database: Path, connection: sqlite3.Connection, num_pages: int
) -> None:
    for _ in range(num_pages):
        fill(connection, 1)
    counted = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
    assert num_frames(wal_of(database)) == counted


def test_frames_of_a_log_that_began_anew_do_not_count(database: Path, connection: sqlite3.Connection) -> None:
    fill(connection, 300)
    assert num_frames(wal_of(database)) > 300
    size = wal_of(database).stat().st_size
    connection.execute("PRAGMA wal_checkpoint(RESTART)")
    fill(connection, 1)
    assert wal_of(database).stat().st_size == size
    counted = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
    assert num_frames(wal_of(database)) == counted < 10


def test_there_is_no_log_before_the_first_write_and_a_short_file_is_none(tmp_path: Path) -> None:
    assert num_frames(tmp_path / "absent-wal") == 0
    (tmp_path / "short-wal").write_bytes(b"\x37\x7f\x06\x82")
    assert num_frames(tmp_path / "short-wal") == 0


def test_a_long_log_is_moved_while_the_writer_goes_on(database: Path, connection: sqlite3.Connection) -> None:
    checkpoints = WalCheckpoints(parse_url(f"sqlite:///{database}"))
    try:
        checkpoints.committed()
        assert database.stat().st_size <= 4 * PAGE_BYTES
        fill(connection, MAX_PAGES + 10)
        time.sleep(2 * LOOK_SECONDS)
        checkpoints.committed()
        assert eventually(lambda: database.stat().st_size > PAGE_BYTES * MAX_PAGES)

        def begins_anew() -> bool:
            fill(connection, 1)  # the first write after a checkpoint of all
            return num_frames(wal_of(database)) <= 100

        assert eventually(begins_anew)
    finally:
        checkpoints.close()


def test_a_reader_holds_the_log_but_no_commit(database: Path, connection: sqlite3.Connection) -> None:
    checkpoints = WalCheckpoints(parse_url(f"sqlite:///{database}"))
    fill(connection, 1)
    with closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM pages").fetchone() == (1,)
        fill(connection, MAX_PAGES + 10)
        checkpoints.committed()
        for _ in range(50):
            fill(connection, 1)  # would raise, or take a second, if the checkpoint kept the write lock
        assert reader.execute("SELECT count(*) FROM pages").fetchone() == (1,)
        reader.execute("COMMIT")
    checkpoints.close()
    assert connection.execute("SELECT count(*) FROM pages").fetchone() == (52,)


def test_a_store_moves_its_log_and_loses_nothing(database: Path) -> None:
    number = 2 * MAX_PAGES // 4
    with Store.open(f"sqlite:///{database}") as store:
        store.write([Agent(agent_id="a", created_at=now())])
        before = database.stat().st_size
        for start in range(0, number, 50):
            store.write(
                [
                    Decision(
                        decision_id=f"d{start + each}", episode_id=None, agent_id="a", policy="p", algorithm=None,
                        context={}, actions=["x"], action="x", propensity=1.0, vector=VECTOR, created_at=now(),
                    )
                    for each in range(50)
                ]
            )  # fmt: skip
            time.sleep(0.01)
        assert eventually(lambda: database.stat().st_size >= before + MAX_PAGES * PAGE_BYTES)
        assert store.count(Decision) == number
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM decisions").fetchone() == (number,)


def test_a_database_that_is_gone_is_logged_and_ends_nothing(
    database: Path, connection: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    fill(connection, MAX_PAGES + 10)
    database.rename(database.with_name("elsewhere.db"))
    checkpoints = WalCheckpoints(parse_url(f"sqlite:///{database}"))
    checkpoints.committed()
    assert eventually(lambda: bool(caplog.records))
    checkpoints.close()
    assert "could not be moved into its database" in caplog.text
