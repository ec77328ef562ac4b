"""Runs as records, written by hand, for tests that read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from learnloop.core.records import Episode, EpisodeStatus, Record, Span, SpanStatus

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def episode(episode_id: str, *, task_id: str | None = None, **fields: Any) -> Episode:
    """Returns an episode of ``solver`` that took 10 s and came to its end."""
    whole: dict[str, Any] = {
        "agent_id": "solver", "status": EpisodeStatus.COMPLETED, "terminated": True, "started_at": T0,
        "ended_at": T0 + timedelta(seconds=10), **fields,
    }  # fmt: skip
    return Episode(episode_id=episode_id, trace_id=f"t-{episode_id}", task_id=task_id, **whole)


def span(episode_id: str, number: int, operation: str, name: str, parent: int | None = None, **fields: Any) -> Span:
    """Returns a span that starts ``number`` seconds into its episode."""
    attributes = fields.pop("attributes", {})
    return Span(
        span_id=f"{episode_id}-{number}",
        trace_id=f"t-{episode_id}",
        episode_id=episode_id,
        parent_id=None if parent is None else f"{episode_id}-{parent}",
        operation=operation,
        name=name,
        status=fields.pop("status", SpanStatus.OK),
        started_at=T0 + timedelta(seconds=number),
        ended_at=T0 + timedelta(seconds=number + 0.5),
        attributes=attributes,
        **fields,
    )


def answered(episode_id: str, question: str, answer: str, task_id: str | None = None, **fields: Any) -> list[Record]:
    """Returns an episode in which a model was asked once."""
    call = {"input": [said("user", question)], "output": [said("assistant", answer)]}
    return [
        episode(episode_id, task_id=task_id, **fields),
        span(episode_id, 0, "invoke_agent", "solver"),
        span(episode_id, 1, "chat", "small-model", 0, attributes=call),
    ]
