"""learnloop.loop.traces.stats: figures counted by hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.records import EpisodeStatus, Record, SpanStatus
from learnloop.loop import Workspace, find_settings
from learnloop.loop.traces.stats import trace_stats
from learnloop.testing.contracts.store_examples import T0, episode, reward, span


@pytest.fixture(params=["sqlite", "postgresql"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    database = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    with Workspace(find_settings(tmp_path / "home", database), create=True) as opened:
        yield opened


def test_an_empty_store_has_no_figures(workspace: Workspace) -> None:
    found = trace_stats(workspace)
    assert (found.num_episodes, found.num_spans, found.num_steps, found.statuses, found.tools) == (0, 0, 0, {}, [])
    assert (found.rewards.mean, found.duration_p50_seconds, found.num_durations) == (None, None, 0)


def test_figures(workspace: Workspace) -> None:
    """A call that two instruments recorded counts once, with its tokens; what is not known is in no sum."""

    def ended(key: str, seconds: float, task: str, **fields: Any) -> Record:
        end = T0 + timedelta(seconds=seconds)
        return episode(key, EpisodeStatus.COMPLETED, task_id=task, ended_at=end, **fields)

    def usage(number: int) -> dict[str, Any]:
        return {"attributes": {"usage": {"input_tokens": number, "output_tokens": 1, "detail": "x"}, "input": "y"}}

    records: list[Record] = [
        ended("e1", 1.0, "t1"),
        ended("e2", 3.0, "t1"),
        ended("e3", 100.0, "t2", metadata={"time_unknown": True}),
        episode("e4", task_id="t2"),
        episode("x", EpisodeStatus.FAILED, agent_id="other", task_id=None, ended_at=T0),
        span("outer", **usage(10)),
        span("inner", parent_id="outer", **usage(10)),
        span("second", attributes={"usage": "not counted"}),
        span("search1", operation="execute_tool", name="search"),
        span("search2", operation="execute_tool", name="search", status=SpanStatus.ERROR, episode_id="e2"),
        span("think", operation="execute_tool", name="think", episode_id="e2"),
        span("x1", episode_id="x", **usage(99)),
    ]
    workspace.store.write(records)
    for key, value in (("e1", 1.0), ("e2", 0.0), ("e3", None)):
        workspace.store.write([reward(f"r-{key}", episode_id=key, decision_id=None, value=value)])
    found = trace_stats(workspace, agent="packer")
    assert (found.num_episodes, found.statuses) == (4, {"completed": 3, "running": 1})
    assert (found.num_spans, found.num_steps) == (6, 4)  # e1: two calls of a model; e2: two of tools
    assert found.tokens == {"input_tokens": 10, "output_tokens": 1}
    assert (found.num_model_calls, found.num_model_calls_without_tokens) == (2, 1)
    assert [(tool.name, tool.num_calls, tool.num_failed, tool.failure_rate) for tool in found.tools] == [
        ("search", 2, 1, 0.5),
        ("think", 1, 0, 0.0),
    ]
    assert (found.rewards.num_known, found.rewards.num_unknown, found.rewards.mean) == (2, 2, 0.5)
    assert (found.groups.num_groups, found.groups.num_mixed, found.groups.num_unknown) == (2, 1, 1)
    assert (found.num_durations, found.duration_p50_seconds) == (2, 2.0)
    assert found.duration_p95_seconds == pytest.approx(2.9)
    everything = trace_stats(workspace)
    assert (everything.num_episodes, everything.num_model_calls) == (5, 3)
    assert everything.tokens["input_tokens"] == 109
