"""The writer: durable before it acknowledges, and alive after anything."""

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

import pytest
from sqlalchemy import Connection, event

from learnloop.core.errors import ConflictError, StoreLockedError, UnreachableError
from learnloop.core.records import Agent, Span, SpanStatus
from learnloop.store import Patience, Store
from tests.repeats import repeats
from tests.waiting import PATIENCE_SECONDS, eventually

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def span(number: int) -> Span:
    return Span(
        span_id=f"s{number:06}",
        trace_id="t",
        episode_id=None,
        parent_id=None,
        operation="chat",
        name="n",
        status=SpanStatus.OK,
        started_at=T0,
        ended_at=T0,
        attributes={"number": number},
    )


def test_sqlite_syncs_fully_on_the_connection_that_writes(sqlite_url: str) -> None:
    pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    with Store.open(sqlite_url) as store:

        def read(name: str) -> object:
            return store.run(lambda connection: connection.exec_driver_sql(f"PRAGMA {name}").scalar())

        assert [read(name) for name in pragmas] == ["wal", 2, 1, 1000]  # synchronous 2 is FULL
        assert store.read(lambda connection: connection.exec_driver_sql("PRAGMA foreign_keys").scalar()) == 1


def test_postgresql_commits_synchronously_even_where_it_is_told_not_to(postgres_url: str) -> None:
    with Store.open(postgres_url) as store:
        name = postgres_url.split("/")[3].split("?")[0]
        store.run(lambda connection: connection.exec_driver_sql(f"ALTER DATABASE {name} SET synchronous_commit = off"))
    with Store.open(postgres_url) as store:
        shown = store.run(lambda connection: connection.exec_driver_sql("SHOW synchronous_commit").scalar())
        assert shown == "on"


def test_a_write_is_acknowledged_after_its_commit(sqlite_url: str) -> None:
    seen: list[str] = []

    def slow_commit(connection: object) -> None:
        time.sleep(0.1)
        seen.append("commit")

    with Store.open(sqlite_url) as store:
        store.run(lambda connection: event.listen(connection.engine, "commit", slow_commit))
        seen.clear()
        future = store.submit([Agent(agent_id="a", created_at=T0)])
        future.add_done_callback(lambda _: seen.append("acknowledged"))
        future.result(PATIENCE_SECONDS)
        other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
        assert other.execute("SELECT agent_id FROM agents").fetchall() == [("a",)]
        other.close()
    assert seen[:2] == ["commit", "acknowledged"]


