"""What agents did, in figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
import numpy as np
from sqlalchemy import case, select

from learnloop.core.clock import now
from learnloop.core.records import EpisodeStatus, Json, Span, SpanStatus
from learnloop.core.rewards import RewardState, state_of
from learnloop.loop.traces.reading import read_usage, usage_column
from learnloop.loop.workspace.workspace import Workspace
from learnloop.store import schema
from learnloop.store.queries.rewards import reward_of_episode
from learnloop.store.queries.waiting import waiting_episodes
from learnloop.traces.conversation.steps import MODEL_OPERATIONS, TOOL_OPERATION, steps_of
from learnloop.traces.datasets.groups import GroupReport, count_groups

_EPISODES = 500
"""Whose spans are read at once."""


class ToolStats(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one tool."""

    name: str
    num_calls: int
    num_failed: int
    """Those that ended in an error."""
    failure_rate: float


class RewardStats(msgspec.Struct, frozen=True, kw_only=True):
    """Rewards of episodes: what each was worth by its own rewards, see ``core/rewards.py``."""

    num_known: int
    num_unknown: int
    num_pending: int
    """Of the unknown ones, those whose reward may still come; the others are missing."""
    mean: float | None
    """Of those that are known; None: none is."""


class TraceStats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of episodes."""

    num_episodes: int
    statuses: Mapping[str, int]
    num_spans: int
    num_steps: int
    """Calls of models, each counted once; in episodes without any, calls of tools."""
    tools: list[ToolStats]
    """The one with the most calls first."""
    tokens: Mapping[str, int]
    """Sums of what is known: ``input_tokens``, ``output_tokens`` ..."""
    num_model_calls: int
    num_model_calls_without_tokens: int
    """Those whose tokens are not known; they are in no sum."""
    rewards: RewardStats
    groups: GroupReport
    num_durations: int
    """Episodes that ended and whose times are known."""
    duration_p50_seconds: float | None
    duration_p95_seconds: float | None


class _Counts:
    """What is counted of spans."""

    def __init__(self) -> None:
        self.spans = self.steps = self.model_calls = self.without_tokens = 0
        self.calls: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()

    def take(self, spans: Sequence[Span]) -> None:
        """Counts the spans of one episode."""
        steps = steps_of(spans)
        self.spans += len(spans)
        self.steps += len(steps)
        for span in spans:
            if span.operation == TOOL_OPERATION:
                self.calls[span.name] += 1
                self.failed[span.name] += span.status is SpanStatus.ERROR
        for step in steps:
            if "usage" in step.attributes:  # of a call of a model, be it known or not
                self._take_usage(step.attributes["usage"])

    def _take_usage(self, usage: Json) -> None:
        known = {name: count for name, count in usage.items() if type(count) is int}
        self.model_calls += 1
        self.without_tokens += not known
        self.tokens.update(known)


def trace_stats(workspace: Workspace, *, agent: str | None = None) -> TraceStats:
    """Returns figures of the episodes of ``agent``, or of all where that is None."""
    counts = _Counts()
    for spans in _spans_by_episode(workspace, agent):
        counts.take(spans)
    rows = _episodes(workspace, agent)
    rewards, durations = [row.reward for row in rows], _durations(rows)
    waiting = workspace.store.read(waiting_episodes, now())
    states = Counter(state_of(row.reward, is_awaited=_is_awaited(row, waiting)) for row in rows)
    tools = [
        ToolStats(
            name=name, num_calls=number, num_failed=counts.failed[name], failure_rate=counts.failed[name] / number
        )
        for name, number in counts.calls.most_common()
    ]
    known = [reward for reward in rewards if reward is not None]
    p50, p95 = np.percentile(durations, [50, 95]).tolist() if durations else (None, None)
    return TraceStats(
        num_episodes=len(rewards),
        statuses=dict(Counter(row.status for row in rows)),
        num_spans=counts.spans,
        num_steps=counts.steps,
        tools=tools,
        tokens=dict(counts.tokens),
        num_model_calls=counts.model_calls,
        num_model_calls_without_tokens=counts.without_tokens,
        rewards=RewardStats(
            num_known=len(known),
            num_unknown=len(rewards) - len(known),
            num_pending=states[RewardState.PENDING],
            mean=sum(known) / len(known) if known else None,
        ),
        groups=count_groups(workspace.store, None if agent is None else [agent]),
        num_durations=len(durations),
        duration_p50_seconds=p50,
        duration_p95_seconds=p95,
    )


class _Row(NamedTuple):
    """What is counted of an episode."""

    episode_id: str
    status: str
    started_at: datetime
    ended_at: datetime | None
    metadata: Json
    reward: float | None


def _episodes(workspace: Workspace, agent: str | None) -> list[_Row]:
    table = schema.episodes.c
    columns = (table.episode_id, table.status, table.started_at, table.ended_at, table.metadata)
    query = select(*columns, reward_of_episode(table.episode_id))
    query = query if agent is None else query.where(table.agent_id == agent)
    return [_Row(*row) for row in workspace.store.read(lambda connection: connection.execute(query).all())]


def _durations(rows: Sequence[_Row]) -> list[float]:
    """Returns the seconds that those took that ended and whose times are known."""
    return [
        (row.ended_at - row.started_at).total_seconds()
        for row in rows
        if row.ended_at is not None and row.metadata.get("time_unknown") is not True
    ]


def _is_awaited(row: _Row, waiting: Collection[str]) -> bool:
    return row.status == EpisodeStatus.RUNNING.value or row.episode_id in waiting


def _spans_by_episode(workspace: Workspace, agent: str | None) -> Iterator[list[Span]]:
    """Yields the spans of each episode, without what was said in them."""
    table = schema.episodes.c
    after = ""
    while True:
        query = select(table.episode_id).where(table.episode_id > after).order_by(table.episode_id).limit(_EPISODES)
        query = query if agent is None else query.where(table.agent_id == agent)
        ids = workspace.store.read(lambda connection, query=query: list(connection.execute(query).scalars()))  # type: ignore[misc]
        if not ids:
            return
        after = ids[-1]
        for _, spans in groupby(_outlines(workspace, ids), key=lambda span: span.episode_id):
            yield list(spans)


def _outlines(workspace: Workspace, episode_ids: Sequence[str]) -> Iterable[Span]:
    spans = schema.spans.c
    columns = (spans.span_id, spans.episode_id, spans.parent_id, spans.operation, spans.name, spans.status)

    def read(connection: Any) -> list[Span]:
        times = (spans.started_at, spans.ended_at)
        of_models = spans.operation.in_(MODEL_OPERATIONS)
        usage = case((of_models, usage_column(connection)))
        query = select(*columns, *times, of_models, usage).where(spans.episode_id.in_(episode_ids))
        return [_outline(row) for row in connection.execute(query.order_by(spans.episode_id))]

    return workspace.store.read(read)


def _outline(row: Sequence[Any]) -> Span:
    span_id, episode_id, parent_id, operation, name, status, started_at, ended_at, is_model, usage = row
    return Span(
        span_id=span_id,
        trace_id=episode_id,
        episode_id=episode_id,
        parent_id=parent_id,
        operation=operation,
        name=name,
        status=SpanStatus(status),
        started_at=started_at,
        ended_at=ended_at,
        attributes={"usage": read_usage(usage)} if is_model else {},
    )
