"""A server removes what has expired and indexes what is searched, without being asked."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from learnloop.core.clock import now
from learnloop.core.records import Episode, EpisodeStatus, Span, SpanStatus
from learnloop.loop import Workspace
from learnloop.loop.workspace.settings import find_settings
from learnloop.store.full_text import is_waiting
from tests.serve.conftest import Start
from tests.waiting import eventually


def run(key: str, days_ago: int) -> list[Episode | Span]:
    moment = now() - timedelta(days=days_ago)
    episode = Episode(
        episode_id=key,
        trace_id=key,
        agent_id="a",
        task_id=None,
        status=EpisodeStatus.COMPLETED,
        terminated=True,
        started_at=moment,
        ended_at=moment,
    )
    span = Span(
        span_id=f"{key}-1",
        trace_id=key,
        episode_id=key,
        parent_id=None,
        operation="chat",
        name="m",
        status=SpanStatus.OK,
        started_at=moment,
        ended_at=moment,
        attributes={"output": f"words of {key}"},
    )
    return [episode, span]


def test_old_episodes_go_and_new_ones_are_indexed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learnloop.serve.app.INDEX_SECONDS", 0.05)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "learnloop.toml").write_text('home = "kept"\nretention_days = 30\n')
    with Workspace(find_settings(), create=True) as workspace:
        workspace.store.write([*run("old", 31), *run("recent", 3)])
        start(on=workspace)
        left = [each.episode_id for each in workspace.store.iterate(Episode)]
        assert eventually(lambda: [each.episode_id for each in workspace.store.iterate(Episode)] == ["recent"]), left
        workspace.store.write(run("fresh", 0))
        assert eventually(lambda: not workspace.store.read(is_waiting))
        found = workspace.episodes.list(search="words")
        assert [row.episode.episode_id for row in found] == ["fresh", "recent"]
