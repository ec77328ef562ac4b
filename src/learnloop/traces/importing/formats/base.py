"""What a trace format is, and the helpers that the formats share."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from learnloop.core.decoding import NOT_JSON
from learnloop.core.errors import FormatError
from learnloop.core.records import Record

if TYPE_CHECKING:
    from learnloop.store import Connection

Line = Mapping[str, Any]
T = TypeVar("T")
Words = Annotated[str, msgspec.Meta(min_length=1)]
"""Text that must say something."""
Milliseconds = Annotated[int, msgspec.Meta(ge=0)]
"""How long something took."""


class Source(NamedTuple):
    """The file that is read."""

    agent_id: str
    """The agent that the runs are of where the file does not say."""
    name: str = ""
    """What tells it from other files of its format: ids of runs that carry none of their own are made with it."""
    file_name: str = ""
    """The last part of its path."""
    modified_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """When it was last written: no run in it ended later. It stands in where a format carries no times."""


class PartlyReadError(FormatError):
    """A part of an item cannot be read as what it claims to be; ``records`` are those of the other parts."""

    def __init__(self, message: str, records: list[Record]) -> None:
        super().__init__(message)
        self.records = records


class ItemReader(Protocol):
    """Reads the items of one file, in order."""

    def read(self, item: Any) -> list[Record]:
        """Returns the records that ``item`` makes.

        Raises:
            PartlyReadError: a part of the item is not what the format says; it brings what was made of the rest.
            FormatError: the item is not what the format says; nothing was made of it.
        """
        ...

    def finish(self) -> list[Record]:
        """Returns the records that only the end of the file makes."""
        ...


Shape = Literal["lines", "document", "archive"]


def listed(value: Any) -> Sequence[Any]:
    """Returns the items of a document that is an item, or a list of them."""
    return value if isinstance(value, list) else [value]


class TraceFormat(NamedTuple):
    """A format: how to recognise it and how to read it.

    A file of ``lines`` is JSON Lines and its items are the lines' objects. A ``document`` is one JSON value. An
    ``archive`` is anything else.
    """

    name: str
    looks_for: str
    """What ``fits`` looks at, for messages."""
    fits: Callable[[Any], bool]
    """Is asked about the first object of lines, the whole value of a document, the first 64 KiB of an archive."""
    reader: Callable[[Source], ItemReader]
    time_field: str | None = None
    """The field with the time of a line, where the order of lines says which of them belong together."""
    shape: Shape = "lines"
    document_items: Callable[[Any], Iterable[Any]] | None = None
    """Gives the items of a document's value; the value itself is the one item where None."""
    archive_items: Callable[[IO[bytes]], Iterable[Any]] | None = None
    """Gives the items of an archive, which can be read from any place; it raises ``FormatError`` for a damaged one."""
    place: Callable[[Connection, Sequence[Record]], Sequence[Record]] | None = None
    """Says, in the transaction that writes them, what records are for that name others by an id of the store's."""

    def as_document(self, name: str, items: Callable[[Any], Sequence[Any]] = listed) -> TraceFormat:
        """Returns the format ``name`` of a document whose ``items`` are lines of this one, as its first one shows."""

        def fits(value: Any) -> bool:
            return any(map(self.fits, items(value)[:1]))

        return self._replace(name=name, fits=fits, shape="document", document_items=items)


class ContentIds:
    """Ids made of content: the same lines give the same ids, and repeated lines ids of their own.

    Attributes:
        format_name: whose ids; those of two formats never meet.
    """

    def __init__(self, format_name: str) -> None:
        self.format_name = format_name
        self._seen: set[int] = set()
        """The first 8 bytes of each digest: a file may have millions of lines."""
        self._repeats: Counter[int] = Counter()

    def for_line(self, line: Line) -> str:
        """Returns an id of ``line`` and of how often the same line came before it."""
        digest = hashlib.sha256(msgspec.json.encode(line, order="sorted"))
        mark = int.from_bytes(digest.digest()[:8])
        if mark in self._seen:
            self._repeats[mark] += 1
        else:
            self._seen.add(mark)
        return self.derive(digest.hexdigest(), str(self._repeats[mark] + 1 if mark in self._repeats else 1))

    def derive(self, *parts: str) -> str:
        """Returns an id of ``parts``, the same at each import."""
        return hashlib.sha256("\x1f".join([self.format_name, *parts]).encode()).hexdigest()[:32]


def decode_json(raw: bytes) -> Any:
    """Returns the value of a JSON text. NaN and infinities, which Python's own ``json`` writes, are read as None.

    Raises:
        FormatError: it is no JSON.
    """
    try:
        return msgspec.json.decode(raw)
    except NOT_JSON as error:
        if b"NaN" not in raw and b"Infinity" not in raw:
            raise FormatError(f"not JSON ({error})") from error
    try:
        # Through msgspec too, so that nothing is let in that could not be stored.
        return msgspec.json.decode(msgspec.json.encode(json.loads(raw, parse_constant=_nothing)))
    except (ValueError, OverflowError, RecursionError) as error:
        raise FormatError(f"not JSON ({error})") from error


def _nothing(constant: str) -> None:
    """Returns None for a number that is none."""


def convert(line: object, kind: type[T]) -> T:
    """Returns ``line`` as a ``kind``.

    Raises:
        FormatError: it does not fit; the message names the field.
    """
    try:
        return msgspec.convert(line, kind)
    except msgspec.ValidationError as error:
        raise FormatError(str(error)) from error


def parse_time(text: str) -> datetime:
    """Returns the moment that an RFC 3339 ``text`` names; without an offset it is read as UTC.

    Raises:
        FormatError: it names none.
    """
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise FormatError(f"timestamp {text!r} is not RFC 3339, such as 2026-01-31T12:00:00Z") from error


def shifted(moment: datetime, milliseconds: int) -> datetime:
    """Returns the moment that lies so many milliseconds after ``moment``.

    Raises:
        FormatError: it lies before the year 1 or after the year 9999.
    """
    try:
        return moment + timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        raise FormatError(f"{milliseconds} ms from {moment.isoformat()} is no time that can be kept") from error
