"""Whoever gives a reward, through whichever door, meets the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import learnloop as ll
from learnloop.core.clock import now
from learnloop.core.errors import NotFoundError, RewardError, UsageError
from learnloop.core.records import Decision, DecisionMode, EpisodeStatus, PolicySettings, Record, Reward
from learnloop.core.rewards import RewardTarget
from learnloop.loop.decisions.counterfactual import CounterfactualOptions, evaluate_decisions
from learnloop.loop.decisions.feedback import Feedback, record_feedback
from learnloop.loop.rewards.recording import find_target, record_rewards
from learnloop.loop.traces.stats import trace_stats
from learnloop.rewards import LabelAsk, LabelQueue
from learnloop.traces.datasets.building import build_dataset
from learnloop.traces.datasets.logged_episodes import NO_REWARD, PENDING, STILL_RUNNING
from tests.loop.recorded_runs import episode, span


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[ll.Loop]:
    with ll.Loop("bot", home=tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("door", ["choice", "decision", "episode", "open episode", "written", "label", "answer"])
def test_no_door_takes_the_part_of_the_settings(loop: ll.Loop, door: str) -> None:
    with loop.episode(task="t") as run:
        choice = loop.choose("p", ["a", "b"])
    loop.flush()
    (request,) = LabelQueue(loop.workspace.store).ask([LabelAsk(episode_id=run.episode_id, reason="asked")])
    with pytest.raises(UsageError, match="'default' is the part that a policy's settings give"):
        match door:
            case "choice":
                loop.reward(choice, default=0.5)
            case "decision":
                loop.reward(choice.decision_id, default=0.5)
            case "episode":
                loop.reward(run.episode_id, solved=1.0, default=0.5)
            case "open episode":
                run.reward(default=0.5)
            case "written":
                record_rewards(loop.workspace, RewardTarget(run.episode_id), {"default": 0.5})
            case "label":
                loop.workspace.labels.give(run.episode_id, "good", name="default")
            case "answer":
                LabelQueue(loop.workspace.store).answer(request.label_request_id, 1.0, "eva", name="default")
    loop.flush()
    assert loop.workspace.store.count(Reward) == 0


def test_what_a_reward_is_for(loop: ll.Loop) -> None:
    """Also what was recorded a moment ago and is not in the store yet."""
    with loop.episode(task="t") as run:
        choice = loop.choose("p", ["a", "b"])
        outside = find_target(loop.workspace, RewardTarget(None, choice.decision_id))
    assert outside == RewardTarget(run.episode_id, choice.decision_id)
    assert find_target(loop.workspace, RewardTarget(run.episode_id)) == RewardTarget(run.episode_id)
    loop.workspace.store.write([span(run.episode_id, 1, "chat", "m")])
    known = f"{run.episode_id}-1"
    assert find_target(loop.workspace, RewardTarget(run.episode_id, span_id=known)).span_id == known
    for wrong in (RewardTarget(None, "d"), RewardTarget("e"), RewardTarget(run.episode_id, span_id="s")):
        with pytest.raises(NotFoundError, match=r"'[des]'"):
            find_target(loop.workspace, wrong)
    for both in (RewardTarget(None), RewardTarget("e", "d")):
        with pytest.raises(UsageError, match="name the one that the reward is for"):
            find_target(loop.workspace, both)


def test_the_same_reward_is_stored_once(loop: ll.Loop) -> None:
    """A request that comes again after a crash has the same key."""
    with loop.episode(task="t") as run:
        pass
    loop.flush()
    for _ in range(2):
        record_rewards(loop.workspace, RewardTarget(run.episode_id), {"solved": 1.0, "cost": 0.5}, key="k")
        record_feedback(loop.workspace, Feedback(thumbs="up"), episode_id=run.episode_id, key="f")
    assert loop.workspace.store.count(Reward) == 4


def test_what_may_still_come_is_not_missing(loop: ll.Loop) -> None:
    """In lists, statistics, decisions, data sets and the evaluation of a log: known, pending and missing differ."""
    wait = {"reward_wait_seconds": 3600.0, "default_reward": 0.0}
    moment = now()
    records: list[Record] = [
        PolicySettings(
            policy_settings_id="s", agent_id="solver", policy="p", version=1, settings=wait, created_at=moment
        )
    ]
    for name, age in (("known", 7200), ("pending", 60), ("missing", 7200)):
        made = Decision(
            decision_id=f"d-{name}", episode_id=name, agent_id="solver", policy="p", settings_version=1,
            algorithm="x", context={"x": 1.0}, actions=["read", "write"], action="read", propensity=0.5,
            mode=DecisionMode.LEARNING, created_at=moment - timedelta(seconds=age),
        )  # fmt: skip
        records += [episode(name), made, span(name, 1, "execute_tool", "read")]
    records.append(episode("running", status=EpisodeStatus.RUNNING, ended_at=None, terminated=False))
    workspace = loop.workspace
    workspace.store.write(records)
    record_rewards(workspace, RewardTarget("known"), {"solved": 1.0})

    expected = {"known": "known", "pending": "pending", "missing": "missing", "running": "pending"}
    assert {row.episode.episode_id: row.reward_state for row in workspace.episodes.list()} == expected
    figures = trace_stats(workspace).rewards
    assert (figures.num_known, figures.num_unknown, figures.num_pending) == (1, 3, 2)
    for name in ("known", "pending", "missing"):
        assert workspace.decisions.show(f"d-{name}").reward_state == name
    _, report = build_dataset(workspace.store)
    assert dict(report.left_out) == {PENDING: 1, NO_REWARD: 1, STILL_RUNNING: 1}
    asked = CounterfactualOptions(max_missing=0.5)
    found = evaluate_decisions(workspace, "solver", "p", ["uniform"], asked)
    assert (found.num_decisions, found.num_rewarded, found.num_pending) == (3, 1, 1)
    with pytest.raises(RewardError, match="1 of 2 decisions have no reward"):
        evaluate_decisions(workspace, "solver", "p", ["uniform"], CounterfactualOptions(max_missing=0.4))
    newest = CounterfactualOptions(since=moment - timedelta(seconds=600))
    with pytest.raises(RewardError, match="all rewards of the 1 decisions may still come"):
        evaluate_decisions(workspace, "solver", "p", ["uniform"], newest)
