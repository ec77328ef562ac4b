"""Decisions go to SQLite by one statement; what is kept and reported is what the usual way keeps and reports."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from learnloop.core.clock import now
from learnloop.core.errors import NotFoundError, StoreLockedError, UsageError
from learnloop.core.records import Agent, Decision, DecisionMode, Event, Record, Reward
from learnloop.store import Patience, Store, insert_records
from learnloop.store.decision_log import MAX_RECORDS, DecisionLog
from learnloop.store.engine import parse_url
from tests.repeats import repeats
from tests.store.test_faults import _in_namespace
from tests.waiting import PATIENCE_SECONDS

T0 = datetime(2026, 1, 1, 12, 0, 0, 123_456, tzinfo=UTC)


def decision(key: str, **changes: Any) -> Decision:
    given: dict[str, Any] = {
        "decision_id": key, "episode_id": None, "agent_id": "shop", "policy": "banner", "algorithm": None,
        "context": {"hour": 9}, "actions": ["a", "b"], "action": "a", "propensity": 0.25, "created_at": T0,
    }  # fmt: skip
    return Decision(**{**given, **changes})


def told(store: Store, kind: str = "decision.made") -> list[str]:
    return [event.subject for event in store.events(limit=1000) if event.kind == kind]


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What ``DecisionLog.write`` answered, in order."""
    answers: list[bool] = []
    write = DecisionLog.write

    def kept(self: DecisionLog, records: list[Record]) -> bool:
        answers.append(write(self, records))
        return answers[-1]

    monkeypatch.setattr(DecisionLog, "write", kept)
    return answers


@pytest.fixture
def store(sqlite_url: str, direct: list[bool]) -> Iterator[Store]:
    with Store.open(sqlite_url) as opened:
        opened.write([Agent(agent_id="shop", created_at=T0)])
        direct.clear()
        yield opened


def test_it_keeps_and_tells_as_the_usual_way_does(store: Store, direct: list[bool], tmp_path: Path) -> None:
    made = [
        decision("d2", action="b", vector=b"\0\xff", mode=DecisionMode.LEARNING, probabilities=[0.75, 0.25]),
        decision("d1", policy='quote " \\ / \n \x01 \x7f é 😀 \u2028', mask=[True, False], is_deferred=True),
        decision("d3", policy="nul \0 and half \ud800", episode_id="e", slot="s", request_id="r"),
        decision("d2", action="a"),
    ]
    store.write(made)
    assert direct == [True]
    with Store.open(f"sqlite:///{tmp_path}/usual.db") as usual:
        usual.write([Agent(agent_id="shop", created_at=T0)])
        usual.run(lambda connection: insert_records(connection, made))
        events = [[event for event in each.select(Event) if event.kind == "decision.made"] for each in (store, usual)]
        shapes = [[(each.sequence, each.subject, list(each.payload.items())) for each in of] for of in events]
        assert shapes[0] == shapes[1]
        assert [shape[1] for shape in shapes[0]] == ["d2", "d1", "d3"]
        rows = [each.read(lambda c: c.exec_driver_sql("SELECT * FROM decisions").all()) for each in (store, usual)]
        assert rows[0] == rows[1]
        assert all(abs(event.created_at - now()) < timedelta(seconds=20) for event in events[0])


def test_what_is_there_already_changes_nothing_and_tells_nothing(store: Store, direct: list[bool]) -> None:
    store.write([decision("d1")])
    store.write([decision("d1", action="b"), decision("d2")])
    assert direct == [True, True]
    assert store.get(Decision, "d1").action == "a"
    assert told(store) == ["d1", "d2"]


def test_other_records_new_agents_and_many_go_the_usual_way(store: Store, direct: list[bool]) -> None:
    reward = Reward(reward_id="r", episode_id=None, decision_id="d1", name="r", value=1.0, created_at=T0)
    store.write([decision("d1"), reward])
    store.write([decision("d2", agent_id="new")])
    store.write([decision("d3", agent_id="new")])
    store.write([decision(f"m{number}") for number in range(MAX_RECORDS + 1)])
    store.write([decision(f"n{number}") for number in range(MAX_RECORDS)])
    assert direct == [False, False, True, False, True]
    assert store.count(Decision) == len(told(store)) == 3 + 2 * MAX_RECORDS + 1


