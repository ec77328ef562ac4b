"""formats.benchmarks.swe_agent: a trajectory's entries are steps, and an exit status is no outcome."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from learnloop.traces.conversation.messages import text_of
from tests.traces.formats.reading import Imported, check_damaged, check_wrong_values, imported, written
from tests.traces.shared_traces import shared_trace

SYSTEM = {"role": "system", "content": "You are a programmer.", "agent": "main"}
DEMO = {"role": "user", "content": "Here is a demonstration.", "agent": "main", "is_demo": True}
ISSUE = {"role": "user", "content": "Fix it.", "agent": "main"}


def step(number: int, **more: Any) -> dict[str, Any]:
    thought = f"Now number {number}."
    return {
        "action": f"open file{number}.py",
        "observation": f"[file{number}]",
        "response": f"{thought}\n```\nopen file{number}.py\n```",
        "state": '{"open_file": "n/a"}',
        "thought": thought,
        **more,
    }


def answer(number: int) -> dict[str, Any]:
    given = step(number)
    kept = {"content": given["response"], "thought": given["thought"], "action": given["action"]}
    return {"role": "assistant", "agent": "main", **kept}


def seen(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"[file{number}]\n(Open file: n/a)", "agent": "main"}


INFO = {
    "exit_status": "submitted",
    "submission": "diff --git",
    "edited_files30": "long",
    "model_stats": {"instance_cost": 0.5, "tokens_sent": 10, "tokens_received": 2, "api_calls": 2},
}
TEXTS = {
    "environment": "swe_main",
    "trajectory": [step(1), step(2)],
    "history": [SYSTEM, DEMO, ISSUE, answer(1), seen(1), answer(2), seen(2)],
    "info": INFO,
}
CALL = {"type": "function", "id": "call_1", "function": {"name": "open", "arguments": '{"path": "file1.py"}'}}
CONFIG = {
    "agent": {"model": {"name": "gpt-x"}},
    "problem_statement": {"id": "proj__proj-7", "text": "It breaks."},
}
CALLS = {
    "environment": "main",
    "trajectory": [step(1, execution_time=0.25), step(2, execution_time=0.5)],
    "history": [
        SYSTEM,
        ISSUE,
        {**answer(1), "tool_calls": [CALL]},
        {"role": "tool", "content": "[file1]", "agent": "main", "tool_call_ids": ["call_1"]},
        {**answer(2), "tool_calls": [{**CALL, "function": {"name": "open", "arguments": '{"path": "file2.py"}'}}]},
        {"role": "tool", "content": "[file2]", "agent": "main", "tool_call_ids": ["call_1"]},
    ],
    "info": INFO,
    "replay_config": json.dumps(CONFIG),
}


def import_one(tmp_path: Path, value: Any, name: str = "proj__proj-7.traj") -> Imported:
    return imported(tmp_path, written(tmp_path / name, value))


@pytest.mark.parametrize("format_name", [None, "swe-agent"])
@pytest.mark.parametrize("name", ["proj__proj-7.traj", "proj__proj-7.traj.gz"])
def test_entries_are_steps(tmp_path: Path, name: str, format_name: str | None) -> None:
    got = imported(tmp_path, written(tmp_path / name, TEXTS), format_name=format_name)
    assert (got.episode.task_id, got.episode.terminated) == ("swe-agent:proj__proj-7", True)
    first, second = got.steps()
    assert [text_of(said) for said in first.messages] == [
        "You are a programmer.",
        "Here is a demonstration.",
        "Fix it.",
    ]
    span = next(span for span in got.spans[got.episode.episode_id] if span.span_id == first.span_id)
    assert [said.get("is_demo") for said in span.attributes["input"]] == [None, True, None]
    assert [text_of(said) for said in second.messages] == ["[file1]\n(Open file: n/a)"]
    assert second.output is not None
    assert text_of(second.output) == step(2)["response"]
    tools = [span for span in got.spans[got.episode.episode_id] if span.operation == "execute_tool"]
    assert sorted((span.name, span.attributes["input"], span.attributes["output"]) for span in tools) == [
        ("open", "open file1.py", "[file1]"),
        ("open", "open file2.py", "[file2]"),
    ]


def test_an_exit_status_is_no_outcome(tmp_path: Path) -> None:
    got = import_one(tmp_path, TEXTS)
    assert got.values() == {}
    assert got.report.num_episodes_without_reward == 1
    assert got.episode.metadata["exit_status"] == "submitted"
    assert got.episode.metadata["submission"] == "diff --git"
    assert got.episode.metadata["model_stats"] == INFO["model_stats"]
    assert "edited_files30" not in got.episode.metadata


def test_calls_of_tools_and_their_times(tmp_path: Path) -> None:
    """An id that a replay uses twice does not give one call the result of the other."""
    got = import_one(tmp_path, CALLS, "any.traj")
    steps = got.steps()
    assert [(step.model, len(step.tool_calls)) for step in steps] == [("gpt-x", 1), ("gpt-x", 1)]
    calls = [each.tool_calls[0] for each in steps]
    assert [(call.arguments, call.result) for call in calls] == [
        ({"path": "file1.py"}, "[file1]"),
        ({"path": "file2.py"}, "[file2]"),
    ]
    assert [call.duration_ms for call in calls] == pytest.approx([250, 500])
    assert got.episode.task_id == "swe-agent:proj__proj-7"
    assert got.tasks["swe-agent:proj__proj-7"].metadata == {"problem_statement": "It breaks."}


@pytest.mark.parametrize("field", ["query", "messages"])
def test_what_newer_versions_say_of_each_step(tmp_path: Path, field: str) -> None:
    history = [SYSTEM, ISSUE, answer(1), seen(1)]
    steps = [step(1, **{field: history[:2]}), step(2, **{field: history}, extra_info={"k": 1})]
    got = import_one(tmp_path, {"trajectory": steps, "history": [], "info": INFO})
    first, second = got.steps()
    assert [text_of(said) for said in first.messages] == ["You are a programmer.", "Fix it."]
    assert [text_of(said) for said in second.messages] == [text_of_seen(1)]
    assert second.attributes["extra"] == {"k": 1}


def text_of_seen(number: int) -> str:
    return str(seen(number)["content"])


def test_a_step_that_the_history_lacks_keeps_what_came_before(tmp_path: Path) -> None:
    short = {**TEXTS, "history": [SYSTEM, ISSUE, answer(1)]}
    got = import_one(tmp_path, short)
    assert [text_of(said) for said in got.steps()[1].messages] == ["[file1]"]


def test_a_history_alone_is_read_by_its_answers(tmp_path: Path) -> None:
    got = import_one(tmp_path, {"history": TEXTS["history"]})
    assert got.report.num_steps == 2
    assert (got.episode.terminated, got.episode.truncated) == (False, False)  # it does not say how it ended


def test_attempts_are_episodes(tmp_path: Path) -> None:
    run = {name: TEXTS[name] for name in ("trajectory", "history", "info")}
    other = {**run, "info": {**INFO, "exit_status": "exit_cost"}}
    got = import_one(tmp_path, {**TEXTS, "attempts": [run, other], "replay_config": CONFIG})
    assert [(each.attempt, each.truncated) for each in got.episodes] == [(0, False), (1, True)]
    assert {each.task_id for each in got.episodes} == {"swe-agent:proj__proj-7"}


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("submitted (exit_cost)", ("completed", False, True, None)),
        ("exit_context", ("completed", False, True, None)),
        ("exit_format", ("completed", True, False, None)),
        ("exit_environment_error", ("failed", False, False, "exit_environment_error")),
        (None, ("completed", False, False, None)),
    ],
)
def test_how_a_run_ended(tmp_path: Path, status: str | None, state: tuple[Any, ...]) -> None:
    episode = import_one(tmp_path, {**TEXTS, "info": {"exit_status": status}}).episode
    assert (episode.status, episode.terminated, episode.truncated, episode.error) == state


def test_wrong_values_are_refused_or_read(tmp_path: Path) -> None:
    check_wrong_values(tmp_path / "a.traj", TEXTS, "swe-agent")
    check_wrong_values(tmp_path / "a.traj", {**CALLS, "replay_config": CONFIG}, "swe-agent")


def test_damage_is_refused_or_read(tmp_path: Path) -> None:
    check_damaged(written(tmp_path / "a.traj", CALLS), "swe-agent")


@pytest.mark.parametrize(
    ("name", "num_steps"),
    [("ctf_web_i_got_id", 21), ("marshmallow-1867_function_calling_replace", 11), ("pydicom-1458_gpt4", 12)],
)
def test_the_shared_samples(tmp_path: Path, name: str, num_steps: int) -> None:
    path = shared_trace(f"sweagent/{name}.traj")
    got = imported(tmp_path, path)
    trajectory = json.loads(path.read_text())["trajectory"]
    steps = got.steps()
    assert (got.report.num_steps, len(steps), len(trajectory)) == (num_steps, num_steps, num_steps)
    assert got.report.num_episodes_without_reward == 1
    tools = sorted(
        (span for span in got.spans[got.episode.episode_id] if span.operation == "execute_tool"),
        key=lambda span: span.started_at,
    )
    assert [span.attributes.get("output") for span in tools] == [each["observation"] for each in trajectory]
    assert len(steps[0].messages) >= 2
    assert all(len(each.messages) == 1 for each in steps[1:])
