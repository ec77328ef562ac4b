"""Lines of a file in the order of their times: programs that write side by side, and merged files, shuffle them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from learnloop.core.errors import FormatError
from learnloop.traces.importing.formats.base import parse_time

_EARLIEST = datetime.min.replace(tzinfo=UTC)


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
    try:
        line = msgspec.json.decode(raw)
        return parse_time(line[field]) if isinstance(line, dict) and isinstance(line.get(field), str) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, FormatError):
        return None
