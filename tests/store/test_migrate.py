"""Migrations: complete, atomic, and refused where the database is not one that we know."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pgvector.sqlalchemy  # noqa: F401 - teaches SQLAlchemy the name of halfvec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from msgspec.structs import replace

from learnloop.core.clock import now
from learnloop.core.errors import ConflictError, CorruptError, LearnloopError, SchemaVersionError
from learnloop.core.records import Agent, Decision, LabelRequest, LabelStatus, Reward, RewardShare
from learnloop.store import Store, migrate
from learnloop.store.engine import Connections, parse_url
from learnloop.store.schema import metadata
from tests.waiting import PATIENCE_SECONDS


def _differences(url: str) -> list[Any]:
    connections = Connections(parse_url(url))
    with connections.writing() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True, "target_metadata": metadata}
        )
        found: list[Any] = compare_metadata(context, metadata)
    connections.close()
    return found


def test_a_migrated_sqlite_is_what_the_tables_say(sqlite_url: str) -> None:
    assert _differences(sqlite_url) == []


def test_a_migrated_postgresql_is_what_the_tables_say(postgres_url: str) -> None:
    assert _differences(postgres_url) == []


def test_the_list_of_revisions_is_that_of_the_files() -> None:
    scripts = ScriptDirectory(str(Path(migrate.__file__).parent / "migrations"))
    assert tuple(script.revision for script in reversed(list(scripts.walk_revisions()))) == migrate.REVISIONS
    assert scripts.get_current_head() == migrate.HEAD


def test_upgrade_and_current(tmp_path: Path, empty_postgres_url: str) -> None:
    for url in (f"sqlite:///{tmp_path}/new.db", empty_postgres_url):
        assert migrate.current(url) is None
        assert migrate.upgrade(url) == migrate.HEAD
        assert migrate.upgrade(url) == migrate.HEAD
        assert migrate.current(url) == migrate.HEAD


def test_a_new_store_is_migrated_and_a_current_one_opens_without_alembic(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    with Store.open(url, upgrade=False) as store:
        assert store.revision == migrate.HEAD
    program = f"""
