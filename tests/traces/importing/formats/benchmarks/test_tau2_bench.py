"""formats.benchmarks.tau2_bench: the agent's steps, the user's tools beside them, rewards with their parts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.traces.formats.reading import check_damaged, check_wrong_values, imported, written

AGENT_CALL = {"id": "a1", "name": "get_line", "arguments": {"line": 7}, "requestor": "assistant"}
USER_CALL = {"id": "u1", "name": "toggle_data", "arguments": {}, "requestor": "user"}
RAW = {
    "id": "msg_1",
    "model": "claude-x-2026",
    "stop_reason": "tool_use",
    "thinking_blocks": [{"type": "thinking", "thinking": "Look it up.", "signature": "abc"}],
}
MESSAGES: list[dict[str, Any]] = [
    {"role": "assistant", "content": "Hi! How can I help?", "turn_idx": 0, "cost": 0.0, "usage": None},
    {"role": "user", "content": "My data is slow.", "turn_idx": 1, "usage": {"prompt_tokens": 9}, "cost": 0.1},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [AGENT_CALL],
        "timestamp": "2026-01-01T10:00:05.5",
        "generation_time_seconds": 2.5,
        "cost": 0.01,
        "usage": {"completion_tokens": 20, "prompt_tokens": 700},
        "raw_data": RAW,
    },
    {"id": "a1", "role": "tool", "content": "no such line", "requestor": "assistant", "error": True},
    {"role": "assistant", "content": "Turn it off and on.", "usage": {"completion_tokens": 4, "prompt_tokens": 800}},
    {"role": "user", "content": None, "tool_calls": [USER_CALL]},
    {"role": "tool", "tool_messages": [{"id": "u1", "role": "tool", "content": "off", "requestor": "user"}]},
    {"role": "user", "content": "Done ###STOP###"},
]
REWARD = {
    "reward": 1.0,
    "db_check": {"db_match": True, "db_reward": 1.0},
    "action_checks": [{"action": {"name": "get_line"}, "action_match": False, "action_reward": 0.0}],
    "nl_assertions": [{"nl_assertion": "It is polite.", "met": True, "justification": "Yes, it is."}],
    "communicate_checks": None,
    "reward_basis": ["DB"],
    "reward_breakdown": {"DB": 1.0},
}
RUN: dict[str, Any] = {
    "id": "5f0e",
    "task_id": "slow",
    "start_time": "2026-01-01T10:00:00",
    "end_time": "2026-01-01T10:01:00",
    "duration": 60.0,
    "termination_reason": "user_stop",
    "agent_cost": 0.02,
    "user_cost": 0.1,
    "reward_info": REWARD,
    "messages": MESSAGES,
    "trial": 2,
    "seed": 1,
}
FILE = {
    "timestamp": "2026-01-01T10:00:00",
    "info": {
        "agent_info": {"implementation": "llm_agent", "llm": "claude-x", "llm_args": {"temperature": 0.0}},
        "user_info": {"implementation": "user_simulator", "llm": "gpt-x"},
        "environment_info": {"domain_name": "telecom", "policy": "Be kind."},
    },
    "tasks": [{"id": "slow", "user_scenario": {"instructions": "You are slow."}}],
    "simulations": [RUN],
}


def with_run(**changes: Any) -> dict[str, Any]:
    return {**FILE, "simulations": [{**RUN, **changes}]}


@pytest.mark.parametrize("format_name", [None, "tau2-bench"])
@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_simulation_is_an_episode(tmp_path: Path, name: str, format_name: str | None) -> None:
    got = imported(tmp_path, written(tmp_path / name, FILE), format_name=format_name)
    episode = got.episode
    assert (episode.task_id, episode.attempt, episode.source) == ("tau2-bench:telecom:slow", 2, "tau2-bench")
    assert (episode.status, episode.terminated, episode.truncated) == ("completed", True, False)
    assert episode.started_at == datetime(2026, 1, 1, 10, tzinfo=UTC)
    assert episode.ended_at == datetime(2026, 1, 1, 10, 1, tzinfo=UTC)
    assert episode.metadata["agent_cost"] == 0.02
    assert got.tasks[episode.task_id].metadata == {"user_scenario": {"instructions": "You are slow."}}
    assert "time_unknown" not in episode.metadata


def test_the_reward_counts_once_and_its_parts_are_metrics(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "a.json", FILE))
    rewards = got.rewards[got.episode.episode_id]
    assert {name: (each.value, each.weight) for name, each in rewards.items()} == {
        "reward": (1.0, 1.0),
        "db_check": (1.0, 0.0),
        "reward_breakdown.DB": (1.0, 0.0),
        "action_checks.0": (0.0, 0.0),
        "nl_assertions.0": (1.0, 0.0),
    }
    assert rewards["nl_assertions.0"].reason == "It is polite.: Yes, it is."
    assert rewards["action_checks.0"].reason == "get_line"


def test_the_steps_are_the_agents(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "a.json", FILE))
    first, second = got.steps()
    assert [said["role"] for said in first.messages] == ["assistant", "user"]  # the greeting is the benchmark's
    assert (first.model, first.attributes["response_model"]) == ("claude-x", "claude-x-2026")
    assert first.attributes["usage"] == {"input_tokens": 700, "output_tokens": 20}
    assert (first.attributes["cost_usd"], first.attributes["finish_reasons"]) == (0.01, ["tool_use"])
    assert first.attributes["request"] == {"temperature": 0.0}
    assert (first.ended_at - first.started_at).total_seconds() == 2.5
    assert first.output is not None
    assert first.output["parts"][0] == {"type": "reasoning", "content": "Look it up."}
    assert [(call.name, call.arguments, call.error) for call in first.tool_calls] == [
        ("get_line", {"line": 7}, "no such line")
    ]
    assert [said["role"] for said in second.messages] == ["tool"]
    assert got.episode.metadata["messages_after_last_answer"][0]["parts"][0]["content"] == "Done ###STOP###"


def test_the_users_tools_are_beside_the_steps(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "a.json", FILE))
    spans = {span.name: span for span in got.spans[got.episode.episode_id]}
    assert spans["toggle_data"].attributes["requestor"] == "user"
    assert all(call.name != "toggle_data" for step in got.steps() for call in step.tool_calls)


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("agent_stop", ("completed", True, False, None)),
        ("max_steps", ("completed", False, True, None)),
        ("too_many_errors", ("completed", False, True, None)),
        ("context_window_exceeded", ("completed", False, True, None)),
        ("infrastructure_error", ("failed", False, False, "infrastructure_error: lost")),
        ("a new one", ("completed", False, False, None)),
        (None, ("completed", False, False, None)),
    ],
)
def test_how_a_run_ended(tmp_path: Path, reason: str | None, state: tuple[Any, ...]) -> None:
    changes = {"termination_reason": reason, "info": {"error": "lost"}}
    episode = imported(tmp_path, written(tmp_path / "a.json", with_run(**changes))).episode
    assert (episode.status, episode.terminated, episode.truncated, episode.error) == state


def test_a_reward_that_comes_later_is_added(tmp_path: Path) -> None:
    early = written(tmp_path / "a.json", with_run(reward_info=None))
    got = imported(tmp_path, early)
    assert got.values() == {}
    assert got.report.num_episodes_without_reward == 1
    got = imported(tmp_path, early, written(tmp_path / "b.json", FILE))
    assert got.values()["reward"] == 1.0
    assert got.report.num_new == 5  # the rewards alone


def test_one_simulation_of_a_folder(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "5f0e.json", RUN))
    assert (got.episode.task_id, got.values()["reward"]) == ("tau2-bench:slow", 1.0)


def test_a_voice_run_without_messages_keeps_its_outcome(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "a.json", with_run(messages=None, ticks=[{}, {}])))
    assert (got.report.num_steps, got.values()["reward"], got.episode.metadata["num_ticks"]) == (0, 1.0, 2)


def test_clocks_that_run_backwards_are_kept(tmp_path: Path) -> None:
    """F3.2: times that contradict each other neither fail nor turn the order around."""
    late = [{**said, "timestamp": f"2020-01-01T10:00:0{9 - place}"} for place, said in enumerate(MESSAGES)]
    got = imported(tmp_path, written(tmp_path / "a.json", with_run(messages=late)))
    assert got.report.num_steps == 2
    assert got.episode.ended_at is not None
    assert got.episode.started_at <= got.episode.ended_at


def test_wrong_values_are_refused_or_read(tmp_path: Path) -> None:
    check_wrong_values(tmp_path / "a.json", FILE, "tau2-bench")


def test_damage_is_refused_or_read(tmp_path: Path) -> None:
    check_damaged(written(tmp_path / "a.json", FILE), "tau2-bench")