def test_concurrent_writes_share_commits(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        futures = [store.submit([span(number)]) for number in range(2000)]
        for future in futures:
            future.result(PATIENCE_SECONDS)
        assert store.counters().num_commits < 200


def test_captured_records_wait_for_company_and_acknowledged_ones_do_not(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learnloop.store.writer._LINGER_SECONDS", 10 * PATIENCE_SECONDS)
    with Store.open(sqlite_url) as store:
        for number in range(5):
            store.offer(span(number))
            time.sleep(0.0005)
        store.flush()
        assert store.counters().num_commits <= 2
        for number in range(20):
            store.write([span(100 + number)])  # each would wait for ever


def test_captured_records_become_durable_without_a_flush(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        store.offer(span(1))
        assert eventually(lambda: store.count(Span) == 1)


def test_what_is_offered_is_written_at_exit(sqlite_url: str) -> None:
    program = f"""
from learnloop.core.records import Agent
from learnloop.core.clock import now
from learnloop.store import Store
store = Store.open({sqlite_url!r})
for number in range(3000):
    assert store.offer(Agent(agent_id=f"a{{number}}", created_at=now()))
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
    with Store.open(sqlite_url) as store:
        assert store.count(Agent) == 3000


def test_after_a_fork_the_child_drops_and_says_so(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        store.write([span(0)])
        for number in range(1, 500):
            store.offer(span(number))
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            _report_from_child(store, write_end)
        os.close(write_end)
        with os.fdopen(read_end) as pipe:
            answers = pipe.read()
        assert os.waitpid(child, 0)[1] == 0
        assert answers == "False refused refused closed"
        store.flush()
        assert store.count(Span) == 500
        assert store.counters().num_dropped == 0


def _report_from_child(store: Store, pipe: int) -> None:
    signal.alarm(20)
    answers = [str(store.offer(span(9999)))]
    for work in (lambda: store.write([span(9999)]), lambda: store.get(Span, "s000000")):
        try:
            work()
        except ConflictError as error:
            answers.append("refused" if "parent process" in str(error) else str(error))
    store.close()
    answers.append("closed" if store.counters().num_dropped == 1 else str(store.counters()))
    os.write(pipe, " ".join(answers).encode())
    os._exit(0)


def _hold(path: str, seconds: float) -> subprocess.Popen[str]:
    program = f"""
import sqlite3, time
connection = sqlite3.connect({path!r}, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep({seconds})
connection.execute("ROLLBACK")
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_of_another_process_is_waited_for(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store, _hold(sqlite_url.removeprefix("sqlite:///"), 1.5):
        store.offer(span(1))
        store.write([span(2)])
        assert store.count(Span) == 2


def test_a_lock_that_stays_is_reported_and_what_was_captured_is_kept(sqlite_url: str) -> None:
    with Store.open(sqlite_url, patience=Patience(locked_seconds=0.5)) as store:
        with _hold(sqlite_url.removeprefix("sqlite:///"), 60) as process:
            store.offer(span(1))
            with pytest.raises(StoreLockedError, match=r"learnloop\.db is held by another process"):
                store.write([span(2)])
            with pytest.raises(StoreLockedError):
                store.run(lambda connection: None)
            process.kill()
        store.flush()
        assert [found.span_id for found in store.select(Span)] == ["s000001"]


def test_a_write_that_takes_too_long_says_so(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        release, is_held = threading.Event(), threading.Event()

        def hold(connection: Connection) -> None:
            is_held.set()
            release.wait(PATIENCE_SECONDS)

        blocked = threading.Thread(target=store.run, args=(hold,))
        blocked.start()
        assert is_held.wait(PATIENCE_SECONDS)
        with pytest.raises(UnreachableError, match=r"did not confirm within 0\.1 s"):
            store.write([span(1)], timeout_seconds=0.1)
        with pytest.raises(UnreachableError):
            store.flush(timeout_seconds=0.1)
        release.set()
        blocked.join()


_WRITE_AND_TELL = """
import sys
from learnloop.core.clock import now
from learnloop.core.records import Episode, EpisodeStatus, Reward
from learnloop.store import Store

store, first = Store.open(sys.argv[1]), sys.argv[2]
number = 0
while True:
    batch = []
    for _ in range(1 + number % 7):
        number += 1
        key = f"{first}-{number}"
        batch.append(Episode(episode_id=key, trace_id=key, agent_id=key, task_id=None,
                             status=EpisodeStatus.RUNNING, started_at=now()))
        batch.append(Reward(reward_id=key, episode_id=key, name="r", value=1.0, created_at=now()))
        store.offer(Reward(reward_id="offered-" + key, episode_id=key, name="r", value=1.0, created_at=now()))
    store.write(batch)
    print(" ".join(record.episode_id for record in batch[::2]), flush=True)
"""


def _kill_campaign(url: str, num_kills: int) -> set[str]:
    """Kills a writer again and again; returns the keys that it had acknowledged."""
    acknowledged: set[str] = set()
    for attempt in range(num_kills):
        command = [sys.executable, "-c", _WRITE_AND_TELL, url, str(attempt)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(1 + attempt % 3):  # on a busy machine nothing more may come in the time below
                acknowledged.update(process.stdout.readline().split())
            time.sleep(0.006 * (attempt % 10))
            process.send_signal(signal.SIGKILL)
            whole_lines = [line for line in process.stdout if line.endswith("\n")]
            acknowledged.update(key for line in whole_lines for key in line.split())
    return acknowledged


def _check_after_kills(url: str, acknowledged: set[str]) -> None:
    with Store.open(url) as store:
        kept = {episode_id for (episode_id,) in store.read(_all("SELECT episode_id FROM episodes"))}
        rewarded = {reward_id for (reward_id,) in store.read(_all("SELECT reward_id FROM rewards"))}
        reported = store.read(_all("SELECT subject, count(*) FROM events GROUP BY subject, kind HAVING count(*) > 1"))
        assert acknowledged <= kept
        assert acknowledged <= rewarded
        assert reported == []
        num_events = store.read(_all("SELECT count(*) FROM events"))[0][0]
        assert num_events == len(kept) + len(rewarded)


def _all(statement: str):  # type: ignore[no-untyped-def]
    return lambda connection: [tuple(row) for row in connection.exec_driver_sql(statement)]


@pytest.mark.slow
@pytest.mark.parametrize("num_kills", repeats([10, 50]))
def test_kills_lose_no_acknowledged_record_on_sqlite(sqlite_url: str, num_kills: int) -> None:
    acknowledged = _kill_campaign(sqlite_url, num_kills)
    assert len(acknowledged) > num_kills
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
    _check_after_kills(sqlite_url, acknowledged)


@pytest.mark.slow
@pytest.mark.parametrize("num_kills", repeats([5, 20]))
def test_kills_lose_no_acknowledged_record_on_postgresql(postgres_url: str, num_kills: int) -> None:
    acknowledged = _kill_campaign(postgres_url, num_kills)
    assert len(acknowledged) > num_kills
    _check_after_kills(postgres_url, acknowledged)


def test_a_writer_that_was_killed_leaves_a_store_that_opens(sqlite_url: str, tmp_path: Path) -> None:
    acknowledged = _kill_campaign(sqlite_url, 2)
    _check_after_kills(sqlite_url, acknowledged)
    assert (tmp_path / "learnloop.db").exists()
