"""formats.execution_trace: a run is an episode; labels and scores are rewards, null stays missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from learnloop.core.errors import FormatError
from learnloop.traces.conversation.messages import text_of
from tests.traces.formats.reading import check_damaged, check_wrong_values, imported, written

TRACE: dict[str, Any] = {
    "trace_id": "0123456789ab",
    "session_id": "s",
    "timestamp": "2026-01-03T09:00:00",
    "user_query": "Weather?",
    "tool_calls": [
        {
            "tool_name": "sky",
            "arguments": {"at": "B"},
            "result": "sun",
            "success": True,
            "duration_ms": 500.0,
            "error": None,
            "timestamp": "2026-01-03T09:00:01",
        },
        {"tool_name": "say", "arguments": {}, "result": "", "success": False, "duration_ms": 0.0},
    ],
    "reasoning_steps": [
        {"step_type": "outline_step", "content": "look up", "confidence": 0.8, "insights": ["x"], "issues": []}
    ],
    "tasks_created": [],
    "tasks_completed": [{"task_id": "t", "result": "r"}],
    "tasks_failed": [],
    "final_response": "Sunny.",
    "total_tokens_in": 90,
    "total_tokens_out": 0,
    "total_cost": 0.0,
    "execution_duration_ms": 2500.0,
    "llm_calls_count": 3,
    "label": None,
    "reward_score": None,
    "manual_review": False,
    "review_notes": "",
}


@pytest.mark.parametrize(
    ("name", "value", "format_name"),
    [
        ("0123456789ab.json", TRACE, "execution-trace"),
        ("0123456789ab.json.gz", TRACE, "execution-trace"),
        ("all.json", [TRACE], "execution-trace"),
        ("all.jsonl", [TRACE], "execution-trace-jsonl"),
    ],
)
def test_a_run(tmp_path: Path, name: str, value: Any, format_name: str) -> None:
    got = imported(tmp_path, written(tmp_path / name, value))
    episode = got.episode
    assert (got.report.format, got.report.num_steps, episode.source) == (format_name, 1, "execution-trace")
    assert (got.values(), got.report.num_episodes_with_outcome) == ({}, 0)
    assert (episode.ended_at - episode.started_at).total_seconds() == 2.5
    assert episode.metadata == {
        "trace_id": "0123456789ab",
        "session_id": "s",
        "tasks_completed": [{"task_id": "t", "result": "r"}],
    }


def test_the_only_step(tmp_path: Path) -> None:
    (step,) = imported(tmp_path, written(tmp_path / "t.json", TRACE)).steps()
    assert [text_of(each) for each in step.messages] == ["Weather?"]
    assert step.output["parts"][0] == {
        "type": "reasoning",
        "content": "look up",
        "step_type": "outline_step",
        "confidence": 0.8,
        "insights": ["x"],
    }
    assert text_of(step.output) == "Sunny."
    assert step.attributes["num_model_calls"] == 3
    assert step.attributes["usage"] == {"input_tokens": 90}  # 0 is this format's word for: not recorded
    assert "cost_usd" not in step.attributes
    assert [(call.name, call.arguments, call.result, call.error, call.duration_ms) for call in step.tool_calls] == [
        ("sky", {"at": "B"}, "sun", None, 500),
        ("say", {}, "", "the tool reported no success", None),
    ]


@pytest.mark.parametrize(
    ("label", "score", "reviewed", "expected"),
    [
        (None, None, True, {}),
        (True, None, False, {"label": (1.0, 1.0)}),
        (False, None, True, {"label": (0.0, 1.0)}),
        (None, 0.0, False, {"reward_score": (0.0, 1.0)}),
        (True, 0.7, False, {"label": (1.0, 0.0), "reward_score": (0.7, 1.0)}),
        (False, 0.7, True, {"label": (0.0, 1.0), "reward_score": (0.7, 0.0)}),
    ],
)
def test_rewards(
    tmp_path: Path, label: bool | None, score: float | None, reviewed: bool, expected: dict[str, tuple[float, float]]
) -> None:
    """One of label and score is learned from, never both, and none where neither is known."""
    value = {**TRACE, "label": label, "reward_score": score, "manual_review": reviewed, "review_notes": "ok"}
    got = imported(tmp_path, written(tmp_path / "t.json", value))
    rewards = got.rewards.get(got.episode.episode_id, {})
    assert {name: (reward.value, reward.weight) for name, reward in rewards.items()} == expected
    assert got.report.num_episodes_with_outcome == (1 if expected else 0)


def test_a_label_that_comes_later_is_added(tmp_path: Path) -> None:
    first, later = written(tmp_path / "1.json", TRACE), written(tmp_path / "2.json", {**TRACE, "label": True})
    got = imported(tmp_path, first, later)
    assert (got.reports[1].num_new, got.values()) == (1, {"label": 1.0})


def test_attempts_at_one_query_stay_apart(tmp_path: Path) -> None:
    """F3.4, F3.6: attempts without a time share a trace_id; long queries that begin the same are two tasks."""
    second = {**TRACE, "timestamp": "2026-01-03T09:05:00", "final_response": "Rain."}
    timeless = [{**TRACE, "timestamp": "", "final_response": text} for text in ("A", "B", "B")]
    other = {**TRACE, "user_query": "Weather?" + " " * 300 + "tomorrow", "trace_id": "other"}
    got = imported(tmp_path, written(tmp_path / "t.jsonl", [TRACE, second, *timeless, other]))
    assert len(got.episodes) == 6
    assert len({each.task_id for each in got.episodes}) == 2
    assert got.report.groups.sizes == {1: 1, 5: 1}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reward_score", 1.5),
        ("label", "yes"),
        ("execution_duration_ms", -1),
        ("timestamp", "now"),
        ("tool_calls", [{}]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, field: str, value: Any) -> None:
    with pytest.raises(FormatError, match=r"reward_score|label|duration|now|tool_name"):
        imported(tmp_path, written(tmp_path / "t.json", {**TRACE, field: value}))


def test_damage(tmp_path: Path) -> None:
    check_damaged(written(tmp_path / "t.json", TRACE), "execution-trace", 100)


def test_wrong_values(tmp_path: Path) -> None:
    check_wrong_values(tmp_path / "t.json", TRACE, "execution-trace")
