"""learnloop.traces.exporting.execution_trace: dated files with exactly the original's fields, never outside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.records import Episode, EpisodeStatus, Reward, Span, SpanStatus
from learnloop.store import Store
from learnloop.traces.exporting.episodes import EpisodeRecords, file_name
from learnloop.traces.exporting.execution_trace import execution_trace_files, to_execution_trace
from learnloop.traces.importing.exchange import import_file
from tests.traces.importing.formats.test_execution_trace import TRACE
from tests.traces.shared_traces import shared_trace

BEGIN = datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)


def episode(episode_id: str = "run", **fields: Any) -> Episode:
    given: dict[str, Any] = {"agent_id": "a", "task_id": None, "status": EpisodeStatus.COMPLETED, "started_at": BEGIN}
    given |= {"ended_at": BEGIN + timedelta(seconds=2), **fields}
    return Episode(episode_id=episode_id, trace_id=episode_id, **given)


def span(number: int, operation: str, name: str, **attributes: Any) -> Span:
    return Span(
        span_id=f"s{number}",
        trace_id="run",
        episode_id="run",
        parent_id=None if number == 0 else "s0",
        operation=operation,
        name=name,
        status=SpanStatus.OK,
        started_at=BEGIN + timedelta(seconds=number),
        ended_at=BEGIN + timedelta(seconds=number, milliseconds=500),
        attributes=attributes,
    )


def reward(name: str, value: float | None, weight: float = 1.0) -> Reward:
    known = f"{name}{value}"
    return Reward(reward_id=known, episode_id="run", name=name, value=value, weight=weight, created_at=BEGIN)


CALL = {"type": "tool_call", "id": "c", "name": "ls", "arguments": {"at": "."}}
THOUGHT = {"type": "reasoning", "content": "hm"}
SPANS = [
    span(0, "invoke_agent", "a"),
    span(
        1,
        "chat",
        "m",
        input="go",
        output=[{"role": "assistant", "parts": [THOUGHT, CALL]}],
        usage={"input_tokens": 5},
        cost_usd=0.5,
    ),
    span(2, "execute_tool", "ls", input={"at": "."}, output={"n": 1}, call_id="c"),
    span(3, "execute_tool", "unasked", input=[1], output="x"),
    span(4, "chat", "m", input=[{"role": "tool", "parts": []}], input_offset=2, output="done"),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/a.db") as opened:
        yield opened


def test_a_run() -> None:
    trace = to_execution_trace(EpisodeRecords(episode(), SPANS, [reward("label", 1.0), reward("reward_score", 0.5)]))
    assert list(trace) == list(TRACE)  # the original's own reader refuses any other field
    assert trace == {
        **TRACE,
        "trace_id": "run",
        "session_id": "",
        "timestamp": "2026-01-31T23:59:59+00:00",
        "user_query": "go",
        "tool_calls": [
            {
                "tool_name": "ls",
                "arguments": {"at": "."},
                "result": '{"n":1}',
                "success": True,
                "duration_ms": 500.0,
                "error": None,
                "timestamp": "2026-02-01T00:00:01.500000+00:00",
            },
            {
                "tool_name": "unasked",
                "arguments": {"input": [1]},
                "result": "x",
                "success": True,
                "duration_ms": 500.0,
                "error": None,
                "timestamp": "2026-02-01T00:00:02.500000+00:00",
            },
        ],
        "reasoning_steps": [
            {"step_type": "internal_reasoning", "content": "hm", "confidence": 0, "insights": [], "issues": []}
        ],
        "tasks_completed": [],
        "final_response": "done",
        "total_tokens_in": 5,
        "total_cost": 0.5,
        "execution_duration_ms": 2000.0,
        "llm_calls_count": 2,
        "label": True,
        "reward_score": 0.5,
    }


@pytest.mark.parametrize(
    ("rewards", "label", "score"),
    [
        ([], None, None),
        ([reward("label", None)], None, None),
        ([reward("label", 0.0)], False, None),
        ([reward("label", 0.5)], None, 0.5),  # no yes and no no: what the run was worth
        ([reward("tests", 1.0), reward("label", 0.0)], False, 0.0),
        ([reward("tests", 1.0), reward("label", 1.0)], True, 1.0),
        ([reward("tests", 1.0), reward("total", 0.25)], None, 0.25),
        ([reward("tests", 1.0), reward("total", None)], None, 1.0),
        ([reward("tests", 0.25), reward("tests", 0.75)], None, 0.75),  # the last counts
        ([reward("tests", 0.5), reward("style", 0.5, 0.5)], None, 0.75),
        ([reward("tests", 0.5), reward("style", None)], None, 0.5),
        ([reward("tests", -3.0)], None, None),  # no score from 0 to 1
        ([reward("tests", 1.0, 0.0)], None, None),  # a metric
        ([reward("reward_score", 7.0)], None, None),
        ([reward("reward_score", 0.25), reward("tests", 1.0)], None, 0.25),
    ],
)
def test_nothing_is_made_up(rewards: list[Reward], label: bool | None, score: float | None) -> None:
    trace = to_execution_trace(EpisodeRecords(episode(), SPANS, rewards))
    assert (trace["label"], trace["reward_score"]) == (label, score)


def test_a_file_comes_back_as_it_was(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    given = {**TRACE, "label": False, "reward_score": 0.25, "manual_review": True, "review_notes": "no"}
    path.write_text(json.dumps(given))
    import_file(store, path, agent_id="a")
    ((where, content),) = execution_trace_files(store)
    assert where == PurePosixPath("2026-01-03/0123456789ab.json")
    written = json.loads(content)
    changed = {name for name, value in given.items() if written[name] != value}
    assert changed == {"timestamp", "tool_calls"}
    assert written["timestamp"] == "2026-01-03T09:00:00+00:00"
    same = ("tool_name", "arguments", "result", "success", "duration_ms")
    assert [[call[name] for name in same] for call in written["tool_calls"]] == [
        [call[name] for name in same] for call in given["tool_calls"]
    ]


HOSTILE = [
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    "",
    "a/../b",
    "a\\..\\b",
    "C:\\x",
    "x\x00y",
    "-rf",
    ".hidden",
    "ü" * 300,
]


def test_files_stay_in_their_folder(store: Store) -> None:
    """Whatever a trace id holds, and however many runs share one."""
    moments = (BEGIN, BEGIN + timedelta(seconds=1))
    ids = [known for known in HOSTILE if "\x00" not in known and known]
    store.write([episode(known, started_at=moment) for known, moment in zip(ids, moments * 9, strict=False)])
    store.write([episode(f"same{n}", metadata={"trace_id": "../same"}) for n in range(3)])
    paths = [path for path, _ in execution_trace_files(store)]
    assert len(set(paths)) == len(ids) + 3
    for path in paths:
        folder, name = path.parts
        assert folder in ("2026-01-31", "2026-02-01")
        assert name.endswith(".json")
        assert not name.startswith((".", "-"))


@given(st.text(max_size=300) | st.sampled_from(HOSTILE), st.text(max_size=300))
def test_names_of_files(one: str, other: str) -> None:
    name = file_name(one)
    assert PurePosixPath("folder", name).parts == ("folder", name)
    assert not set(name) & set('/\\:*?"<>|\x00')
    assert name.strip(".") == name
    assert len(name.encode()) <= 100
    assert (name == file_name(other)) is (one == other)


def test_times_that_are_not_known() -> None:
    trace = to_execution_trace(EpisodeRecords(episode(metadata={"time_unknown": True}), SPANS, []))
    assert (trace["timestamp"], trace["execution_duration_ms"]) == ("", 0.0)
    assert all(call["timestamp"] == "" and call["duration_ms"] == 0.0 for call in trace["tool_calls"])


def test_shared_sample(store: Store) -> None:
    import_file(store, shared_trace("taubench/gpt-4o-airline_tasks0-24.json"), agent_id="a")
    traces = [json.loads(content) for _, content in execution_trace_files(store)]
    assert len({trace["trace_id"] for trace in traces}) == 100
    assert {trace["reward_score"] for trace in traces} == {0.0, 1.0}
    assert all(trace["label"] is None for trace in traces)
