"""Imports files of traces into a store, and exports a store's records."""

from __future__ import annotations

import gzip
import itertools
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import msgspec
from sqlalchemy import Connection, func, select

from learnloop.core.errors import FormatError, LearnloopError, NotFoundError, UsageError
from learnloop.core.records import MAX_REWARD, Agent, Decision, Episode, Record, Reward, Span, Task
from learnloop.store import Store, insert_records
from learnloop.store.mapping import fields_of, key_column
from learnloop.traces.formats import Line, TraceFormat, by_name, native, recognise
from learnloop.traces.line_order import are_in_order, in_order

_BATCH = 2_000
_MAX_FAULTS = 100
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_LINE_BYTES = 64 * 1024 * 1024

Progress = Callable[[int], None]
"""Called with the number of bytes read since the last call."""


class LineFault(msgspec.Struct, frozen=True, kw_only=True):
    """A line that could not be read."""

    line: int
    """Counted from 1."""
    reason: str


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an import found."""

    format: str
    num_lines: int
    num_records: Mapping[str, int]
    """Records in the file, by type."""
    num_new: int
    """Records that the store did not have yet; 0 when a file is imported again."""
    num_bad_lines: int
    bad_lines: list[LineFault]
    """The first of them."""
    num_episodes_without_reward: int
    """Their outcome is unknown; nothing is made up."""
    num_decisions_without_propensity: int
    """Off-policy evaluation cannot use them."""


def import_file(
    store: Store,
    path: Path,
    *,
    agent_id: str,
    format_name: str | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Writes the records of a file of traces to ``store`` and returns what was found.

    The file may be gzipped. A line that cannot be read is reported and left out; with ``strict`` the whole file is
    checked first and the first bad line stops the import before anything is written. Importing a file again, or one
    that continues it, adds only what is new.

    Args:
        store: where the records go.
        path: the file, JSON Lines.
        agent_id: the agent that the runs are of where the format does not say.
        format_name: one of ``FORMATS``; recognised by the first readable line where None.
        strict: stop at the first bad line.
        progress: told of the bytes read.

    Raises:
        NotFoundError: there is no such file.
        FormatError: the format is unknown, no line can be read, a line is bad and ``strict`` is set, or the file is
            damaged; the message says what was imported before that.
        UsageError: the file cannot be read.
    """
    trace_format = format_of(path, format_name)
    if strict:
        for _ in TraceFile(path, trace_format, agent_id, strict=True).records():
            pass
    task = TraceFile(path, trace_format, agent_id, strict=strict, progress=progress)
    num_new = 0
    try:
        for batch in _batches(task.records()):
            num_new += _write_new(store, batch)
    except LearnloopError as error:
        if num_new:
            error.args = (f"{error}; {num_new:,} new records were imported before, importing again adds the others",)
        raise
    return task.report(num_new)


def export_records(store: Store, target: IO[bytes], *, agent_id: str | None = None) -> int:
    """Writes the store's agents, tasks, episodes, spans, decisions and rewards as JSON Lines; returns their number.

    With ``agent_id`` only what belongs to that agent's episodes and decisions.
    """
    target.write(native.header() + b"\n")
    count = 0
    for record in _exported(store, agent_id):
        target.write(native.encode(record) + b"\n")
        count += 1
    return count


def _exported(store: Store, agent_id: str | None) -> Iterator[Record]:
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


