"""What agents did, in figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec
import numpy as np

from learnloop.core.clock import now
from learnloop.core.records import EpisodeStatus, Json, Span, SpanStatus
from learnloop.core.rewards import RewardState, state_of
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.store.queries.episodes import EpisodeOutline, EpisodeQuery, episode_outlines
from learnloop.store.queries.spans import bare_spans
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


def trace_stats(workspace: WorkspaceCore, *, agent: str | None = None) -> TraceStats:
    """Returns figures of the episodes of ``agent``, or of all where that is None."""
    counts = _Counts()
    episodes = workspace.store.read(episode_outlines, EpisodeQuery(agent_id=agent))
    for spans in _spans_by_episode(workspace, episodes):
        counts.take(spans)
    durations = [seconds for episode in episodes if (seconds := _seconds(episode)) is not None]
    waiting = workspace.store.read(waiting_episodes, now())
    states = Counter(state_of(each.reward, is_awaited=_is_awaited(each, waiting)) for each in episodes)
    tools = [
        ToolStats(
            name=name, num_calls=number, num_failed=counts.failed[name], failure_rate=counts.failed[name] / number
        )
        for name, number in counts.calls.most_common()
    ]
    known = [episode.reward for episode in episodes if episode.reward is not None]
    p50, p95 = np.percentile(durations, [50, 95]).tolist() if durations else (None, None)
    return TraceStats(
        num_episodes=len(episodes),
        statuses=dict(Counter(episode.status for episode in episodes)),
        num_spans=counts.spans,
        num_steps=counts.steps,
        tools=tools,
        tokens=dict(counts.tokens),
        num_model_calls=counts.model_calls,
        num_model_calls_without_tokens=counts.without_tokens,
        rewards=RewardStats(
            num_known=len(known),
            num_unknown=len(episodes) - len(known),
            num_pending=states[RewardState.PENDING],
            mean=sum(known) / len(known) if known else None,
        ),
        groups=count_groups(workspace.store, None if agent is None else [agent]),
        num_durations=len(durations),
        duration_p50_seconds=p50,
        duration_p95_seconds=p95,
    )


def _seconds(episode: EpisodeOutline) -> float | None:
    """Returns how long an episode took; None: it has not ended, or its times are not known."""
    if episode.ended_at is None or episode.metadata.get("time_unknown") is True:
        return None
    return (episode.ended_at - episode.started_at).total_seconds()


def _is_awaited(episode: EpisodeOutline, waiting: Collection[str]) -> bool:
    return episode.status == EpisodeStatus.RUNNING.value or episode.episode_id in waiting


def _spans_by_episode(workspace: WorkspaceCore, episodes: Sequence[EpisodeOutline]) -> Iterator[list[Span]]:
    """Yields the spans of each episode, without what was said in them."""
    for start in range(0, len(episodes), _EPISODES):
        ids = [episode.episode_id for episode in episodes[start : start + _EPISODES]]
        found = workspace.store.read(bare_spans, ids, MODEL_OPERATIONS)
        for _, spans in groupby(found, key=lambda span: span.episode_id):
            yield list(spans)
