"""Imports files of traces into a store, and exports a store's records."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from learnloop.core.errors import FormatError, LearnloopError
from learnloop.core.records import MAX_REWARD, Agent, Decision, Episode, Record, Reward, Span, Task
from learnloop.store import Store, insert_new
from learnloop.traces.datasets.groups import count_groups
from learnloop.traces.importing.files import Progress, decode_line, format_of, numbered_items, source_of
from learnloop.traces.importing.formats import Source, TraceFormat, native
from learnloop.traces.importing.reader import PartlyReadError
from learnloop.traces.importing.report import ImportReport, LineFault, Tally

_BATCH = 2_000
_MAX_FAULTS = 100


def import_file(
    store: Store,
    path: Path,
    *,
    agent_id: str,
    format_name: str | None = None,
    source_name: str | None = None,
    strict: bool = False,
    progress: Progress | None = None,
    agents: set[str] | None = None,
) -> ImportReport:
    """Writes the records of a file of traces to ``store`` and returns what was found.

    The file may be gzipped. A line that cannot be read is reported and left out; with ``strict`` the whole file is
    checked first and the first bad line stops the import before anything is written. Importing a file again, or one
    that continues it, adds only what is new.

    Args:
        store: where the records go.
        path: the file.
        agent_id: the agent that the runs are of where the format does not say.
        format_name: one of ``FORMATS``; recognised by what the file holds where None.
        source_name: what the file is known by where its runs carry no ids of their own; its folder's and its own name
            where None. The same run from two sources is two attempts.
        strict: stop at the first bad line.
        progress: told of the bytes read.
        agents: takes the agents of the file, for whoever counts the groups of several files at the end; None: the
            report has those of this one.

    Raises:
        NotFoundError: there is no such file.
        FormatError: the format is unknown, no line can be read, a line is bad and ``strict`` is set, or the file is
            damaged; the message says what was imported before that.
        UsageError: the file cannot be read.
    """
    trace_format = format_of(path, format_name)
    source = source_of(path, agent_id, source_name)
    if strict:
        for _ in TraceFile(path, trace_format, source, strict=True).records():
            pass
    task = TraceFile(path, trace_format, source, strict=strict, progress=progress)
    num_new = 0
    try:
        for batch in _batches(task.records()):
            num_new += store.run(insert_new, batch, trace_format.place)
    except LearnloopError as error:
        if num_new:
            error.args = (f"{error}; {num_new:,} new records were imported before, importing again adds the others",)
        raise
    groups = count_groups(store, task.agents) if agents is None else None
    if agents is not None:
        agents.update(task.agents)
    return msgspec.structs.replace(task.report(), num_new=num_new, groups=groups)


def export_records(store: Store, target: IO[bytes], *, agent_id: str | None = None) -> int:
    """Writes the store's agents, tasks, episodes, spans, decisions and rewards as JSON Lines; returns their number.

    With ``agent_id`` only what belongs to that agent's episodes and decisions.
    """
    target.write(native.header() + b"\n")
    count = 0
    for record in _records_to_export(store, agent_id):
        target.write(native.encode(record) + b"\n")
        count += 1
    return count


def _records_to_export(store: Store, agent_id: str | None) -> Iterator[Record]:
    of_agent = {"agent_id": agent_id} if agent_id else {}
    yield from store.iterate(Agent, where=of_agent)
    episodes: set[str] = set()
    tasks: set[str] = set()
    decisions: set[str] = set()
    if agent_id:
        for episode in store.iterate(Episode, where=of_agent):
            episodes.add(episode.episode_id)
            tasks.update([episode.task_id] if episode.task_id else [])
    yield from (each for each in store.iterate(Task) if not agent_id or each.task_id in tasks)
    yield from store.iterate(Episode, where=of_agent)
    yield from (each for each in store.iterate(Span) if not agent_id or each.episode_id in episodes)
    for decision in store.iterate(Decision, where=of_agent):
        decisions.add(decision.decision_id)
        yield decision
    for reward in _rewards_in_order(store):
        if not agent_id or reward.episode_id in episodes or reward.decision_id in decisions:
            yield reward


def _rewards_in_order(store: Store) -> Iterator[Reward]:
    """Yields all rewards in the order in which they came: the last of a part counts, and an import keeps it."""
    after = 0
    while page := store.rewards_after(after):
        yield from (reward for _, reward in page)
        after = page[-1][0]


class TraceFile:
    """One pass over a file of traces, which need not be written to a store."""

    def __init__(
        self,
        path: Path,
        trace_format: TraceFormat,
        source: Source,
        *,
        strict: bool = False,
        by_time: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Reads nothing yet.

        Args:
            path: the file.
            trace_format: what it is written in.
            source: how it is known, and whose the runs are where it does not say.
            strict: raise at the first bad line instead of counting it.
            by_time: as for ``numbered_items``.
            progress: told of the bytes read.
        """
        self._path = path
        self._format = trace_format
        self._reader = trace_format.reader(source)
        self._strict = strict
        self._by_time = by_time
        self._progress = progress
        self._num_lines = 0
        self._num_good = 0
        self._num_bad = 0
        self._faults: list[LineFault] = []
        self._tally = Tally()

    @property
    def agents(self) -> set[str]:
        """The agents whose episodes were read so far."""
        return self._tally.agents

    def records(self) -> Iterator[Record]:
        """Yields the records of the file's good items."""
        items = numbered_items(self._path, self._format, by_time=self._by_time, progress=self._progress)
        for number, item in items:
            self._num_lines = max(number, self._num_lines)
            if item is not None or self._format.shape != "lines":  # an empty line is nothing, a null in a list is wrong
                yield from self._count(self._read(number, item))
        if self._num_bad and not self._num_good:
            first = self._faults[0]
            raise FormatError(
                f"{self._path.name}: no line can be read as {self._format.name}, nothing was imported; "
                f"line {first.line}: {first.reason}"
            )
        yield from self._count(self._reader.finish())

    def report(self) -> ImportReport:
        """Returns what this pass found."""
        return self._tally.report(self._format.name, self._num_lines, self._faults, self._num_bad)

    def _read(self, number: int, item: Any) -> list[Record]:
        try:
            records = self._reader.read(decode_line(item) if self._format.shape == "lines" else item)
            _check_rewards(records)
            self._num_good += 1
            return records
        except FormatError as error:
            if self._strict:
                raise FormatError(f"{self._path.name}, line {number}: {error}; nothing was imported") from error
            self._num_bad += 1
            if len(self._faults) < _MAX_FAULTS:
                self._faults.append(LineFault(line=number, reason=str(error)))
            if not isinstance(error, PartlyReadError):
                return []
            self._num_good += 1
            return error.records

    def _count(self, records: list[Record]) -> list[Record]:
        self._tally.count(records)
        return records


def _check_rewards(records: Iterable[Record]) -> None:
    """Refuses rewards that could not be learned from, as recording them does."""
    for reward in records:
        if isinstance(reward, Reward):
            learned = 0.0 if reward.value is None else reward.value * reward.weight
            if not (math.isfinite(reward.weight) and abs(learned) <= MAX_REWARD):
                raise FormatError(
                    f"reward {reward.name!r} is {reward.value} x {reward.weight}; allowed are products up to "
                    f"{MAX_REWARD:g}"
                )


def _batches(records: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(itertools.islice(records, _BATCH)):
        yield batch