import sys
from learnloop.store import Store
Store.open({url!r}).close()
print([name for name in ("alembic", "numpy", "psycopg") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_older_database_needs_the_word(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "HEAD", "9998")
    with pytest.raises(ConflictError, match="learnloop db upgrade"):
        Store.open(sqlite_url, upgrade=False)


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_newer_database_is_refused(request: pytest.FixtureRequest, backend: str) -> None:
    url = request.getfixturevalue("sqlite_url" if backend == "sqlite" else "postgres_url")
    with Store.open(url) as store:
        store.run(lambda connection: connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaVersionError, match=r"'9999'.*newer version"):
        Store.open(url)


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE bills (amount)")
    connection.close()
    with pytest.raises(SchemaVersionError, match="bills"):
        Store.open(f"sqlite:///{tmp_path}/other.db")


@pytest.mark.parametrize("content", [b"this is text and certainly no database, " * 200, b"x" * 5000])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.db").write_bytes(content)
    with pytest.raises(CorruptError, match="not a database"):
        Store.open(f"sqlite:///{tmp_path}/file.db")
    assert (tmp_path / "file.db").read_bytes() == content


def test_a_truncated_database_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    path = tmp_path / "learnloop.db"
    path.write_bytes(path.read_bytes()[: 4096 * 5 + 100])

    def use() -> None:
        with Store.open(sqlite_url) as store:
            store.write([Agent(agent_id="a", created_at=now())])
            store.select(Agent)

    with pytest.raises(CorruptError, match=r"learnloop\.db is damaged"):
        use()


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_many_open_a_new_store_at_once(request: pytest.FixtureRequest, tmp_path: Path, backend: str) -> None:
    url = f"sqlite:///{tmp_path}/n.db" if backend == "sqlite" else request.getfixturevalue("empty_postgres_url")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            Store.open(url).close()
        except LearnloopError as error:
            failures.append(error)

    command = [sys.executable, "-c", f"from learnloop.store import Store; Store.open({url!r}).close()"]
    processes = [subprocess.Popen(command) for _ in range(2)]
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [process.wait(PATIENCE_SECONDS) for process in processes] == [0, 0]
    assert failures == []
    assert migrate.current(url) == migrate.HEAD


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_killed_while_migrating_leaves_all_or_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, backend: str
) -> None:
    program = """
import sys, time
from learnloop.store import migrate
import alembic.command
print("ready", flush=True)
sys.stdin.readline()
migrate.upgrade(sys.argv[1])
"""
    found = set()
    for attempt in range(8):
        if backend == "sqlite":
            url = f"sqlite:///{tmp_path}/{attempt}.db"
        else:
            url = request.getfixturevalue("postgres_server").url(f"killed_{attempt}")
            request.getfixturevalue("postgres_server").execute(f"CREATE DATABASE killed_{attempt}")
        command = [sys.executable, "-c", program, url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            process.stdout.readline()
            process.stdin.write(b"go\n")
            process.stdin.flush()
            time.sleep(0.02 * attempt)
            os.kill(process.pid, signal.SIGKILL)
        found.add(migrate.current(url))
        migrate.upgrade(url)
        assert migrate.current(url) == migrate.HEAD
        Store.open(url).close()
    assert found <= {None, migrate.HEAD}


_OLD_ROWS = (
    "INSERT INTO agents VALUES ('a', {time})",
    "INSERT INTO tasks VALUES ('t', {time}, '{{}}')",
    "INSERT INTO rewards (reward_id, name, value, weight, source, created_at) "
    "VALUES ('r1', 'solved', 0.5, 1.0, 'user', {time}), ('r2', 'solved', NULL, 1.0, 'user', {time})",
    "INSERT INTO decisions (decision_id, agent_id, policy, context, actions, action, created_at) "
    "VALUES ('d1', 'a', 'p', '{{\"x\":1}}', '[\"b\"]', 'b', {time})",
)
_OLD_SHARES = (
    "INSERT INTO reward_history VALUES ('s1', 't', 'a', 1.0, 0.5, 0.25, '{{\"x\":1}}', {time}), "
    "('s2', 't', 'a', -1.0, 0.0, 0.0, '{{}}', {time})"
)
_SHARES = (
    "INSERT INTO reward_history (reward_share_id, completion_id, task_id, agent_id, raw_reward, shaped_reward, "
    "credit_assigned, method, metadata, created_at) VALUES "
    "('s1', 's1', 't', 'a', 1.0, 0.5, 0.25, 'unknown', '{{\"x\":1}}', {time}), "
    "('s2', 's2', 't', 'a', -1.0, 0.0, 0.0, 'unknown', '{{}}', {time})"
)


@pytest.mark.parametrize("revision", migrate.REVISIONS[:-1])
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_rows_of_older_databases_are_kept(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, revision: str
) -> None:
    url = f"sqlite:///{tmp_path}/old.db" if backend == "sqlite" else request.getfixturevalue("empty_postgres_url")
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "HEAD", revision)
        assert migrate.upgrade(url) == revision
    moment = "1767225600000000" if backend == "sqlite" else "'2026-01-01T00:00:00Z'"
    with migrate.opened(url) as connections, connections.writing() as connection:
        for statement in (*_OLD_ROWS, _OLD_SHARES if revision < "0004" else _SHARES):
            connection.exec_driver_sql(statement.format(time=moment))
    assert migrate.current(url) == revision
    assert migrate.upgrade(url) == migrate.HEAD
    assert _differences(url) == []
    t0 = datetime(2026, 1, 1, tzinfo=UTC)
    with Store.open(url) as store:
        kept = {"task_id": "t", "agent_id": "a", "method": "unknown", "created_at": t0}
        assert list(store.iterate(RewardShare)) == [
            RewardShare(reward_share_id="s1", completion_id="s1", raw_reward=1.0, shaped_reward=0.5,
                        credit_assigned=0.25, metadata={"x": 1}, **kept),
            RewardShare(reward_share_id="s2", completion_id="s2", raw_reward=-1.0, shaped_reward=0.0,
                        credit_assigned=0.0, **kept),
        ]  # fmt: skip
        old = Reward(reward_id="r1", episode_id=None, name="solved", value=0.5, created_at=t0)
        assert [reward for _, reward in store.rewards_after(0)] == [old, replace(old, reward_id="r2", value=None)]
        (decision,) = store.iterate(Decision)
        assert (decision.context, decision.is_deferred, decision.vector) == ({"x": 1}, False, None)
        new = replace(old, reward_id="r3", author="ada")
        last = store.last_sequence(Reward)
        store.write([new, LABEL])
        assert [reward for _, reward in store.rewards_after(last)] == [new]
        assert list(store.iterate(LabelRequest)) == [LABEL]
        assert store.count(Reward) == 3


LABEL = LabelRequest(
    label_request_id="q",
    episode_id="e",
    status=LabelStatus.OPEN,
    priority=0.5,
    reason="uncertain",
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
)