def test_one_that_cannot_be_leaves_out_its_job_alone(store: Store) -> None:
    release = _blocked(store)
    jobs = [
        store.submit([decision("d1")]),
        store.submit([decision("d2"), decision("d3", context=object())]),
        store.submit([decision("d4"), decision("d5", propensity=float("nan"))]),
        store.submit([decision("d6")]),
    ]
    release()
    errors = [job.exception(PATIENCE_SECONDS) for job in jobs]
    assert [type(error) for error in errors] == [type(None), UsageError, UsageError, type(None)]
    assert told(store) == ["d1", "d6"]
    assert {each.decision_id for each in store.select(Decision)} == {"d1", "d6"}


def _blocked(store: Store) -> Callable[[], None]:
    """Holds the writer, so that what is submitted meanwhile is one batch; returns what lets it go on."""
    entered, gate = threading.Event(), threading.Event()

    def wait(connection: Connection) -> None:
        entered.set()
        gate.wait(PATIENCE_SECONDS)

    threading.Thread(target=store.run, args=(wait,)).start()
    entered.wait(PATIENCE_SECONDS)
    return gate.set


def test_records_become_what_the_transform_makes_of_them(sqlite_url: str, direct: list[bool]) -> None:
    def redact(record: Record) -> Record:
        if isinstance(record, Decision) and record.action == "b":
            raise UsageError("not this one")
        return decision(record.decision_id, context="hidden") if isinstance(record, Decision) else record

    with Store.open(sqlite_url, transform=redact) as store:
        store.write([Agent(agent_id="shop", created_at=T0)])
        store.write([decision("d1", context="a4711")])
        assert direct[-1]
        with pytest.raises(UsageError, match="not this one"):
            store.write([decision("d2", action="b")])
        assert [each.context for each in store.select(Decision)] == ["hidden"]
    assert b"a4711" not in Path(sqlite_url.removeprefix("sqlite:///")).read_bytes()


@pytest.mark.parametrize("fails_at_commit", [True, False])
def test_an_agent_of_a_transaction_that_failed_is_not_known(
    store: Store, direct: list[bool], fails_at_commit: bool
) -> None:
    def work(connection: Connection) -> None:
        insert_records(connection, [decision("d1", agent_id="new")])
        if not fails_at_commit:
            raise NotFoundError("no")
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        connection.exec_driver_sql("UPDATE decisions SET agent_id = 'nobody'")

    with pytest.raises(NotFoundError):
        store.run(work)
    store.run(lambda connection: insert_records(connection, [decision("d2", agent_id="new")]))
    store.write([decision("d3", agent_id="new")])
    assert direct == [True]
    assert told(store) == ["d2", "d3"]


def test_agents_that_another_process_removed_are_made_again(store: Store, direct: list[bool]) -> None:
    store.write([decision("d1")])
    with sqlite3.connect(_path(store)) as other:
        other.executescript("DELETE FROM decisions; DELETE FROM agents")
    store.write([decision("d2")])
    store.write([decision("d3")])
    assert direct == [True, True]  # of d1 and d3; that of d2 raised
    assert [each.agent_id for each in store.select(Agent)] == ["shop"]


def _path(store: Store) -> str:
    return store.url.removeprefix("sqlite:///")


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE later (x)",
        "ALTER TABLE decisions ADD COLUMN later TEXT",
        "ALTER TABLE events ADD COLUMN later TEXT",
        "VACUUM",
        "ANALYZE",
        "PRAGMA wal_checkpoint(TRUNCATE)",
    ],
)
def test_events_come_also_after_another_process_changed_the_schema(
    store: Store, direct: list[bool], change: str
) -> None:
    store.write([decision("d1")])
    with sqlite3.connect(_path(store), isolation_level=None) as other:
        other.execute(change)
    store.write([decision("d2")])
    assert direct == [True, True]
    assert told(store) == ["d1", "d2"]


