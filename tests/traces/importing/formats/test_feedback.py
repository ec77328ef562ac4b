"""learnloop.traces.importing.formats.feedback: rewards that find their decision or episode by id."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.records import Decision, Episode, EpisodeStatus, Reward
from learnloop.store import Store
from learnloop.traces.importing.exchange import import_file
from tests.traces.formats.reading import check_damaged, check_wrong_values

MOMENT = datetime(2026, 11, 28, 12, tzinfo=UTC)


def line(goal_id: str, reward: float | None = 1.0, **more: Any) -> dict[str, Any]:
    return {
        "goal_id": goal_id,
        "goal": "tidy up",
        "success": True,
        "execution_time_ms": 12,
        "output": "done",
        "reward": reward,
        "timestamp": "2026-11-28T12:00:00Z",
        **more,
    }


def written(tmp_path: Path, *lines: dict[str, Any]) -> Path:
    path = tmp_path / "rl_feedback.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def decision(key: str, episode_id: str | None) -> Decision:
    return Decision(
        decision_id=key, episode_id=episode_id, agent_id="a", policy="p", algorithm=None, context={},
        actions=["x"], action="x", propensity=1.0, created_at=MOMENT,
    )  # fmt: skip


EPISODE = Episode(
    episode_id="e1", trace_id="e1", agent_id="a", task_id=None, status=EpisodeStatus.COMPLETED, started_at=MOMENT
)


def test_feedback_is_joined_by_id_not_by_text(store: Store, tmp_path: Path) -> None:
    """F0.9: two goals of the same words are two goals; an id that nobody knows is kept and named."""
    store.write([EPISODE, decision("d1", "e1"), decision("d2", None)])
    path = written(tmp_path, line("d1", 1.0), line("d2", 0.0), line("e1", -1.0), line("lost", 0.5))
    report = import_file(store, path, agent_id="a")
    assert (report.format, report.num_bad_lines) == ("feedback", 0)
    found = {(each.decision_id, each.episode_id): each.value for each in store.iterate(Reward) if each.name == "reward"}
    assert found == {("d1", "e1"): 1.0, ("d2", None): 0.0, (None, "e1"): -1.0, ("lost", None): 0.5}
    metrics = [each.weight for each in store.iterate(Reward) if each.name == "success"]
    assert metrics == [0.0] * 4
    assert import_file(store, path, agent_id="a").num_new == 0


def test_a_missing_reward_is_not_made_up(sqlite_url: str, tmp_path: Path) -> None:
    with Store.open(sqlite_url) as store:
        import_file(store, written(tmp_path, line("d1", None, success=False, error="timeout")), agent_id="a")
        (found,) = store.iterate(Reward)
    assert (found.name, found.value, found.weight, found.reason) == ("success", 0.0, 0.0, "timeout")


def test_goals_that_were_only_proposed_are_no_feedback(tmp_path: Path, sqlite_url: str) -> None:
    path = written(tmp_path, {"goal_id": "d1", "goal": "g", "injected": True, "timestamp": "2026-11-28T12:00:00Z"})
    with Store.open(sqlite_url) as store, pytest.raises(Exception, match="fits no known format"):
        import_file(store, path, agent_id="a")


def test_damaged_and_wrong(tmp_path: Path) -> None:
    check_damaged(written(tmp_path, line("d1"), line("d2")), "feedback", rounds=60)
    check_wrong_values(tmp_path / "a.jsonl", [line("d1")], "feedback")
