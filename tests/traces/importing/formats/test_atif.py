"""formats.atif: a trajectory is an episode with its token ids, results beside their calls."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.errors import FormatError
from learnloop.traces.conversation.messages import text_of
from tests.traces.formats.reading import check_damaged, check_wrong_values, imported, written

CALLS = [
    {"tool_call_id": "price", "function_name": "search", "arguments": {"ticker": "GOOGL"}},
    {"tool_call_id": "volume", "function_name": "search", "arguments": {"ticker": "GOOGL", "field": "volume"}},
]
TRAJECTORY: dict[str, Any] = {
    "schema_version": "ATIF-v1.7",
    "session_id": "s-1",
    "agent": {"name": "finder", "version": "1.0", "model_name": "m-small", "tool_definitions": [{"type": "function"}]},
    "notes": "two searches",
    "extra": {"lab": "north"},
    "final_metrics": {"total_steps": 4, "total_cost_usd": 0.5},
    "continued_trajectory_ref": "next.json",
    "steps": [
        {"step_id": 1, "source": "system", "message": "Find.", "timestamp": "2026-01-01T10:00:00Z"},
        {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "Price?"}], "future": 1},
        {
            "step_id": 3,
            "timestamp": "2026-01-01T10:00:02Z",
            "source": "agent",
            "model_name": "m-large",
            "reasoning_effort": "low",
            "reasoning_content": "two calls",
            "message": "I search.",
            "tool_calls": CALLS,
            # In another order than the calls: they are told by their ids.
            "observation": {
                "results": [
                    {"source_call_id": "volume", "content": "1.5M"},
                    {"source_call_id": "price", "content": "185"},
                ]
            },
            "metrics": {
                "prompt_tokens": 520,
                "completion_tokens": 3,
                "cached_tokens": 200,
                "cost_usd": 0.25,
                "prompt_token_ids": [1, 2],
                "completion_token_ids": [7, 8, 9],
                "logprobs": [-0.1, -0.2, 0.0],
                "extra": {"reasoning_tokens": 2, "ttft": 0.4},
            },
        },
        {
            "step_id": 4,
            "timestamp": "2026-01-01T10:00:05Z",
            "source": "agent",
            "message": "185, 1.5M.",
            "metrics": None,
        },
    ],
}


@pytest.mark.parametrize(
    ("name", "value", "format_name"),
    [
        ("t.json", TRAJECTORY, "atif"),
        ("t.json.gz", TRAJECTORY, "atif"),
        ("list.json", [TRAJECTORY], "atif"),
        ("t.jsonl", [TRAJECTORY], "atif-jsonl"),
        ("t.jsonl.gz", [TRAJECTORY], "atif-jsonl"),
    ],
)
def test_a_trajectory(tmp_path: Path, name: str, value: Any, format_name: str) -> None:
    got = imported(tmp_path, written(tmp_path / name, value))
    episode = got.episode
    assert (got.report.format, got.report.num_steps, got.report.num_bad_lines) == (format_name, 2, 0)
    assert (episode.agent_id, episode.task_id, got.values()) == ("finder", None, {})
    assert (episode.started_at.second, episode.ended_at.second) == (0, 5)
    assert episode.metadata == {
        "session_id": "s-1",
        "schema_version": "ATIF-v1.7",
        "agent": {"name": "finder", "version": "1.0", "model_name": "m-small"},
        "notes": "two searches",
        "final_metrics": {"total_steps": 4, "total_cost_usd": 0.5},
        "continued_trajectory_ref": "next.json",
        "extra": {"lab": "north"},
    }
    assert got.report.num_model_calls_without_token_ids == 1


def test_steps(tmp_path: Path) -> None:
    first, second = imported(tmp_path, written(tmp_path / "t.json", TRAJECTORY)).steps()
    assert [(each["role"], text_of(each)) for each in first.messages] == [("system", "Find."), ("user", "Price?")]
    assert (first.model, second.model) == ("m-large", "m-small")
    assert [part["type"] for part in first.output["parts"]] == ["reasoning", "text", "tool_call", "tool_call"]
    assert [(call.call_id, call.arguments, call.result) for call in first.tool_calls] == [
        ("price", CALLS[0]["arguments"], "185"),
        ("volume", CALLS[1]["arguments"], "1.5M"),
    ]
    assert first.attributes["token_ids"] == {"prompt": [1, 2], "completion": [7, 8, 9]}
    assert first.attributes["logprobs"] == [-0.1, -0.2, 0.0]
    assert first.attributes["usage"] == {
        "input_tokens": 520,
        "output_tokens": 3,
        "cached_input_tokens": 200,
        "reasoning_tokens": 2,
    }
    assert (first.attributes["cost_usd"], first.attributes["metrics_extra"]) == (0.25, {"ttft": 0.4})
    assert first.attributes["request"] == {"reasoning_effort": "low"}
    assert [each["role"] for each in second.messages] == ["tool", "tool"]
    assert "token_ids" not in second.attributes


def agent(step_id: int, **fields: Any) -> dict[str, Any]:
    return {"step_id": step_id, "source": "agent", "message": "", **fields}


def with_steps(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**TRAJECTORY, "steps": [{"step_id": 1, "source": "user", "message": "go"}, *steps], **fields}


def test_results_without_ids(tmp_path: Path) -> None:
    """Where each call has one result and none an id, the order tells; else a result is of no call."""
    paired = {"results": [{"content": "185"}, {"content": "1.5M"}]}
    loose = {"results": [{"content": "terminal output"}]}
    value = with_steps(
        agent(2, tool_calls=CALLS, observation=paired), agent(3, message="ls", observation=loose), agent(4)
    )
    got = imported(tmp_path, written(tmp_path / "t.json", value))
    steps = got.steps()
    assert [[call.result for call in step.tool_calls] for step in steps] == [["185", "1.5M"], [], []]
    assert steps[2].messages[0]["parts"][0]["response"] == "terminal output"
    (seen,) = (span for span in got.spans[got.episode.episode_id] if span.name == "observation")
    assert seen.attributes["output"] == "terminal output"


def test_steps_that_called_no_model(tmp_path: Path) -> None:
    run = agent(
        2,
        llm_call_count=0,
        tool_calls=CALLS[:1],
        observation={"results": [{"source_call_id": "price", "content": "1"}]},
    )
    copied = agent(3, message="before", is_copied_context=True)
    got = imported(tmp_path, written(tmp_path / "t.json", with_steps(run, copied, agent(4, message="now"))))
    (step,) = got.steps()
    assert [text_of(each) for each in step.messages] == ["go", "before"]
    tools = [span for span in got.spans[got.episode.episode_id] if span.operation == "execute_tool"]
    assert [(span.name, span.attributes["output"]) for span in tools] == [("search", "1")]


def test_embedded_sub_agents_do_not_mix(tmp_path: Path) -> None:
    sub = {"trajectory_id": "sub-1", "agent": {"name": "helper", "version": "1"}}
    sub["steps"] = [{"step_id": 1, "source": "user", "message": "dig"}, agent(2, message="dug")]
    result = {"source_call_id": "price", "subagent_trajectory_ref": [{"trajectory_id": "sub-1"}], "content": "dug"}
    value = with_steps(
        agent(2, tool_calls=CALLS[:1], observation={"results": [result]}), agent(3), subagent_trajectories=[sub]
    )
    got = imported(tmp_path, written(tmp_path / "t.json", value))
    spans = {span.span_id: span for span in got.spans[got.episode.episode_id]}
    (helper,) = (span for span in spans.values() if span.name == "helper")
    assert (helper.operation, spans[helper.parent_id].operation) == ("invoke_agent", "execute_tool")
    (inside,) = (step for step in got.steps() if spans[step.span_id].parent_id == helper.span_id)
    assert ([text_of(each) for each in inside.messages], text_of(inside.output)) == (["dig"], "dug")


def test_rewards_that_a_file_tells(tmp_path: Path) -> None:
    value = {**TRAJECTORY, "extra": {"reward": 1, "rewards": {"tests": 0.5, "note": "x"}}}
    got = imported(tmp_path, written(tmp_path / "t.json", value))
    assert got.values() == {"reward": 1.0, "tests": 0.5}


def test_identity(tmp_path: Path) -> None:
    """F3.4: some agents give each session the same id; attempts stay apart, and the same file twice is one."""
    other = copy.deepcopy(TRAJECTORY)
    other["steps"][2]["message"] = "Another try."
    longer = copy.deepcopy(TRAJECTORY)
    longer["steps"].append({**agent(5, message="Bye."), "timestamp": "2026-01-01T10:00:09Z"})
    (tmp_path / "copies").mkdir()
    paths = [written(tmp_path / f"{n}.json", each) for n, each in enumerate((TRAJECTORY, other, longer))]
    paths.append(written(tmp_path / "copies" / "9.json", TRAJECTORY))
    got = imported(tmp_path, *paths)
    assert sorted(len(got.steps(each)) for each in got.episodes) == [2, 3]
    timeless = copy.deepcopy(TRAJECTORY)
    for step in timeless["steps"]:
        step.pop("timestamp", None)
    twice = imported(tmp_path, written(tmp_path / "t.jsonl", [timeless, timeless]))
    assert len(twice.episodes) == 2
    assert all(each.metadata["time_unknown"] for each in twice.episodes)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (with_steps({"step_id": 2, "source": "robot", "message": ""}), "robot"),
        (with_steps(agent(2, timestamp="noon")), "noon"),
        (with_steps(agent(2, tool_calls=[{"tool_call_id": "x"}])), "function_name"),
        (with_steps(agent(2, metrics={"logprobs": ["x"]})), "logprobs"),
        (with_steps(subagent_trajectories=[{"steps": 3}]), "steps"),
        (with_steps(extra={"learnloop": {"rewards": [{"name": "r", "value": 1, "step_id": 7}]}}), "step 7"),
        (with_steps(extra={"learnloop": {"attempt": "x"}}), "attempt"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, value: Any, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        imported(tmp_path, written(tmp_path / "t.json", value))


def test_damage(tmp_path: Path) -> None:
    check_damaged(written(tmp_path / "t.json", TRAJECTORY), "atif", 100)


def test_wrong_values(tmp_path: Path) -> None:
    given = {"learnloop": {"rewards": [{"name": "r", "value": 1.0, "step_id": 2}], "root": {"input": "x"}}}
    step = agent(2, tool_calls=CALLS[:1], observation={"results": [{"source_call_id": "price", "content": "1"}]})
    value = with_steps(step, extra=given, subagent_trajectories=[{"steps": [agent(1)]}])
    check_wrong_values(tmp_path / "t.json", value, "atif")
