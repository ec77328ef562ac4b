"""Counts what a file of traces holds, and what it does not say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from learnloop.core.records import Decision, Episode, Record, Reward, Span
from learnloop.traces.conversation.steps import MODEL_OPERATIONS, TOOL_OPERATION
from learnloop.traces.datasets.groups import GroupReport

_REWARDED = 1
_SEEN = 2
_MODEL_CALL = 4
_TOOL_CALL = 4 << 28
_COUNT_MASK = (1 << 28) - 1


class LineFault(msgspec.Struct, frozen=True, kw_only=True):
    """A line, or another item of a file, that could not be read."""

    line: int
    """Counted from 1; the first of several lines that are one item."""
    reason: str


class ImportSums(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, in one file or in several."""

    num_records: Mapping[str, int]
    """Records in the file, by type."""
    num_steps: int
    """Calls of a model; in episodes without any, calls of a tool."""
    num_new: int
    """Records that the store did not have yet; 0 when a file is imported again."""
    num_bad_lines: int
    num_episodes_with_outcome: int
    """Those that have a reward."""
    num_episodes_without_reward: int
    """Their outcome is unknown; nothing is made up."""
    num_decisions_without_propensity: int
    """Off-policy evaluation cannot use them."""
    num_model_calls_without_token_ids: int
    """A language model cannot be trained on them token by token as it was sampled."""
    groups: GroupReport | None = None
    """Of the agents in the files, attempts that were imported earlier included; None: nothing was stored."""


class ImportReport(ImportSums, frozen=True, kw_only=True):
    """What an import of a file found."""

    format: str
    num_lines: int
    """Lines, or items of a file that is not made of lines."""
    bad_lines: list[LineFault]
    """The first of them."""


class Tally:
    """Counts records as they come, in a few dozen bytes an episode."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._episodes: dict[int, int] = {}
        """What is known of each episode, by the hash of its id: two flags and two counts in one number."""
        self._last: int | None = None
        """The episode whose model calls are being read, as in ``_episodes``."""
        self._calls: set[str] = set()
        self._parents: set[str | None] = set()
        self._agents: set[str] = set()
        self._num_without_propensity = 0
        self._num_without_token_ids = 0

    @property
    def agents(self) -> set[str]:
        """The agents whose episodes came."""
        return self._agents

    def count(self, records: Iterable[Record]) -> None:
        """Counts ``records``."""
        for record in records:
            name = type(record).__name__.lower()
            self._counts[name] = self._counts.get(name, 0) + 1
            if isinstance(record, Span):
                self._count_span(record)
            elif isinstance(record, Episode):
                self._agents.add(record.agent_id)
                self._mark(record.episode_id, _SEEN)
            elif isinstance(record, Reward):
                if record.value is not None and record.weight and record.episode_id:
                    self._mark(record.episode_id, _REWARDED)
            elif isinstance(record, Decision) and record.propensity is None:
                self._num_without_propensity += 1

    def report(self, format_name: str, num_lines: int, faults: list[LineFault], num_bad: int) -> ImportReport:
        """Returns what was counted, as of a file from which nothing was stored."""
        self._leave_wrappers(None)
        seen = [state for state in self._episodes.values() if state & _SEEN]
        rewarded = sum(1 for state in seen if state & _REWARDED)
        return ImportReport(
            format=format_name,
            num_lines=num_lines,
            num_records=self._counts,
            num_steps=sum(_num_steps(state) for state in self._episodes.values()),
            num_new=0,
            num_bad_lines=num_bad,
            bad_lines=faults,
            num_episodes_with_outcome=rewarded,
            num_episodes_without_reward=len(seen) - rewarded,
            num_decisions_without_propensity=self._num_without_propensity,
            num_model_calls_without_token_ids=self._num_without_token_ids,
        )

    def _count_span(self, span: Span) -> None:
        if span.operation in MODEL_OPERATIONS:
            self._add(span, _MODEL_CALL)
            self._leave_wrappers(_key_of(span))
            self._calls.add(span.span_id)
            self._parents.add(span.parent_id)
            self._num_without_token_ids += "token_ids" not in span.attributes
        elif span.operation == TOOL_OPERATION:
            self._add(span, _TOOL_CALL)

    def _leave_wrappers(self, key: int | None) -> None:
        """Takes model calls around others, one call that two instruments recorded, off the last episode's count."""
        if key != self._last:
            if self._last is not None:
                self._episodes[self._last] -= len(self._calls & self._parents) * _MODEL_CALL
            self._last, self._calls, self._parents = key, set(), set()

    def _add(self, span: Span, unit: int) -> None:
        key = _key_of(span)
        self._episodes[key] = self._episodes.get(key, 0) + unit

    def _mark(self, episode_id: str, flag: int) -> None:
        key = hash(episode_id)
        self._episodes[key] = self._episodes.get(key, 0) | flag


def _key_of(span: Span) -> int:
    return hash(span.episode_id or span.trace_id)


def _num_steps(state: int) -> int:
    return (state // _MODEL_CALL & _COUNT_MASK) or state // _TOOL_CALL
