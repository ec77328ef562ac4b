"""What a task has cost before: each run once, never the run itself, and as it was known then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.attempts import Attempt
from learnloop.core.records import RewardShare
from learnloop.loop import Settings, Workspace
from learnloop.loop.rewards.engine import StoredHistories, as_of
from learnloop.loop.rewards.rewarding import RewardProcess
from learnloop.loop.rewards.scoring import EpisodeChoice, regrade, score_episodes
from learnloop.loop.workspace.settings import RewardSettings
from tests.loop.recorded_runs import answered

QA = {"task_type": "qa", "expected": "Paris"}
WEIGHTS = RewardSettings(weights={"correctness": 1.0, "efficiency": 1.0})


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    settings = Settings(home=tmp_path, database=request.getfixturevalue(request.param), origins={})
    with Workspace(settings, create=True) as opened:
        yield opened


def scored(workspace: Workspace, name: str, answer: str = "Paris", **fields: Any) -> list[RewardShare]:
    workspace.store.write(answered(name, "q", answer, "t", metadata=QA, **fields))
    attempt = Attempt(task_id="t", episode_id=name, output=answer, num_model_calls=int(name[1:]), **QA)
    return RewardProcess(workspace, WEIGHTS).process_task_completion(attempt).shares


def calls(workspace: Workspace, episode: str | None = None, task: str | None = "t") -> list[float]:
    history = StoredHistories(workspace)(Attempt(task_id=task, episode_id=episode))
    return [] if history is None else history.num_model_calls


def test_a_run_counts_once_and_not_for_itself(workspace: Workspace) -> None:
    for name in ("e1", "e2", "e2", "e2", "e3"):
        scored(workspace, name)
    assert calls(workspace) == [3.0, 2.0, 1.0]
    assert calls(workspace, "e2") == [3.0, 1.0]
    assert (calls(workspace, task=None), calls(workspace, task="other")) == ([], [])


def test_only_runs_that_are_right_as_they_count_now(workspace: Workspace) -> None:
    scored(workspace, "e1")
    scored(workspace, "e2", "Rome")
    scored(workspace, "e3")
    attempt = Attempt(task_id="t", episode_id="e3", output="Rome", num_model_calls=3, **QA)
    RewardProcess(workspace, WEIGHTS).process_task_completion(attempt)  # scored again: it was wrong after all
    assert calls(workspace) == [1.0]


def test_as_it_was_known_then(workspace: Workspace) -> None:
    shares = [scored(workspace, f"e{number}")[0] for number in range(1, 5)]
    with as_of(shares[2].completion_id):
        assert calls(workspace) == [2.0, 1.0]
    assert len(calls(workspace)) == 4


def test_what_came_later_changes_no_reward_that_is_worked_out_again(workspace: Workspace) -> None:
    """Each of these runs is held against another history now than when it was scored."""
    for number in range(8):
        workspace.store.write(answered(f"e{number}", "q", "Paris" if number % 2 else "Rome", "t", metadata=QA))
    process = RewardProcess(workspace, WEIGHTS)
    totals = {each.episode_id: each.scored.total for each in score_episodes(workspace, EpisodeChoice(), process)}
    assert totals["e7"] == 1.0
    assert all(each.agrees for each in regrade(workspace, process, 1.0))


def test_the_newest_lines_of_a_long_history_are_looked_at(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learnloop.store.queries.shares._MAX_LINES", 2)
    for number in range(1, 5):
        scored(workspace, f"e{number}")
    assert calls(workspace) == [4.0, 3.0]
    monkeypatch.setattr("learnloop.loop.rewards.engine._MAX_RUNS", 1)
    assert calls(workspace) == [4.0]