def test_the_log_of_the_database_can_be_emptied_while_it_is_open(store: Store) -> None:
    store.write([decision("d1")])
    assert store.scrub()
    assert os.path.getsize(f"{_path(store)}-wal") == 0
    store.write([decision("d2")])
    assert store.scrub()


def test_a_lock_of_another_process_is_waited_for(store: Store, direct: list[bool]) -> None:
    store.write([decision("d1")])
    begin = time.monotonic()
    with _held(_path(store), 3.0):
        store.write([decision("d2")])
        assert time.monotonic() - begin > 2.5
    assert told(store) == ["d1", "d2"]


def test_a_lock_that_stays_is_reported(sqlite_url: str) -> None:
    with Store.open(sqlite_url, patience=Patience(locked_seconds=0.5)) as store:
        store.write([decision("d1")])
        with _held(_path(store), 60) as process:
            with pytest.raises(StoreLockedError, match="held by another process"):
                store.write([decision("d2")])
            process.kill()
        store.write([decision("d3")])
        assert told(store) == ["d1", "d3"]


def _held(path: str, seconds: float) -> subprocess.Popen[str]:
    program = f"""
import sqlite3, time
connection = sqlite3.connect({path!r}, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep({seconds})
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_it_writes_to_the_file_of_the_store_wherever_the_process_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with Store.open("sqlite:///odd %3F#.db") as store:
        store.write([Agent(agent_id="shop", created_at=T0)])
        monkeypatch.chdir(tmp_path / "other")
        store.write([decision("d1")])
        assert told(store) == ["d1"]
    assert list((tmp_path / "other").iterdir()) == []


def test_a_database_that_is_named_by_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: list[bool]) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.open("sqlite:///file:named.db?uri=true") as store:
        store.write([Agent(agent_id="shop", created_at=T0)])
        store.write([decision("d1")])
        assert told(store) == ["d1"]
    assert direct == []


def test_in_memory_the_usual_way_is_taken(direct: list[bool]) -> None:
    with Store.open("sqlite:///:memory:") as store:
        store.write([decision("d1")])
        store.write([decision("d2")])
        assert told(store) == ["d1", "d2"]
    assert direct == []


def test_a_store_can_be_closed_and_opened_again(store: Store) -> None:
    store.write([decision("d1")])
    store.close()
    assert not Path(f"{_path(store)}-wal").exists()  # the last connection is closed
    with Store.open(store.url) as again:
        again.write([decision("d2")])
        assert told(again) == ["d1", "d2"]


def test_closing_waits_for_the_statement_that_runs(store: Store) -> None:
    store.write([decision("d1")])
    log = store._decisions
    assert log is not None
    with sqlite3.connect(_path(store), isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        late = store.submit([decision("d2")])
        while not log._lock.locked():
            time.sleep(0.001)
        log.close()
        assert not late.done()
        other.execute("ROLLBACK")
    late.result(PATIENCE_SECONDS)
    assert told(store) == ["d1", "d2"]


def test_a_file_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    log = DecisionLog(parse_url(f"sqlite:///{tmp_path}/gone.db"), None)
    with pytest.raises(sqlite3.OperationalError):
        log.write([decision("d1")])
    assert not (tmp_path / "gone.db").exists()


def test_a_forked_child_neither_writes_nor_disturbs(store: Store) -> None:
    store.write([decision("d1")])
    child = os.fork()
    if child == 0:
        store.offer(decision("of the child"))
        store.close()
        os._exit(0)
    store.write([decision("d2")])
    os.waitpid(child, 0)
    store.write([decision("d3")])
    assert told(store) == ["d1", "d2", "d3"]
    assert store.run(lambda connection: connection.exec_driver_sql("PRAGMA integrity_check").scalar()) == "ok"


_IMPORTS = """
from learnloop.core.clock import now
from learnloop.core.records import Agent, Decision
def decision(key, size=1):
    return Decision(decision_id=key, episode_id=None, agent_id="shop", policy="p", algorithm=None, context="x" * size,
                    actions=["a"], action="a", propensity=1.0, created_at=now())
