"""Goal traces: one executed action a line, with the goal that it served and its result.

Consecutive lines of one goal are the steps of one episode, in the order of the file. The action becomes a span, its
success a reward of 1 or 0 on that span. What the agent could have done instead is not in the file, so no decision is
made of it, and a later line never reaches an earlier one.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import msgspec

from learnloop.core.records import Episode, EpisodeStatus, Record, Reward, Span, SpanStatus
from learnloop.traces.importing.reader import (
    ItemReader,
    Line,
    Milliseconds,
    Source,
    TraceFormat,
    Words,
    convert,
    has_fields,
    parse_time,
    shifted,
)
from learnloop.traces.json_values import present


class _Result(msgspec.Struct):
    success: bool
    output: str | None = None
    error: str | None = None
    execution_time_ms: Milliseconds | None = None


class _GoalLine(msgspec.Struct):
    timestamp: str
    goal: Words
    action: Words
    result: _Result
    metadata: Any = None


class GoalReader(ItemReader):
    """Reads goal traces into episodes of the source's agent."""

    format_name = "goal"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._attempts: Counter[int] = Counter()
        """By the hash of the goal: a file may have millions of goals."""
        self._open: Episode | None = None
        """The episode whose lines are being read."""
        self._ended_at = source.modified_at

    def read(self, line: Line) -> list[Record]:
        """Returns the span and the reward of ``line``, and the episode that it closes by starting another goal."""
        step = convert(line, _GoalLine)
        ended_at = parse_time(step.timestamp)
        line_id = self.ids.for_line(line)
        started_at = shifted(ended_at, milliseconds=-(step.result.execution_time_ms or 0))
        records: list[Record] = []
        if self._open is None or self._open.task_id != step.goal:
            records += self.finish()
            self._open, self._ended_at = self._begin(step.goal, line_id, started_at), started_at
        self._ended_at = max(self._ended_at, ended_at)
        attributes = {
            "goal": step.goal,
            "output": step.result.output,
            "duration_unknown": True if step.result.execution_time_ms is None else None,
            "metadata": step.metadata,
        }
        span = Span(
            span_id=line_id,
            trace_id=self._open.episode_id,
            episode_id=self._open.episode_id,
            parent_id=None,
            operation="execute_tool",
            name=step.action,
            status=SpanStatus.OK if step.result.success else SpanStatus.ERROR,
            error=step.result.error,
            started_at=started_at,
            ended_at=ended_at,
            attributes=present(attributes),
        )
        reward = Reward(
            reward_id=self.ids.derive("reward", line_id),
            episode_id=span.episode_id,
            span_id=line_id,
            name="success",
            value=float(step.result.success),
            source="goal",
            created_at=ended_at,
        )
        return [*records, span, reward]

    def finish(self) -> list[Record]:
        """Returns the last episode: its end is known only when another goal, or the file's end, follows."""
        episode, self._open = self._open, None
        return [] if episode is None else [msgspec.structs.replace(episode, ended_at=self._ended_at)]

    def _begin(self, goal: str, line_id: str, started_at: datetime) -> Episode:
        episode_id, attempt = self.ids.derive("episode", line_id), self._attempts[hash(goal)]
        self._attempts[hash(goal)] += 1
        return Episode(
            episode_id=episode_id,
            trace_id=episode_id,
            agent_id=self.source.agent_id,
            task_id=goal,
            attempt=attempt,
            source="goal",
            status=EpisodeStatus.COMPLETED,
            terminated=True,
            started_at=started_at,
        )


_FIELDS = ("goal", "action", "result")
GOAL = TraceFormat("goal", "the fields goal, action and result", has_fields(*_FIELDS), GoalReader, "timestamp")