def format_of(path: Path, format_name: str | None) -> TraceFormat:
    """Returns the format called ``format_name``; where None, the one that the first readable line belongs to.

    Raises:
        NotFoundError: there is no such file.
        FormatError: there is no such format, or the file is of none.
        UsageError: the file cannot be read.
    """
    if not path.is_file():
        raise NotFoundError(f"no file {str(path)!r}; name a JSON Lines file of traces")
    return by_name(format_name) if format_name else _recognise(path)


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
        agent_id: str,
        *,
        strict: bool = False,
        by_time: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Reads nothing yet.

        Args:
            path: the file.
            trace_format: what it is written in.
            agent_id: the agent that the runs are of where the format does not say.
            strict: raise at the first bad line instead of counting it.
            by_time: take lines in the order of their times where the format's episodes depend on the order; a file
                that is in this order already is not held in memory.
            progress: told of the bytes read.
        """
        self._path = path
        self._time_field = trace_format.time_field if by_time else None
        self._format = trace_format
        self._reader = trace_format.reader(agent_id)
        self._strict = strict
        self._progress = progress
        self._num_lines = 0
        self._num_good = 0
        self._num_bad = 0
        self._faults: list[LineFault] = []
        self._counts: dict[str, int] = {}
        self._unrewarded: set[str] = set()
        self._rewarded: set[str] = set()
        self._num_without_propensity = 0

    def records(self) -> Iterator[Record]:
        """Yields the records of the file's good lines."""
        for number, raw in self._numbered_lines():
            self._num_lines = max(number, self._num_lines)
            if self._progress:
                self._progress(len(raw))
            if raw.strip():
                yield from self._counted(self._read(number, raw))
        if self._num_bad and not self._num_good:
            first = self._faults[0]
            raise FormatError(
                f"{self._path.name}: no line can be read as {self._format.name}, nothing was imported; "
                f"line {first.line}: {first.reason}"
            )
        yield from self._counted(self._reader.finish())

    def _numbered_lines(self) -> Iterator[tuple[int, bytes]]:
        field = self._time_field
        if field is not None:
            with _opened(self._path) as lines:
                if are_in_order(_bounded_lines(lines), field):
                    field = None
        with _opened(self._path) as lines:
            numbered = enumerate(_bounded_lines(lines), start=1)
            yield from numbered if field is None else in_order(numbered, field)

    def report(self, num_new: int = 0) -> ImportReport:
        """Returns what this pass found."""
        return ImportReport(
            format=self._format.name,
            num_lines=self._num_lines,
            num_records=self._counts,
            num_new=num_new,
            num_bad_lines=self._num_bad,
            bad_lines=self._faults,
            num_episodes_without_reward=len(self._unrewarded - self._rewarded),
            num_decisions_without_propensity=self._num_without_propensity,
        )

    def _read(self, number: int, raw: bytes) -> list[Record]:
        try:
            records = self._reader.read(_decode(raw))
            _check_rewards(records)
            self._num_good += 1
            return records
        except FormatError as error:
            if self._strict:
                raise FormatError(f"{self._path.name}, line {number}: {error}; nothing was imported") from error
            self._num_bad += 1
            if len(self._faults) < _MAX_FAULTS:
                self._faults.append(LineFault(line=number, reason=str(error)))
            return []

    def _counted(self, records: list[Record]) -> list[Record]:
        for record in records:
            name = type(record).__name__.lower()
            self._counts[name] = self._counts.get(name, 0) + 1
            if isinstance(record, Episode):
                self._unrewarded.add(record.episode_id)
            elif isinstance(record, Reward) and record.value is not None and record.weight and record.episode_id:
                self._rewarded.add(record.episode_id)
            elif isinstance(record, Decision) and record.propensity is None:
                self._num_without_propensity += 1
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


def _write_new(store: Store, batch: Sequence[Record]) -> int:
    """Writes a batch durably and returns how many of its records the store did not have."""
    keys: dict[type[Record], set[str]] = {}
    for record in batch:
        keys.setdefault(type(record), set()).add(getattr(record, fields_of(type(record))[0]))

    def write(connection: Connection) -> int:
        present = 0
        for kind, wanted in keys.items():
            column = key_column(kind)
            query = select(func.count()).select_from(column.table).where(column.in_(wanted))
            present += connection.execute(query).scalar_one()
        insert_records(connection, batch)
        return sum(map(len, keys.values())) - present

    return store.run(write)


def _recognise(path: Path) -> TraceFormat:
    """Returns the format of the first line that is a JSON object; an empty file has none."""
    with _opened(path) as lines:
        for raw in itertools.islice(_bounded_lines(lines), 100):
            if raw.strip():
                try:
                    line = _decode(raw)
                except FormatError:
                    continue  # reported with its number when the file is read
                return recognise(line)
    raise FormatError(f"{path.name} holds no JSON object in its first 100 lines; is it JSON Lines?")


def _decode(raw: bytes) -> Line:
    try:
        line = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not JSON ({error})") from error
    if not isinstance(line, dict):
        raise FormatError(f"a JSON {type(line).__name__}, not an object")
    return line


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file, through gzip where its first bytes say so."""
    try:
        with path.open("rb") as probe:
            zipped = probe.read(2) == b"\x1f\x8b"
        with cast(IO[bytes], gzip.open(path)) if zipped else path.open("rb") as lines:
            yield lines
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(f"{path.name} is a damaged gzip file ({error})") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error})") from error


def _bounded_lines(lines: IO[bytes]) -> Iterator[bytes]:
    is_first = True
    while raw := lines.readline(MAX_LINE_BYTES + 1):
        if is_first:
            raw, is_first = raw.removeprefix(_BYTE_ORDER_MARK), False
        if len(raw) > MAX_LINE_BYTES:
            raise UsageError(f"a line is longer than {MAX_LINE_BYTES:,} bytes; is this JSON Lines?")
        yield raw


def _batches(records: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(itertools.islice(records, _BATCH)):
        yield batch
