"""Imports files for the tests of formats, and damages them."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from learnloop.core.errors import FormatError, UsageError
from learnloop.core.records import Episode, Record, Reward, Span, Task
from learnloop.store import Store
from learnloop.traces.conversation.steps import Step, steps_of
from learnloop.traces.importing.exchange import TraceFile, import_file
from learnloop.traces.importing.files import format_of, source_of
from learnloop.traces.importing.formats import FORMATS, Source, TraceFormat
from learnloop.traces.importing.report import ImportReport

WRONG: list[Any] = [None, True, -1, 0.5, 10**30, 1e300, "", "x", [], [None], {}, {"a": [1]}, "9999-12-31T23:59:59.999Z"]
"""What takes the place of each value of a sample in turn."""


class Imported(NamedTuple):
    """What a store holds after files were imported."""

    reports: list[ImportReport]
    episodes: list[Episode]
    spans: dict[str, list[Span]]
    rewards: dict[str, dict[str, Reward]]
    tasks: dict[str, Task]

    @property
    def report(self) -> ImportReport:
        return self.reports[-1]

    @property
    def episode(self) -> Episode:
        (only,) = self.episodes
        return only

    def steps(self, episode: Episode | None = None) -> list[Step]:
        return steps_of(self.spans[(episode or self.episode).episode_id])

    def values(self, episode: Episode | None = None) -> dict[str, float | None]:
        given = self.rewards.get((episode or self.episode).episode_id, {})
        return {name: reward.value for name, reward in given.items()}


def imported(tmp_path: Path, *paths: Path, format_name: str | None = None) -> Imported:
    """Imports files into a new store, each a second time, which must add nothing."""
    database = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
    with Store.open(f"sqlite:///{database}") as store:
        reports = [import_file(store, path, agent_id="agent", format_name=format_name) for path in paths]
        for path in paths:
            assert import_file(store, path, agent_id="agent").num_new == 0
        spans: dict[str, list[Span]] = {}
        for span in store.iterate(Span):
            assert span.episode_id is not None
            spans.setdefault(span.episode_id, []).append(span)
        rewards: dict[str, dict[str, Reward]] = {}
        for reward in store.iterate(Reward):
            assert reward.episode_id is not None
            rewards.setdefault(reward.episode_id, {})[reward.name] = reward
        episodes = sorted(store.iterate(Episode), key=lambda each: (each.task_id or "", each.attempt or 0))
        tasks = {task.task_id: task for task in store.iterate(Task)}
    return Imported(reports, episodes, spans, rewards, tasks)


def written(path: Path, value: Any) -> Path:
    """Writes a JSON document, or JSON Lines where the name says so; gzipped where it ends so."""
    lines = ".jsonl" in path.name
    text = "\n".join(map(json.dumps, value)) + "\n" if lines else json.dumps(value, indent=1)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def read_records(path: Path, format_name: str) -> list[Record]:
    """Returns the records of a file, each of which can be stored."""
    records = list(TraceFile(path, FORMATS[format_name], source_of(path, "agent")).records())
    check_storable(records)
    return records


def check_storable(records: list[Record]) -> None:
    """Fails where a record holds what its fields do not allow, or what is no JSON."""
    for record in records:
        msgspec.json.decode(msgspec.json.encode(record), type=type(record))


def check_survives(path: Path, format_name: str) -> bool:
    """Reads a file that may be wrong: it is read, or refused with an error that says why; anything else fails."""
    with contextlib.suppress(FormatError):  # it may have become unknown
        format_of(path, None)
    try:
        read_records(path, format_name)
    except (FormatError, UsageError):
        return False
    return True


def check_damaged(path: Path, format_name: str, rounds: int = 150) -> None:
    """Cuts a file off, and changes bits of it, at many places."""
    data = path.read_bytes()
    rng = random.Random(len(data))
    for _ in range(rounds):
        path.write_bytes(data[: rng.randrange(len(data))])
        check_survives(path, format_name)
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 3))):
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        check_survives(path, format_name)
    path.write_bytes(data)
    assert check_survives(path, format_name)


def check_wrong_values(path: Path, value: Any, format_name: str) -> None:
    """Puts a wrong value in the place of each value of a sample, as ``check_survives`` does, but writes no file."""
    trace_format, source = FORMATS[format_name], Source("agent", f"folder/{path.name}", path.name)
    num_read = num_tried = 0
    for changed in wrong_values(value):
        reader = trace_format.reader(source)
        for item in _items(trace_format, changed):
            with contextlib.suppress(FormatError):
                num_tried += 1
                check_storable(reader.read(item))
                num_read += 1
        check_storable(reader.finish())
    assert num_tried > num_read > 0


def _items(trace_format: TraceFormat, value: Any) -> list[Any]:
    if trace_format.shape == "lines":
        return [line for line in value if isinstance(line, dict)]
    with contextlib.suppress(FormatError):
        if trace_format.fits(value):
            return list(trace_format.items(value))
    return []


def wrong_values(value: Any) -> Iterator[Any]:
    """Yields ``value`` itself, with one of its parts changed each time."""
    for place in list(_places(value)):
        holder = value
        for key in place[:-1]:
            holder = holder[key]
        kept = holder[place[-1]]
        try:
            for wrong in WRONG:
                holder[place[-1]] = wrong
                yield value
        finally:
            holder[place[-1]] = kept


def _places(value: Any) -> Iterator[list[Any]]:
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield [key]
            for rest in _places(value[key]):
                yield [key, *rest]
