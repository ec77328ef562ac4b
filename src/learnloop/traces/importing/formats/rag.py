"""Tool-fusion traces: one whole run a line, with the model, the tool and, filled in later, its reward.

The run is known by its ``trace_id``: a line that is imported again once its reward is known adds that reward and
nothing else. ``success`` is kept with weight 0, as a metric: where the file has a reward of its own, learning from both
would count the outcome twice, and where it has none, none is made up.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from learnloop.core.records import Episode, EpisodeStatus, Record, Span, SpanStatus
from learnloop.traces.importing.reader import (
    ItemReader,
    Line,
    Milliseconds,
    TraceFormat,
    Words,
    convert,
    has_fields,
    parse_time,
    shifted,
)


class _RagLine(msgspec.Struct):
    trace_id: Words
    timestamp: str
    prompt: str
    intent: str
    model_used: str
    rag_used: bool
    success: bool
    duration_ms: Milliseconds
    conditions_evaluated: list[Any] = []
    tool_executed: str | None = None
    reward: float | None = None


class RagReader(ItemReader):
    """Reads tool-fusion traces into episodes of the source's agent."""

    format_name = "rag"

    def read(self, line: Line) -> list[Record]:
        """Returns the episode, its spans and its rewards."""
        run = convert(line, _RagLine)
        started_at = parse_time(run.timestamp)
        ended_at = shifted(started_at, milliseconds=run.duration_ms)
        episode_id = self.ids.derive("episode", run.trace_id)
        episode = Episode(
            episode_id=episode_id,
            trace_id=run.trace_id,
            agent_id=self.source.agent_id,
            task_id=None,
            source="rag",
            status=EpisodeStatus.COMPLETED,
            terminated=True,
            started_at=started_at,
            ended_at=ended_at,
            metadata={"intent": run.intent, "success": run.success},
        )
        about = {"episode_id": episode_id, "created_at": ended_at}
        rewards = self.outcome(run.success, run.reward, run.trace_id, **about)
        return [episode, *self._spans(run, episode, ended_at), *rewards]

    def _spans(self, run: _RagLine, episode: Episode, ended_at: datetime) -> Iterator[Span]:
        """Yields the root span and, inside it, the model's and the tool's, whose own times the file does not say."""
        root_id = self.ids.derive("span", run.trace_id, "root")
        attributes = {"input": run.prompt, "intent": run.intent, "rag_used": run.rag_used}
        parts: list[tuple[str, str, str, dict[str, Any]]] = [
            ("root", "invoke_agent", self.source.agent_id, {**attributes, "conditions": run.conditions_evaluated}),
            ("model", "chat", run.model_used, {"duration_unknown": True}),
        ]
        if run.tool_executed is not None:
            parts.append(("tool", "execute_tool", run.tool_executed, {"duration_unknown": True}))
        for part, operation, name, details in parts:
            yield Span(
                span_id=self.ids.derive("span", run.trace_id, part),
                trace_id=run.trace_id,
                episode_id=episode.episode_id,
                parent_id=None if part == "root" else root_id,
                operation=operation,
                name=name,
                status=SpanStatus.ERROR if part == "root" and not run.success else SpanStatus.OK,
                started_at=episode.started_at,
                ended_at=ended_at,
                attributes=details,
            )


_FIELDS = ("trace_id", "prompt", "intent", "model_used")
RAG = TraceFormat("rag", "the fields trace_id, prompt, intent and model_used", has_fields(*_FIELDS), RagReader)
