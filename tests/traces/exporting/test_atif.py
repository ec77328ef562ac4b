"""learnloop.traces.exporting.atif: what is written keeps the format's rules and comes back as it was."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.records import Episode, EpisodeStatus, Reward, Span, SpanStatus
from learnloop.store import Store
from learnloop.traces.conversation.steps import Step, steps_of
from learnloop.traces.exporting.atif import atif_files, to_atif, write_atif_lines
from learnloop.traces.exporting.episodes import EpisodeRecords, episode_records
from learnloop.traces.importing.exchange import import_file
from tests.traces.shared_traces import shared_trace

BEGIN = datetime(2026, 1, 1, 10, tzinfo=UTC)
AGENT_ONLY = {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics", "llm_call_count"}
STEP = {"step_id", "timestamp", "source", "message", "observation", "extra", "is_copied_context", *AGENT_ONLY}
METRICS = {
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cost_usd",
    "prompt_token_ids",
    "completion_token_ids",
    "logprobs",
    "extra",
}


def check_rules(trajectory: dict[str, Any], embedded: bool = False) -> None:
    """Fails where a trajectory breaks a rule of the RFC (sections II and VI)."""
    known = {"schema_version", "session_id", "trajectory_id", "agent", "steps", "final_metrics", "extra"}
    assert trajectory.keys() <= known | {"subagent_trajectories"}
    assert trajectory["schema_version"] == "ATIF-v1.7"
    assert isinstance(trajectory["session_id"] if not embedded else trajectory["trajectory_id"], str)
    assert all(isinstance(trajectory["agent"][name], str) for name in ("name", "version"))
    assert [step["step_id"] for step in trajectory["steps"]] == list(range(1, len(trajectory["steps"]) + 1))
    refs: set[str] = set()
    for step in trajectory["steps"]:
        assert step.keys() <= STEP
        assert step["source"] in ("system", "user", "agent")
        assert isinstance(step["message"], str)
        assert step["source"] == "agent" or not step.keys() & AGENT_ONLY
        if "timestamp" in step:
            datetime.fromisoformat(step["timestamp"])
        calls = step.get("tool_calls", [])
        assert all(isinstance(call["tool_call_id"], str) and isinstance(call["arguments"], dict) for call in calls)
        if step.get("llm_call_count") == 0:
            assert not step.keys() & {"metrics", "reasoning_content"}
        for result in step.get("observation", {"results": []})["results"]:
            assert result.keys() <= {"source_call_id", "content", "subagent_trajectory_ref", "extra"}
            assert result["source_call_id"] in {call["tool_call_id"] for call in calls}
            assert isinstance(result.get("content", ""), str)
            refs |= {each["trajectory_id"] for each in result.get("subagent_trajectory_ref", [])}
        assert step.get("metrics", {}).keys() <= METRICS
    below = trajectory.get("subagent_trajectories", [])
    ids = [each["trajectory_id"] for each in below]
    assert len(set(ids)) == len(ids)
    assert refs <= set(ids)
    for each in below:
        check_rules(each, embedded=True)


def span(number: int, operation: str, name: str, parent: int | None = 0, **attributes: Any) -> Span:
    error = attributes.pop("error", None)
    started_at = BEGIN + timedelta(seconds=number)
    return Span(
        span_id=f"span{number}",
        trace_id="run",
        episode_id="run",
        parent_id=None if parent is None else f"span{parent}",
        operation=operation,
        name=name,
        status=SpanStatus.ERROR if error else SpanStatus.OK,
        error=error,
        started_at=started_at,
        ended_at=started_at + timedelta(milliseconds=250),
        attributes=attributes,
    )


def said(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def call(call_id: str | None, name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def answer(call_id: str | None, response: Any) -> dict[str, Any]:
    return said("tool", {"type": "tool_call_response", "id": call_id, "response": response})


FIRST = said(
    "assistant",
    {"type": "reasoning", "content": "hm"},
    text("Look."),
    call("c1", "ls", {"at": "."}),
    call("c2", "ask", "who?"),
)
ODD = said("assistant", text("a"), {"type": "image", "uri": "x.png"}, text("b"))
SPANS = [
    span(0, "invoke_agent", "guide", None, input="go", output="done"),
    span(
        1,
        "chat",
        "m-1",
        input=[said("system", text("Be brief.")), said("user", text("go"), {"type": "image", "uri": "y.png"})],
        output=[FIRST],
        usage={"input_tokens": 10, "output_tokens": 3, "cached_input_tokens": 4, "reasoning_tokens": 1},
        token_ids={"prompt": [1, 2], "completion": [3, 4, 5]},
        logprobs=[-0.5, 0, -1.25],
        cost_usd=0.25,
        request={"reasoning_effort": "low", "temperature": 0.5},
        finish_reasons=["tool_calls"],
    ),
    span(2, "execute_tool", "ls", input={"at": "."}, output={"files": ["a"]}, call_id="c1", note="kept"),
    span(3, "execute_tool", "ask", input="who?", call_id="c2", error="nobody"),
    span(4, "invoke_agent", "helper", 3, input="dig"),
    span(5, "chat", "m-2", 4, input=[said("user", text("dig"))], output=[said("assistant", text("dug"))]),
    span(6, "execute_tool", "unasked", input=[1], output="by the program"),
    span(
        7,
        "chat",
        "m-1",
        input=[answer("c1", {"files": ["a"]}), answer("c2", None), said("user", text("well?"))],
        input_offset=3,
        output=[ODD],
        usage={"input_tokens": 20, "output_tokens": 2, "cache_write_input_tokens": 5},
    ),
    span(8, "chat", "m-1", input=[said("user", text("more"))], input_offset=7, error="rate limit"),
]


def reward(name: str, value: float | None, span_id: str | None = None, weight: float = 1.0) -> Reward:
    known = f"{name}-{span_id}-{value}"
    return Reward(
        reward_id=known, episode_id="run", span_id=span_id, name=name, value=value, weight=weight, created_at=BEGIN
    )


EPISODE = Episode(
    episode_id="run",
    trace_id="run",
    agent_id="guide",
    task_id="task-1",
    attempt=2,
    status=EpisodeStatus.FAILED,
    truncated=True,
    error="ran out",
    started_at=BEGIN,
    ended_at=BEGIN + timedelta(seconds=60),
    metadata={"tier": "free", "version": "3.1"},
)
REWARDS = [
    reward("score", 0.25),
    reward("score", 0.75),  # the last of a name counts
    reward("speed", None),
    reward("seen", 2.0, weight=0.0),
    reward("step", 1.0, "span7"),
    reward("inner", 1.0, "span5"),
]
RECORDS = EpisodeRecords(EPISODE, SPANS, REWARDS)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    with Store.open(f"sqlite:///{tmp_path}/a.db") as one, Store.open(f"sqlite:///{tmp_path}/b.db") as other:
        yield one, other


def put(store: Store) -> None:
    store.write([EPISODE, *SPANS, *REWARDS])


def there_and_back(stores: tuple[Store, Store], tmp_path: Path) -> list[EpisodeRecords]:
    """Returns the episodes of the first store as the second one has them, from the file that was written."""
    with (tmp_path / "out.jsonl").open("wb") as target:
        write_atif_lines(stores[0], target)
    for line in (tmp_path / "out.jsonl").read_text().splitlines():
        check_rules(json.loads(line))
    report = import_file(stores[1], tmp_path / "out.jsonl", agent_id="none")
    assert report.num_bad_lines == 0
    assert import_file(stores[1], tmp_path / "out.jsonl", agent_id="none").num_new == 0
    return list(episode_records(stores[1]))


def view(step: Step) -> dict[str, Any]:
    calls = [
        (each.call_id, each.name, each.arguments, each.result, each.error, each.duration_ms) for each in step.tool_calls
    ]
    attributes = {name: value for name, value in step.attributes.items() if name != "input_offset"}
    return {
        "model": step.model,
        "output": step.output,
        "error": step.error,
        "calls": calls,
        "attributes": attributes,
        "times": (step.started_at, step.ended_at),
    }


def test_the_written_file_keeps_the_rules() -> None:
    trajectory = to_atif(RECORDS)
    check_rules(trajectory)
    assert [step["source"] for step in trajectory["steps"]] == [
        "system",
        "user",
        "agent",
        "agent",
        "user",
        "agent",
        "user",
        "agent",
    ]
    assert trajectory["agent"] == {"name": "guide", "version": "3.1", "model_name": "m-1"}
    first = trajectory["steps"][2]
    assert first["metrics"] == {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "cached_tokens": 4,
        "cost_usd": 0.25,
        "prompt_token_ids": [1, 2],
        "completion_token_ids": [3, 4, 5],
        "logprobs": [-0.5, 0, -1.25],
        "extra": {"reasoning_tokens": 1},
    }
    assert [result.get("content") for result in first["observation"]["results"]] == ['{"files":["a"]}', None]
    assert trajectory["steps"][3]["llm_call_count"] == 0
    assert [each["agent"]["name"] for each in trajectory["subagent_trajectories"]] == ["helper"]
    assert trajectory["final_metrics"] == {"total_steps": 8}  # the last call tells no tokens: there are no sums


def test_there_and_back(stores: tuple[Store, Store], tmp_path: Path) -> None:
    put(stores[0])
    (back,) = there_and_back(stores, tmp_path)
    before, after = steps_of(SPANS), steps_of(back.spans)
    assert [view(step) for step in after] == [view(step) for step in before]
    heard = [[each for each in step.messages if each["role"] != "tool"] for step in before]
    assert [[each for each in step.messages if each["role"] != "tool"] for step in after] == heard
    same = ("agent_id", "task_id", "attempt", "status", "terminated", "truncated", "error", "started_at", "ended_at")
    assert [getattr(back.episode, name) for name in same] == [getattr(EPISODE, name) for name in same]
    assert back.episode.metadata["tier"] == "free"
    rewards = {(each.name, each.value, each.weight) for each in back.rewards}
    assert rewards == {("score", 0.75, 1.0), ("speed", None, 1.0), ("seen", 2.0, 0.0), ("step", 1.0, 1.0)}
    (placed,) = (each for each in back.rewards if each.span_id)
    assert placed.span_id == after[-2].span_id
    tools = [each for each in back.spans if each.operation == "execute_tool"]
    assert {each.name: each.attributes.get("note") for each in tools} == {"ls": "kept", "ask": None, "unasked": None}
    (root,) = (each for each in back.spans if each.parent_id is None)
    assert (root.attributes["input"], root.attributes["output"]) == ("go", "done")


def test_times_that_are_not_known_are_not_written() -> None:
    episode = Episode(
        episode_id="run",
        trace_id="run",
        agent_id="a",
        task_id=None,
        status=EpisodeStatus.COMPLETED,
        started_at=BEGIN,
        metadata={"time_unknown": True},
    )
    written = json.dumps(to_atif(EpisodeRecords(episode, SPANS, [])))
    assert "2026-01-01" not in written


def test_an_episode_without_spans() -> None:
    assert to_atif(EpisodeRecords(EPISODE, [], []))["steps"] == []


def test_a_run_that_one_call_is() -> None:
    lone = span(1, "chat", "m", None, input="hi", output="ho")
    steps = to_atif(EpisodeRecords(EPISODE, [lone], []))["steps"]
    assert [(step["source"], step["message"]) for step in steps] == [("user", "hi"), ("agent", "ho")]


def test_agents_in_a_circle_and_in_a_deep_row() -> None:
    circle = [span(1, "invoke_agent", "a", 2), span(2, "invoke_agent", "b", 1), span(3, "chat", "m", 1, output="x")]
    check_rules(to_atif(EpisodeRecords(EPISODE, circle, [])))
    row = [span(0, "invoke_agent", "a", None)]
    for number in range(1, 60, 2):
        row += [span(number, "chat", "m", max(0, number - 1), output=str(number))]
        row += [span(number + 1, "invoke_agent", "deeper", max(0, number - 1))]
    trajectory = to_atif(EpisodeRecords(EPISODE, row, []))
    check_rules(trajectory)
    assert json.dumps(trajectory).count('"source": "agent"') == 30


def test_files(stores: tuple[Store, Store]) -> None:
    put(stores[0])
    ((path, content),) = atif_files(stores[0])
    assert (str(path), json.loads(content)) == ("run.json", json.loads(json.dumps(to_atif(RECORDS))))
    assert list(atif_files(stores[0], agent_id="nobody")) == []
    assert write_atif_lines(stores[0], io.BytesIO(), agent_id="guide") == 1


@pytest.mark.parametrize(
    "name",
    [
        "taubench/gpt-4o-airline_tasks0-24.json",
        "coding_cli/claude_code_sidechain.jsonl",
        "coding_cli/codex_rollout_fixture.jsonl",
        "sweagent/pydicom-1458_gpt4.traj",
        "inspect_ai/popularity_10.eval",
    ],
)
def test_shared_samples_there_and_back(stores: tuple[Store, Store], tmp_path: Path, name: str) -> None:
    import_file(stores[0], shared_trace(name), agent_id="agent")
    back = {each.episode.metadata["trajectory_id"]: each for each in there_and_back(stores, tmp_path)}
    for records in episode_records(stores[0]):
        found = back.pop(records.episode.episode_id)
        before, after = steps_of(records.spans), steps_of(found.spans)
        timed = "time_unknown" not in records.episode.metadata
        for one, other in zip(before, after, strict=True):
            left, right = view(one), view(other)
            if not timed:
                left.pop("times")
                right.pop("times")
            assert left == right
            assert one.messages == other.messages
        values = [{(each.name, each.value, each.weight) for each in side.rewards} for side in (records, found)]
        assert values[0] == values[1]
        assert (records.episode.task_id, records.episode.attempt) == (found.episode.task_id, found.episode.attempt)
    assert back == {}
