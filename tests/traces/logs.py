"""Logs of agents for tests: goal lines, and records of our own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from learnloop.core.records import Decision, Episode, EpisodeStatus, Record, Reward, Span, SpanStatus
from learnloop.traces.importing.formats import native

START = datetime(2026, 1, 1, 10, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def goal_line(seconds: float, goal: str, action: str, success: bool = True, **result: Any) -> dict[str, Any]:
    moment = at(seconds).isoformat()
    return {"timestamp": moment, "goal": goal, "action": action, "result": {"success": success, **result}}


def write_lines(path: Path, lines: Iterable[Any]) -> Path:
    path.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines))
    return path


def write_records(path: Path, records: Iterable[Record]) -> Path:
    path.write_bytes(b"\n".join([native.header(), *map(native.encode, records)]) + b"\n")
    return path


def episode(name: str, seconds: float = 0, **fields: Any) -> Episode:
    defaults: dict[str, Any] = {
        "trace_id": name,
        "agent_id": "agent",
        "task_id": None,
        "status": EpisodeStatus.COMPLETED,
        "terminated": True,
        "started_at": at(seconds),
        "ended_at": at(seconds + 100),
    }
    return Episode(episode_id=name, **(defaults | fields))


def span(name: str, of: str, start: float, end: float, *, ok: bool = True, **fields: Any) -> Span:
    defaults: dict[str, Any] = {
        "span_id": f"{of}-{name}-{start}",
        "trace_id": of,
        "episode_id": of,
        "parent_id": "root",
        "operation": "execute_tool",
        "status": SpanStatus.OK if ok else SpanStatus.ERROR,
        "started_at": at(start),
        "ended_at": at(end),
    }
    return Span(name=name, **(defaults | fields))


def decision(name: str, of: str | None, seconds: float, action: str, actions: Sequence[str], **fields: Any) -> Decision:
    defaults: dict[str, Any] = {
        "agent_id": "agent",
        "policy": "tool",
        "algorithm": None,
        "context": {},
        "propensity": None,
        "created_at": at(seconds),
    }
    return Decision(decision_id=name, episode_id=of, action=action, actions=list(actions), **(defaults | fields))


_rewards = iter(range(10**9))


def reward(value: float | None, of: str | None = None, name: str = "solved", **fields: Any) -> Reward:
    number = next(_rewards)
    defaults: dict[str, Any] = {"reward_id": f"reward-{number:09}", "created_at": at(1_000 + number / 1000)}
    return Reward(episode_id=of, name=name, value=value, **(defaults | fields))
