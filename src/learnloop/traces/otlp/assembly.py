"""Assembles spans that come from anywhere, in any order, into episodes.

One thread writes what was submitted, many requests in one transaction, and tells who waits once it is on the disk. A
trace is closed when its root has come and nothing more did for a moment, or when nothing came for long; a span that
comes later opens it again. All that must not be lost is in the store: what is open is read from there at the start, and
whether a trace is really quiet is asked there, so several processes can receive one trace.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Self

import msgspec

from learnloop.core.clock import now
from learnloop.core.errors import ConflictError, LearnloopError, UnreachableError, UsageError
from learnloop.core.records import Episode, EpisodeStatus, Span
from learnloop.store import Connection, Store, insert_records
from learnloop.store.queries.records import all_records
from learnloop.store.queries.spans import span_counts
from learnloop.traces.otlp.mapping import Mapped
from learnloop.traces.otlp.summary import SOURCE, TraceSummary, summary_of
from learnloop.traces.otlp.writing import (
    Written,
    find_responses,
    lone_responses,
    write_mapped,
)

_MAX_BATCH = 8_192
"""Items that one transaction takes, unless one request has more."""
_MAX_CLOSED = 256
"""Traces that one transaction closes."""
_log = logging.getLogger("learnloop.traces.otlp")


class AssemblyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a trace is over, and how much may wait."""

    grace_seconds: float = 2.0
    """How long a trace must be quiet after its root came."""
    idle_seconds: float = 300.0
    """How long a trace without a root must be quiet until its agent counts as cut off."""
    default_agent: str = "agent"
    """Whose the runs are where neither a span nor its service says."""
    max_waiting: int = 100_000
    """Spans and log records that may wait to be written; further ones are refused until some are."""


class AssemblyCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What an assembler did since it was started."""

    num_added: int
    """Spans that were new."""
    num_repeated: int
    """Spans that were there already."""
    num_closed: int
    """Episodes that ended."""
    num_open: int
    """Traces that are not closed yet."""
    num_waiting: int
    """Items that wait to be written."""
    last_error: str | None
    """Why something could not be written, the last time; None: all could."""


@dataclass(slots=True)
class _Open:
    """A trace that is not closed yet."""

    summary: TraceSummary
    is_whole: bool
    """Whether the summary has all that this process knows to be in the store."""
    due: float = 0.0
    """When it is looked at, on the monotonic clock."""


@dataclass(slots=True)
class _Entry:
    """What one request brought."""

    mapped: Sequence[Mapped]
    future: Future[None] = field(default_factory=Future)


class Assembler:
    """Receives mapped spans and logs; a context manager that starts and closes it.

    Args:
        store: where everything goes; it stays its owner's.
        options: when a trace is over.
    """

    def __init__(self, store: Store, options: AssemblyOptions | None = None) -> None:
        self.options = options or AssemblyOptions()
        self._store = store
        self._open: dict[str, _Open] = {}
        self._entries: list[_Entry] = []
        self._num_waiting = 0
        self._condition = threading.Condition()
        self._closed = False
        self._num_added = self._num_repeated = self._num_closed = 0
        self._last_error: str | None = None
        self._next_scan = self._next_look = 0.0
        self._tick = min(1.0, max(0.02, self.options.grace_seconds / 4))
        self._thread = threading.Thread(target=self._run, name="learnloop-otlp", daemon=True)

    def start(self) -> None:
        """Begins to write, and takes up the traces that are open in the store."""
        self._thread.start()

    def submit(self, mapped: Sequence[Mapped]) -> Future[None]:
        """Takes what a request brought; the future is set when it is on the disk.

        Raises:
            UnreachableError: too much waits already; send it again later.
            ConflictError: the assembler is closed.
        """
        entry = _Entry(mapped)
        with self._condition:
            if self._closed:
                raise ConflictError("the receiver is closed; send it again when it runs")
            if self._num_waiting and self._num_waiting + len(mapped) > self.options.max_waiting:
                raise UnreachableError(
                    f"{self._num_waiting:,} items wait to be written already, {self.options.max_waiting:,} may; "
                    "send it again later"
                )
            self._entries.append(entry)
            self._num_waiting += len(mapped)
            self._condition.notify()
        return entry.future

    def counters(self) -> AssemblyCounters:
        """Returns what was done so far."""
        with self._condition:
            return AssemblyCounters(
                num_added=self._num_added,
                num_repeated=self._num_repeated,
                num_closed=self._num_closed,
                num_open=len(self._open),
                num_waiting=self._num_waiting,
                last_error=self._last_error,
            )

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Writes what waits and ends; open traces stay open in the store and are taken up by the next start."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        with self._condition:
            left, self._entries = self._entries, []
        for entry in left:
            entry.future.set_exception(ConflictError("the receiver was closed; send it again"))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while True:
            entries = self._take()
            if entries:
                self._write(entries)
            elif self._closed:
                return
            if not self._closed:
                self._look_after()

    def _take(self) -> list[_Entry]:
        """Returns what one transaction writes; waits for it no longer than until traces are to be looked after."""
        with self._condition:
            if not self._entries and not self._closed:
                self._condition.wait(self._tick if self._open else 1.0)
            taken: list[_Entry] = []
            size = 0
            while self._entries and (not taken or size + len(self._entries[0].mapped) <= _MAX_BATCH):
                taken.append(self._entries.pop(0))
                size += len(taken[-1].mapped)
            return taken

    def _write(self, entries: Sequence[_Entry]) -> None:
        """Writes entries in one transaction; where one of them is refused, each in its own."""
        try:
            self._write_together([each for entry in entries for each in entry.mapped])
        except UsageError as error:
            if len(entries) > 1:
                for entry in entries:
                    self._write([entry])
                return
            self._settle(entries, error)
        except Exception as error:  # noqa: BLE001 - goes to those who wait for it; the thread must live on
            self._settle(entries, error)
        else:
            self._settle(entries, None)

    def _write_together(self, mapped: list[Mapped]) -> None:
        names = lone_responses(mapped)
        responses = self._store.read(find_responses, names) if names else {}
        agent = self.options.default_agent
        written = self._store.run(write_mapped, mapped, responses, agent, now())
        self._note(written, len(mapped))

    def _settle(self, entries: Sequence[_Entry], error: Exception | None) -> None:
        with self._condition:
            self._num_waiting -= sum(len(entry.mapped) for entry in entries)
            if error is not None:
                self._last_error = str(error)
                _log.warning("what was received could not be written: %s", error, exc_info=_exc_info(error))
        for entry in entries:
            if entry.future.set_running_or_notify_cancel():
                if error is None:
                    entry.future.set_result(None)
                else:
                    entry.future.set_exception(error)

    def _note(self, written: Written, num_items: int) -> None:
        """Keeps what is new of the open traces."""
        moment = time.monotonic()
        for trace_id, summary in written.new_traces.items():
            self._open[trace_id] = _Open(summary, is_whole=True)
        for span in written.added:
            if span.trace_id not in written.new_traces:
                self._opened(span.trace_id).summary.add(span)
        for span in written.changed:
            self._opened(span.trace_id).is_whole = False
        for trace_id in {span.trace_id for span in (*written.added, *written.changed)}:
            each = self._open[trace_id]
            each.due = moment + self._quiet_seconds(each)
        with self._condition:
            self._num_added += len(written.added)
            self._num_repeated += num_items - len(written.added)

    def _opened(self, trace_id: str) -> _Open:
        """Returns an open trace; of one that was closed, or that others opened, there is more in the store."""
        known = self._open.get(trace_id)
        if known is None:
            known = self._open[trace_id] = _Open(self._empty(trace_id), is_whole=False)
        return known

    def _empty(self, trace_id: str) -> TraceSummary:
        return TraceSummary(trace_id, self.options.default_agent)

    def _quiet_seconds(self, trace: _Open) -> float:
        """Returns how long a trace must be quiet until it is looked at."""
        waits = trace.is_whole and not trace.summary.has_root
        return self.options.idle_seconds if waits else self.options.grace_seconds

    def _look_after(self) -> None:
        """Closes the traces that are over, and now and then takes up those that another process left open."""
        moment = time.monotonic()
        if moment < self._next_look:
            return
        self._next_look = moment + self._tick
        try:
            if moment >= self._next_scan:
                self._next_scan = moment + self.options.idle_seconds
                self._take_up(moment)
            due = [trace_id for trace_id, each in self._open.items() if each.due <= moment][:_MAX_CLOSED]
            if due:
                self._close_quiet(due, moment)
        except Exception as error:  # noqa: BLE001 - the store is away: it is tried again, and the thread must live on
            _log.warning(
                "open traces could not be looked after and will be again: %s", error, exc_info=_exc_info(error)
            )
            with self._condition:
                self._last_error = str(error)

    def _take_up(self, moment: float) -> None:
        running = {"source": SOURCE, "status": EpisodeStatus.RUNNING.value}
        for episode in self._store.iterate(Episode, where=running):
            if episode.trace_id not in self._open:
                due = moment + self.options.grace_seconds
                self._open[episode.trace_id] = _Open(self._empty(episode.trace_id), is_whole=False, due=due)

    def _close_quiet(self, trace_ids: Sequence[str], moment: float) -> None:
        """Ends the episodes of traces of which the store has no more spans than we know; reads again the others."""
        counts = self._store.read(span_counts, trace_ids)
        stale = [
            each
            for each in trace_ids
            if not self._open[each].is_whole or counts.get(each, 0) != self._open[each].summary.num_spans
        ]
        if stale:
            self._read_again(stale, moment)
        quiet = [each for each in trace_ids if each not in set(stale)]
        if not quiet:
            return
        why_cut = (
            f"no root span came and the trace was quiet for {self.options.idle_seconds:g} s: the agent was cut off"
        )
        ended = [self._open[each].summary.ended(why_cut, now()) for each in quiet]
        known = {each: self._open[each].summary.num_spans for each in quiet}

        def write(connection: Connection) -> list[str]:
            counted = span_counts(connection, quiet)
            still = [each for each in ended if counted.get(each.trace_id) == known[each.trace_id]]
            insert_records(connection, still)
            return [each.trace_id for each in still]

        for trace_id in self._store.run(write):
            del self._open[trace_id]
            self._num_closed += 1

    def _read_again(self, trace_ids: Sequence[str], moment: float) -> None:
        """Takes from the store what it has of traces to which others, or an earlier process, added."""
        spans: dict[str, list[Span]] = {trace_id: [] for trace_id in trace_ids}
        for span in self._store.read(all_records, Span, {"trace_id": list(trace_ids)}):
            spans[span.trace_id].append(span)
        for trace_id, found in spans.items():
            summary = summary_of(trace_id, found, self.options.default_agent)
            if not found:  # deleted meanwhile
                del self._open[trace_id]
                continue
            trace = self._open[trace_id] = _Open(summary, is_whole=True)
            trace.due = moment + self._quiet_seconds(trace)


def _exc_info(error: Exception) -> Exception | None:
    """Returns what the log shows of an error: all of one that nobody foresaw."""
    return None if isinstance(error, LearnloopError) else error
