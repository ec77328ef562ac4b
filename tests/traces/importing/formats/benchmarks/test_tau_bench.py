"""formats.benchmarks.tau_bench: each trial an episode with its reward, its tools and its domain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.traces.formats.reading import check_damaged, check_wrong_values, imported, written
from tests.traces.shared_traces import shared_trace

POLICY = {"role": "system", "content": "# Airline Agent Policy\n\nBe kind."}
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"user": "ann"}'}}
TRAJ: list[dict[str, Any]] = [
    POLICY,
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "function_call": None},
    {"role": "tool", "tool_call_id": "c1", "name": "find", "content": "ann_1"},
    {"role": "assistant", "content": "You are ann_1."},
    {"role": "user", "content": "###STOP###"},
]
TASK = {"user_id": "ann", "instruction": "You are Ann.", "actions": [{"name": "find", "kwargs": {}}], "outputs": []}
TRIAL = {"task_id": 3, "reward": 1.0, "trial": 0, "traj": TRAJ, "info": {"task": TASK, "user_cost": 0.5, "new": [1]}}
BROKEN = {
    "task_id": 3,
    "reward": 0.0,
    "trial": 1,
    "traj": [],
    "info": {"error": "rate limit", "traceback": "Traceback ..."},
}


@pytest.mark.parametrize("format_name", [None, "tau-bench"])
@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_trials_are_episodes(tmp_path: Path, name: str, format_name: str | None) -> None:
    got = imported(tmp_path, written(tmp_path / name, [BROKEN, TRIAL]), format_name=format_name)
    assert [(each.task_id, each.attempt) for each in got.episodes] == [("tau-bench:airline:3", n) for n in (0, 1)]
    good, broken = got.episodes
    assert (good.status, good.terminated, got.values(good)) == ("completed", True, {"reward": 1.0})
    assert good.metadata == {
        "user_cost": 0.5,
        "time_unknown": True,
        "messages_after_last_answer": [{"role": "user", "parts": [{"type": "text", "content": "###STOP###"}]}],
    }
    assert got.tasks["tau-bench:airline:3"].metadata == TASK
    assert (broken.status, broken.error, broken.terminated) == ("failed", "rate limit", False)
    assert broken.metadata["traceback"] == "Traceback ..."
    assert got.report.groups is not None
    assert (got.report.num_steps, got.report.groups.num_mixed) == (2, 1)


def test_steps_have_the_tools_and_only_what_is_new(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "a.json", [TRIAL]))
    first, second = got.steps()
    assert [said["role"] for said in first.messages] == ["system", "user"]
    assert [(call.name, call.arguments, call.result) for call in first.tool_calls] == [
        ("find", {"user": "ann"}, "ann_1")
    ]
    assert [said["role"] for said in second.messages] == ["tool"]
    assert second.output == {"role": "assistant", "parts": [{"type": "text", "content": "You are ann_1."}]}


def test_a_missing_reward_stays_missing(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "a.json", [{**TRIAL, "reward": None}]))
    assert got.values() == {"reward": None}
    assert got.report.num_episodes_without_reward == 1


def test_the_same_number_in_two_domains_is_two_tasks(tmp_path: Path) -> None:
    retail = [{"role": "system", "content": "# Retail agent policy\n"}, *TRAJ[1:]]
    paths = [written(tmp_path / "a.json", [TRIAL]), written(tmp_path / "r.json", [{**TRIAL, "traj": retail}])]
    got = imported(tmp_path, *paths)
    assert {each.task_id for each in got.episodes} == {"tau-bench:airline:3", "tau-bench:retail:3"}


def test_equal_trials_are_kept_and_told_apart_by_their_file(tmp_path: Path) -> None:
    paths = [written(tmp_path / name, [TRIAL, TRIAL]) for name in ("a.json", "b.json")]
    assert len(imported(tmp_path, *paths).episodes) == 4


def test_the_name_of_a_run_says_the_model(tmp_path: Path) -> None:
    name = "tool-calling-gpt-4o-0.0_range_0--1_user-gpt-4o-llm_0512101500.json"
    got = imported(tmp_path, written(tmp_path / name, [TRIAL]))
    assert {step.model for step in got.steps()} == {"gpt-4o"}
    assert got.episode.metadata["strategy"] == "tool-calling"


def test_wrong_values_are_refused_or_read(tmp_path: Path) -> None:
    check_wrong_values(tmp_path / "a.json", [TRIAL, BROKEN], "tau-bench")


def test_damage_is_refused_or_read(tmp_path: Path) -> None:
    check_damaged(written(tmp_path / "a.json", [TRIAL, BROKEN]), "tau-bench")
    check_damaged(written(tmp_path / "a.json.gz", [TRIAL, BROKEN]), "tau-bench")


def test_the_shared_sample(tmp_path: Path) -> None:
    path = shared_trace("taubench/gpt-4o-airline_tasks0-24.json")
    got = imported(tmp_path, path)
    trials = json.loads(path.read_text())
    assert got.report.num_records == {"task": 25, "episode": 100, "span": 2102, "reward": 100}
    groups = got.report.groups
    assert groups is not None
    assert (groups.num_groups, groups.sizes, groups.num_mixed) == (25, {4: 25}, 11)
    assert sum(values["reward"].value or 0 for values in got.rewards.values()) == sum(each["reward"] for each in trials)
    answers = [said for each in trials for said in each["traj"] if said["role"] == "assistant"]
    calls = [call for said in answers for call in said.get("tool_calls") or []]
    assert (got.report.num_steps, got.report.num_bad_lines) == (len(answers), 0)
    found = [call for each in got.episodes for step in got.steps(each) for call in step.tool_calls]
    assert len(found) == len(calls)
    assert sum(call.result is not None for call in found) == sum(
        said["role"] == "tool" for each in trials for said in each["traj"]
    )
