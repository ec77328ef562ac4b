"""learnloop.loop.tracing: pages by time, all rewards of an episode, files that are whole."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from learnloop.core.errors import StoreError, UsageError
from learnloop.core.records import Decision, Episode, EpisodeStatus, Record, Reward
from learnloop.loop import Workspace, find_settings
from learnloop.loop.tracing import export_to, list_episodes, show_episode
whole_file = open

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    database = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    with Workspace(find_settings(tmp_path / "home", database), create=True) as opened:
        yield opened


def episode(key: str, minute: int, agent: str = "a") -> Episode:
    started = START + timedelta(minutes=minute)
    return Episode(
        episode_id=key, trace_id=key, agent_id=agent, task_id=None, status=EpisodeStatus.RUNNING, started_at=started
    )


def pages(workspace: Workspace, limit: int, agent: str | None = None) -> list[list[str]]:
    found, cursor = [], None
    while True:
        page = list_episodes(workspace, agent=agent, limit=limit, after=cursor)
        found.append([row.episode.episode_id for row in page.rows])
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_the_newest_come_first_whatever_their_ids_are(workspace: Workspace) -> None:
    """Imported episodes have ids made of content, which say nothing about time; several may start at once."""
    started = {"f": 3, "0": 2, "c": 2, "9": 2, "a": 1, "é x": 0}
    workspace.store.write([episode(key, minute) for key, minute in started.items()])
    workspace.store.write([episode("other", 9, agent="b")])
    expected = sorted(started, key=lambda key: (started[key], key), reverse=True)
    for limit in (1, 2, 3, 6):
        found = pages(workspace, limit, agent="a")
        assert [key for page in found for key in page] == expected
        assert all(len(page) == limit for page in found[:-1])
    assert pages(workspace, 50)[0][0] == "other"


@pytest.mark.parametrize(
    "cursor", ["", "?", "019b2f3c-0000-7000-8000-000000000000", "YWJj", "MTIz!", "OTk5OTk5OTk5OTk5OTk5OTk5IHg="]
)
def test_a_cursor_that_is_none_is_refused(tmp_path: Path, cursor: str) -> None:
    with Workspace(find_settings(tmp_path / "home"), create=True) as workspace:
        with pytest.raises(UsageError, match="is no cursor"):
            list_episodes(workspace, after=cursor)
        with pytest.raises(UsageError, match="limit is 0"):
            list_episodes(workspace, limit=0)


def reward(key: str, second: int, *, episode_id: str | None, decision_id: str | None = None) -> Reward:
    moment = START + timedelta(seconds=second)
    return Reward(reward_id=key, episode_id=episode_id, decision_id=decision_id, name="n", value=1.0, created_at=moment)


def test_rewards_of_an_episodes_decisions_are_its_own(workspace: Workspace) -> None:
    def decision(key: str, episode_id: str) -> Decision:
        return Decision(
            decision_id=key,
            episode_id=episode_id,
            agent_id="a",
            policy="p",
            algorithm=None,
            context={},
            actions=["l", "r"],
            action="l",
            propensity=0.5,
            created_at=START,
        )

    records: list[Record] = [episode("e", 0), episode("other", 0), decision("d", "e"), decision("d2", "other")]
    records += [
        reward("r3", 1, episode_id=None, decision_id="d"),
        reward("r2", 2, episode_id="e", decision_id="d"),
        reward("r1", 3, episode_id="e"),
        reward("r0", 0, episode_id=None, decision_id="d2"),
    ]
    workspace.store.write(records)
    assert [each.reward_id for each in show_episode(workspace, "e").rewards] == ["r3", "r2", "r1"]
    assert [each.reward_id for each in show_episode(workspace, "other").rewards] == ["r0"]


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(find_settings(tmp_path / "home"), create=True) as opened:
        opened.store.write([episode("e", 0)])
        yield opened


def test_a_link_is_followed_and_stays(filled: Workspace, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for content in (None, "old"):
        target, link = tmp_path / "real" / f"{content}.jsonl", tmp_path / f"{content}.link"
        if content:
            target.write_text(content)
            target.chmod(0o640)
        link.symlink_to(target)
        assert export_to(filled, link) == 2
        assert link.is_symlink()
        assert len(target.read_text().splitlines()) == 3
    assert stat.S_IMODE((tmp_path / "real" / "old.jsonl").stat().st_mode) == 0o640
    assert {path.name for path in (tmp_path / "real").iterdir()} == {"None.jsonl", "old.jsonl"}


def test_a_pipe_is_written_to_and_stays(filled: Workspace, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for name in ("pipe", "link"):
        read: list[bytes] = []
        reader = threading.Thread(target=lambda into=read: into.append(pipe.read_bytes()))  # type: ignore[misc]
        reader.start()
        assert export_to(filled, tmp_path / name) == 2
        reader.join(10)
        assert len(read[0].splitlines()) == 3
        assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_cannot_be_written_is_said(filled: Workspace, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in (tmp_path / "nowhere" / "x", tmp_path / "home", tmp_path / "loop" / "x"):
        with pytest.raises(StoreError, match="cannot be written"):
            export_to(filled, place)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_text("old")
    with pytest.raises(ValueError), whole_file(target) as stream:
        stream.write(b"half")
        raise ValueError
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "old")]
