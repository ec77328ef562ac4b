"""learnloop.decisions.learning.learner_process: a real process, killed in every way, that leaves nothing half done."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from learnloop.core.clock import now
from learnloop.core.records import ChampionTest, Decision, LearningUpdate, PolicySettings, PolicyVersion, Reward
from learnloop.decisions.learning.learner_process import NICENESS, LearnerPlace, LearnerProcess
from learnloop.decisions.service.settings import DecisionSettings, LearningSettings
from learnloop.registry import Registry
from learnloop.store import Store
from tests.decisions.champion_world import SETTINGS, World
from tests.decisions.population import NAME, Population
from tests.repeats import repeats
from tests.waiting import eventually, is_running

WAIT = 400.0
"""Seconds: the learner gives way to all else that runs, and a busy machine leaves it little."""


def wait_until(is_so: Callable[[], bool]) -> None:
    assert eventually(is_so, WAIT), "it did not come to pass in time"


@pytest.fixture
def place(tmp_path: Path) -> LearnerPlace:
    return LearnerPlace(
        database=f"sqlite:///{tmp_path}/learnloop.db",
        blobs=str(tmp_path / "blobs"),
        versions=str(tmp_path / "policies"),
        poll_seconds=0.05,
    )


@pytest.fixture
def opened(place: LearnerPlace) -> Iterator[Store]:
    with Store.open(place.database) as store:
        yield store


@pytest.fixture
def learner(place: LearnerPlace) -> Iterator[LearnerProcess]:
    process = LearnerProcess(place)
    yield process
    process.stop()
    assert not process.is_alive


def users_of(store: Store, place: LearnerPlace, number: int) -> Population:
    users = Population(store, Registry(store, Path(place.versions)), DecisionSettings(), 0)
    users.live(number)
    return users


def test_it_learns_beside_the_server(
    opened: Store, place: LearnerPlace, learner: LearnerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a lower priority and on one thread; what it learned is served by the alias alone."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    users = users_of(opened, place, 1_000)
    learner.start()
    learner.start()  # once is enough
    wait_until(lambda: users.value() == 1.0)
    wait_until(lambda: opened.count(LearningUpdate) == 1)
    assert learner.process_id is not None
    niceness = os.getpriority(os.PRIO_PROCESS, learner.process_id)
    assert niceness == min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19)  # there is none above
    environment = Path(f"/proc/{learner.process_id}/environ").read_bytes()
    assert b"OPENBLAS_NUM_THREADS=1" in environment
    command = Path(f"/proc/{learner.process_id}/cmdline").read_bytes()
    assert place.database.encode() not in command
    wait_until(lambda: learner.news is not None and learner.news.state == "updated")
    users.live(99)
    time.sleep(0.3)
    assert opened.count(LearningUpdate) == 1  # too little new
    users.live(1)
    wait_until(lambda: opened.count(LearningUpdate) == 2)
    assert learner.num_starts == 1


def test_it_watches_what_is_served(opened: Store, place: LearnerPlace, learner: LearnerProcess) -> None:
    """It needs no new update for that: the settings ask for more rewards than ever come."""
    patient = msgspec.structs.replace(SETTINGS, learning=LearningSettings(min_new_rewards=1_000_000))
    world = World(opened, Registry(opened, Path(place.versions)), patient)
    bad = world.champion("a0")
    learner.start()
    wait_until(lambda: learner.news is not None)
    world.live(200)
    wait_until(lambda: opened.count(ChampionTest) == 1)
    assert world.serving() == bad
    world.earns["a0"] = 0.0
    world.live(600)
    wait_until(lambda: world.serving() is None)
    wait_until(lambda: learner.news is not None and learner.news.state == "put out")
    assert opened.count(LearningUpdate) == 1


def test_it_is_started_again_when_it_was_killed(opened: Store, place: LearnerPlace, learner: LearnerProcess) -> None:
    learner.start()
    wait_until(lambda: learner.news is not None)
    first = learner.process_id
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: learner.num_starts == 2 and learner.is_alive)
    assert learner.process_id != first
    users = users_of(opened, place, 1_000)
    wait_until(lambda: users.value() == 1.0)


def test_it_ends_with_its_parent(opened: Store, place: LearnerPlace) -> None:
    """Also with one that is killed and can tell nobody."""
    program = (
        "import sys, time, msgspec; from learnloop.decisions.learning.learner_process import *; "
        "p = LearnerProcess(msgspec.json.decode(sys.argv[1], type=LearnerPlace)); p.start()\n"
        "while p.news is None: time.sleep(.02)\n"
        "sys.stdout.write(f'{p.process_id}\\n'); sys.stdout.flush(); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, msgspec.json.encode(place).decode()],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
    assert is_running(child)
    parent.kill()
    parent.wait()
    wait_until(lambda: not is_running(child))


def test_it_waits_for_a_database_that_is_not_there(place: LearnerPlace, learner: LearnerProcess) -> None:
    learner.start()
    wait_until(lambda: learner.news is not None)
    assert learner.news is not None
    assert learner.news.state == "waiting"
    assert "no database" in learner.news.what
    assert not Path(place.database.removeprefix("sqlite:///")).exists()
    with Store.open(place.database) as store:
        users = users_of(store, place, 1_000)
        wait_until(lambda: users.value() == 1.0)
    assert learner.num_starts == 1


@pytest.mark.slow
def test_it_waits_for_a_database_that_is_locked(opened: Store, place: LearnerPlace, learner: LearnerProcess) -> None:
    users = users_of(opened, place, 1_000)
    with sqlite3.connect(place.database.removeprefix("sqlite:///")) as other:
        other.execute("BEGIN IMMEDIATE")
        learner.start()
        wait_until(lambda: learner.news is not None and learner.news.state == "waiting")
        assert learner.news is not None
        assert "locked" in learner.news.what
        other.rollback()
    other.close()
    wait_until(lambda: users.value() == 1.0)
    assert learner.num_starts == 1


def test_sigterm_ends_a_training(opened: Store, place: LearnerPlace, learner: LearnerProcess) -> None:
    users_of(opened, place, 6_000)
    learner.start()
    wait_until(lambda: learner.news is not None)
    trained = psutil.Process(learner.process_id)
    before = trained.cpu_times().user
    with closing(sqlite3.connect(place.database.removeprefix("sqlite:///"))) as other:
        other.execute("BEGIN IMMEDIATE")  # so that it is not over before we look
        wait_until(lambda: trained.cpu_times().user - before > 0.5)  # in the midst of it
        began = time.monotonic()
        learner.stop(timeout_seconds=WAIT)
        assert time.monotonic() - began < WAIT  # it was not killed
        assert not learner.is_alive
        other.rollback()
    assert opened.count(LearningUpdate) == 0


@pytest.mark.slow
@pytest.mark.parametrize("num_kills", repeats([4, 8]))
def test_a_killed_update_leaves_nothing_half_registered(opened: Store, place: LearnerPlace, num_kills: int) -> None:
    """Killed again and again, ever later; each version that can be seen is whole, and the update is made in the end."""
    users = users_of(opened, place, 1_000)
    for number in range(num_kills):
        process = LearnerProcess(place)
        process.start()
        wait_until(lambda process=process: process.news is not None)  # type: ignore[misc]
        time.sleep(2.4 / num_kills * number)
        assert process.process_id is not None
        os.kill(process.process_id, signal.SIGKILL)
        process.stop()
        for version in users.registry.versions(NAME):
            users.registry.load(version)
        for update in opened.iterate(LearningUpdate):
            assert update.error is None
            if update.policy_version_id is not None:
                assert opened.find(PolicyVersion, update.policy_version_id) is not None
        users.value()  # the champion, where there is one, can be loaded
    last = LearnerProcess(place)
    last.start()
    wait_until(lambda: opened.count(LearningUpdate) >= 1)
    last.stop()
    assert users.value() == 1.0
    assert len(users.registry.versions(NAME)) == 1  # the same log makes the same version


def test_damaged_settings_of_one_policy_do_not_hold_up_the_others(
    opened: Store, place: LearnerPlace, learner: LearnerProcess
) -> None:
    users = users_of(opened, place, 1_000)
    decision = opened.select(Decision, limit=1)[0]
    other = msgspec.structs.replace(decision, decision_id="other", policy="a")
    reward = Reward(reward_id="other", episode_id=None, decision_id="other", name="r", value=1.0, created_at=now())
    settings = PolicySettings(
        policy_settings_id="x", agent_id="bot", policy="a", version=1, settings={"mode": "?"}, created_at=now()
    )
    opened.write([other, reward, settings])
    learner.start()
    wait_until(lambda: users.value() == 1.0)


def test_it_is_tried_again_where_it_could_not_be_started(
    opened: Store, place: LearnerPlace, learner: LearnerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, failures = subprocess.Popen, [OSError("no memory left")]

    def start_later(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        if failures:
            raise failures.pop()
        return started(*args, **options)

    monkeypatch.setattr("learnloop.system.worker.subprocess.Popen", start_later)
    learner.start()
    wait_until(lambda: learner.is_alive)
    assert learner.num_starts == 1
    assert failures == []
