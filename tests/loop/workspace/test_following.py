"""learnloop.loop.workspace.following: what happens is seen as it becomes durable, each once, in its order."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from learnloop.core.records import EpisodeStatus
from learnloop.loop import Workspace, find_settings
from learnloop.loop.workspace.following import follow
from learnloop.testing.contracts.store_examples import T0, decision, episode, reward


@pytest.fixture(params=["sqlite", "postgresql"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    database = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    with Workspace(find_settings(tmp_path / "home", database), create=True) as opened:
        yield opened


def test_what_comes_is_given_and_what_was_is_not(workspace: Workspace) -> None:
    store = workspace.store
    store.write([episode("before")])
    happenings = follow(workspace)

    def write() -> None:
        store.write([episode("e1")])
        store.write([decision("d1", episode_id="e1"), reward("r1", decision_id="d1", episode_id=None, value=0.5)])
        store.write([episode("e1", EpisodeStatus.COMPLETED, ended_at=T0)])

    timer = threading.Timer(0.3, write)
    timer.start()
    found = list(itertools.islice(happenings, 3))
    timer.join()
    assert [(each.kind, each.episode_id, each.agent_id) for each in found] == [
        ("episode.started", "e1", "packer"),
        ("reward.recorded", "e1", "packer"),
        ("episode.ended", "e1", "packer"),
    ]
    assert (found[1].name, found[1].value, found[2].status) == ("saved", 0.5, "completed")


def test_one_agents_alone_from_some_events_ago(workspace: Workspace) -> None:
    store = workspace.store
    store.write([episode("a1"), episode("b1", agent_id="b"), episode("a2")])
    store.write([reward("r1", episode_id="b1", decision_id=None), reward("r2", episode_id="a2", decision_id=None)])
    store.write([reward("lost", episode_id="nothing", decision_id=None)])
    mine = [each.episode_id for each in itertools.islice(follow(workspace, agent="packer", last=100), 3)]
    assert mine == ["a1", "a2", "a2"]
    lost = next(follow(workspace, last=1))
    assert (lost.agent_id, lost.episode_id) == (None, "nothing")