"""


def test_a_full_disk_is_reported_and_writing_goes_on_when_there_is_space(tmp_path: Path) -> None:
    program = f"""{_IMPORTS}
mount("-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder))
store = Store.open(url)
store.write([decision("first")])
ballast = folder / "ballast"
with open(ballast, "wb") as file:
    file.write(b"x" * (os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize - 150_000))
kept = ["first"]
def fill(name):
    for number in range(1000):
        store.write([decision(f"{{name}}{{number}}", 20_000)])
        kept.append(f"{{name}}{{number}}")
print(refusal(lambda: fill("d")))
print(refusal(lambda: fill("e")))
ballast.unlink()
store.write([decision("last")])
kept.append("last")
print([event.subject for event in store.events(limit=1000)] == kept == [
    each.decision_id for each in sorted(store.select(Decision, limit=1000), key=lambda each: each.created_at)])
print(store.run(lambda connection: connection.exec_driver_sql("PRAGMA integrity_check").scalar()), len(kept) > 3)
store.close()
"""
    lines = _in_namespace(tmp_path, program)
    assert all(line.startswith("StoreFullError: no space is left") for line in lines[:2])
    assert lines[2:] == ["True", "ok True"]


def test_a_disk_that_was_read_only_is_written_again(tmp_path: Path) -> None:
    program = f"""{_IMPORTS}
mount("-t", "tmpfs", "tmpfs", str(folder))
store = Store.open(url)
store.write([Agent(agent_id="shop", created_at=now())])
store._connections.close()
mount("-o", "remount,ro", str(folder))
print(refusal(lambda: store.write([decision("d1")])))
mount("-o", "remount,rw", str(folder))
store._connections.close()
store.write([decision("d2")])
print([event.subject for event in store.events()])
"""
    lines = _in_namespace(tmp_path, program)
    assert lines[0].startswith("StoreReadOnlyError")
    assert lines[1] == "['d2']"


_WRITE_AND_TELL = f"""{_IMPORTS}
import sys
from learnloop.store import Store
store, first = Store.open(sys.argv[1]), sys.argv[2]
number = 0
while True:
    keys = [f"{{first}}-{{number}}-{{each}}" for each in range(1 + number % 7)]
    number += 1
    store.write([decision(key) for key in keys])
    print(" ".join(keys), flush=True)
"""


def _kill(url: str, num_kills: int) -> None:
    acknowledged: set[str] = set()
    for attempt in range(num_kills):
        command = [sys.executable, "-c", _WRITE_AND_TELL, url, str(attempt)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            acknowledged.update(process.stdout.readline().split())
            time.sleep(0.006 * (attempt % 10))
            process.send_signal(signal.SIGKILL)
            acknowledged.update(key for line in process.stdout if line.endswith("\n") for key in line.split())
    with Store.open(url) as store:
        query = "SELECT decision_id FROM decisions ORDER BY sequence"
        kept = [row[0] for row in store.read(lambda connection: connection.exec_driver_sql(query).all())]
        reported = [row[0] for row in store.read(lambda c: c.exec_driver_sql("SELECT subject FROM events").all())]
        assert acknowledged <= set(kept)
        assert reported == kept  # one event each, in the same order
        jobs: dict[str, int] = {}
        for key in kept:
            jobs[key.rpartition("-")[0]] = jobs.get(key.rpartition("-")[0], 0) + 1
        assert all(count == 1 + int(job.rpartition("-")[2]) % 7 for job, count in jobs.items())  # all or none
        assert store.run(lambda connection: connection.exec_driver_sql("PRAGMA integrity_check").scalar()) == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("num_kills", repeats([10, 200]))
def test_kills_lose_no_acknowledged_decision(sqlite_url: str, num_kills: int) -> None:
    _kill(sqlite_url, num_kills)
