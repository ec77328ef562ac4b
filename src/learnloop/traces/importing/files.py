"""Opens files of traces: through gzip, by their shape, with bounds, telling damage from what is merely not theirs."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, cast

from learnloop.core.decoding import json_or
from learnloop.core.errors import FormatError, NotFoundError, UsageError, one_of
from learnloop.traces.importing.formats import Line, TraceFormat, by_name, recognise, what_is_looked_for
from learnloop.traces.importing.reader import Source, as_one, decode_json, parse_time

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
"""Of a file that is one JSON value; it is held in memory. Lines may be any number."""
_HEAD_BYTES = 65_536
_HEAD_LINES = 100
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Progress = Callable[[int], None]
"""Called with the number of bytes read since the last call."""
_EARLIEST = datetime.min.replace(tzinfo=UTC)


def source_of(path: Path, agent_id: str, name: str | None = None) -> Source:
    """Returns how ``path`` is known: by ``name``, else by its name and its folder's.

    Two runs of one benchmark often write files of the same name, and now and then of the same content, in two folders.
    """
    full = path.absolute()
    modified = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return Source(agent_id, name or f"{full.parent.name}/{full.name}", full.name, modified)


def format_of(path: Path, format_name: str | None) -> TraceFormat:
    """Returns the format called ``format_name``; where None, the one that the file's beginning belongs to.

    Raises:
        NotFoundError: there is no such file.
        FormatError: there is no such format, or the file is of none.
        UsageError: the file cannot be read.
    """
    if not path.is_file():
        raise NotFoundError(f"no file {str(path)!r}; name a file of traces")
    return by_name(format_name) if format_name else _recognise(path)


def numbered_items(
    path: Path, trace_format: TraceFormat, *, by_time: bool = False, progress: Progress | None = None
) -> Iterator[tuple[int, Any]]:
    """Yields each item of a file with its number, counted from 1: the bytes of a line, None for an empty one.

    Args:
        path: the file.
        trace_format: what it is written in.
        by_time: give lines in the order of their times where the format's episodes depend on the order; a file that
            is in this order already is not held in memory.
        progress: told of the bytes read.

    Raises:
        FormatError: the file is damaged as a whole.
        UsageError: it cannot be read, or is too large.
    """
    told = progress or (lambda number: None)
    if trace_format.shape == "lines":
        for number, raw in _numbered_lines(path, trace_format.time_field if by_time else None):
            told(len(raw))
            yield number, raw if raw.strip() else None
        return
    if trace_format.shape == "document":
        yield from enumerate(trace_format.items(_document_of(path, trace_format)), start=1)
    elif trace_format.items is as_one:
        raise FormatError(f"the format {trace_format.name} does not say how its files are read; give it items")
    else:
        with opened(path) as file:
            yield from enumerate(trace_format.items(file), start=1)
    told(path.stat().st_size)


def decode_line(raw: bytes) -> Line:
    """Returns the JSON object of a line.

    Raises:
        FormatError: it holds none.
    """
    line = decode_json(raw)
    if not isinstance(line, dict):
        raise FormatError(f"a JSON {type(line).__name__}, not an object")
    return line


def _recognise(path: Path) -> TraceFormat:
    with opened(path) as file:
        head = file.read(_HEAD_BYTES)
    found = recognise(head, "archive") or _recognise_lines(path) or _recognise_document(path, head)
    if found is not None:
        return found
    raise FormatError(f"{path.name} {_what_it_is(path)} and fits no known format ({what_is_looked_for()})")


def _recognise_lines(path: Path) -> TraceFormat | None:
    """Returns the format of the first line that is a JSON object; None: there is no such line, or no such format."""
    line = _first_object(path)
    return None if line is None else recognise(line, "lines")


def _first_object(path: Path) -> Line | None:
    with opened(path) as lines:
        for raw in itertools.islice(_bounded_lines(lines, shorten=True), _HEAD_LINES):
            if raw.strip():
                try:
                    return decode_line(raw)
                except FormatError:
                    continue  # reported with its number when the file is read
    return None


def _recognise_document(path: Path, head: bytes) -> TraceFormat | None:
    if head.removeprefix(_BYTE_ORDER_MARK).lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        value = _document(path)
    except FormatError:
        return None
    return recognise(value, "document")


def _what_it_is(path: Path) -> str:
    try:
        value: Any = _first_object(path) or _document(path)
    except FormatError:
        return f"holds no JSON object in its first {_HEAD_LINES} lines and is no JSON document"
    return f"has the fields {one_of(sorted(value))}" if isinstance(value, dict) else f"is a JSON {type(value).__name__}"


def _document(path: Path) -> Any:
    with opened(path) as file:
        raw = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(raw) > MAX_DOCUMENT_BYTES:
        size = f"{MAX_DOCUMENT_BYTES:,} bytes"
        raise FormatError(f"{path.name} is one JSON value of more than {size}; split it, or use JSON Lines")
    return decode_json(raw.removeprefix(_BYTE_ORDER_MARK))


def _document_of(path: Path, trace_format: TraceFormat) -> Any:
    try:
        value = _document(path)
    except FormatError as error:
        raise FormatError(f"{path.name}: {error}; is it cut off?") from error
    if not trace_format.fits(value):
        raise FormatError(f"{path.name} is no {trace_format.name} file, which has {trace_format.looks_for}")
    return value


def _numbered_lines(path: Path, time_field: str | None) -> Iterator[tuple[int, bytes]]:
    field = time_field
    if field is not None:
        with opened(path) as lines:
            if are_in_order(_bounded_lines(lines), field):
                field = None
    with opened(path) as lines:
        numbered = enumerate(_bounded_lines(lines), start=1)
        yield from numbered if field is None else in_order(numbered, field)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file, through gzip where its first bytes say so.

    Raises:
        FormatError: it is a damaged gzip file.
        UsageError: it cannot be read.
    """
    try:
        with path.open("rb") as probe:
            zipped = probe.read(2) == b"\x1f\x8b"
        with cast(IO[bytes], gzip.open(path)) if zipped else path.open("rb") as lines:
            yield lines
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(f"{path.name} is a damaged gzip file ({error})") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error})") from error


def _bounded_lines(lines: IO[bytes], *, shorten: bool = False) -> Iterator[bytes]:
    is_first = True
    while raw := lines.readline(MAX_LINE_BYTES + 1):
        if is_first:
            raw, is_first = raw.removeprefix(_BYTE_ORDER_MARK), False
        if len(raw) > MAX_LINE_BYTES:
            if shorten:
                return
            raise UsageError(f"a line is longer than {MAX_LINE_BYTES:,} bytes; is this JSON Lines?")
        yield raw


def are_in_order(lines: Iterable[bytes], field: str) -> bool:
    """Returns whether no line is earlier than one before it; lines without a time can be anywhere."""
    latest = _EARLIEST
    for raw in lines:
        moment = _moment(raw, field)
        if moment is not None:
            if moment < latest:
                return False
            latest = moment
    return True


def in_order(numbered: Iterable[tuple[int, bytes]], field: str) -> list[tuple[int, bytes]]:
    """Returns the lines by their times; those of one moment, and those without a time, stay as they follow."""
    latest = _EARLIEST
    placed: list[tuple[datetime, int, bytes]] = []
    for number, raw in numbered:
        latest = _moment(raw, field) or latest
        placed.append((latest, number, raw))
    placed.sort(key=lambda line: line[:2])
    return [(number, raw) for _, number, raw in placed]


def _moment(raw: bytes, field: str) -> datetime | None:
    """Returns when ``raw`` says that it was written; None for a line that the reader will refuse."""
    line = json_or(raw, None)
    try:
        return parse_time(line[field]) if isinstance(line, dict) and isinstance(line.get(field), str) else None
    except FormatError:
        return None
