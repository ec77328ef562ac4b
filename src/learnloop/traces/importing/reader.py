"""What a trace format is, and the helpers that the formats share."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import msgspec

from learnloop.core.decoding import NOT_JSON
from learnloop.core.errors import FormatError
from learnloop.core.records import Record, Reward, Task
from learnloop.traces.json_values import present

if TYPE_CHECKING:
    from learnloop.store import Connection

Line = Mapping[str, Any]
T = TypeVar("T")
Words = Annotated[str, msgspec.Meta(min_length=1)]
"""Text that must say something."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""How many, or which one counted from 0."""
Milliseconds = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


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

    @property
    def plain_name(self) -> str:
        """The last part of its path without ``.gz``."""
        return self.file_name.removesuffix(".gz")

    def says(self, pattern: re.Pattern[str]) -> dict[str, str | None]:
        """Returns what its name says in the groups of ``pattern``; nothing where it is not such a name."""
        found = pattern.fullmatch(self.plain_name)
        return found.groupdict() if found else {}


class PartlyReadError(FormatError):
    """A part of an item cannot be read as what it claims to be; ``records`` are those of the other parts."""

    def __init__(self, message: str, records: list[Record]) -> None:
        super().__init__(message)
        self.records = records


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


class ItemReader(ABC):
    """Reads the items of one file, in order. A format's reader says its name, and overrides ``read``.

    Attributes:
        format_name: the name that ids are made with and that records have as their source.
        source: the file.
        ids: of this format.
    """

    format_name: ClassVar[str]

    def __init__(self, source: Source) -> None:
        """Reads nothing yet."""
        self.source = source
        self.ids = ContentIds(self.format_name)
        self._known_tasks: set[str] = set()

    @abstractmethod
    def read(self, item: Any) -> list[Record]:
        """Returns the records that ``item`` makes.

        Raises:
            PartlyReadError: a part of the item is not what the format says; it brings what was made of the rest.
            FormatError: the item is not what the format says; nothing was made of it.
        """

    def finish(self) -> list[Record]:
        """Returns the records that only the end of the file makes: none where each item stands for itself."""
        return []

    def unnamed_id(self, item: Any) -> str:
        """Returns the id of an episode that carries none of its own: it is made of the file's name and of its item."""
        return self.ids.derive("episode", self.source.name, self.ids.for_line(item))

    def task_records(self, task_id: str, metadata: Mapping[str, Any]) -> list[Record]:
        """Returns what a task is, the first time that something is known of it; entries that are None are left out."""
        known = present(metadata)
        if task_id in self._known_tasks or not known:
            return []
        self._known_tasks.add(task_id)
        return [Task(task_id=task_id, created_at=self.source.modified_at, metadata=known)]

    def outcome(self, success: bool, reward: float | None, *key: str, **fields: Any) -> Iterator[Reward]:
        """Yields a run's reward where it is known, and its success as a metric: learning from both would count twice.

        Args:
            success: whether it succeeded.
            reward: None: not known.
            key: what the rewards' ids are made of.
            fields: of both rewards.
        """
        for name, value, weight in (("success", float(success), 0.0), ("reward", reward, 1.0)):
            if value is not None:
                fields |= {"reward_id": self.ids.derive("reward", *key, name), "source": self.format_name}
                yield Reward(name=name, value=value, weight=weight, **fields)


Shape = Literal["lines", "document", "archive"]


def listed(value: Any) -> Sequence[Any]:
    """Returns the items of a document that is an item, or a list of them."""
    return value if isinstance(value, list) else [value]


def as_one(value: Any) -> Iterable[Any]:
    """Returns a document's value as its one item."""
    return [value]


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
    items: Callable[[Any], Iterable[Any]] = as_one
    """Gives the items of a document's value, which is the one item where this is not given, or those of an archive.

    An archive comes open and can be read from any place; ``FormatError`` is raised for a damaged one."""
    place: Callable[[Connection, Sequence[Record]], Sequence[Record]] | None = None
    """Says, in the transaction that writes them, what records are for that name others by an id of the store's."""

    def as_document(self, name: str, items: Callable[[Any], Sequence[Any]] = listed) -> TraceFormat:
        """Returns the format ``name`` of a document whose ``items`` are lines of this one, as its first one shows."""

        def fits(value: Any) -> bool:
            return any(map(self.fits, items(value)[:1]))

        return self._replace(name=name, fits=fits, shape="document", items=items)


def digest(*texts: str) -> str:
    """Returns 12 characters that stand for ``texts``."""
    return hashlib.sha256("\x1f".join(texts).encode()).hexdigest()[:12]


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
    """Returns None for NaN and the infinities."""


def convert(line: object, kind: type[T]) -> T:
    """Returns ``line`` as a ``kind``.

    Raises:
        FormatError: it does not fit; the message names the field.
    """
    try:
        return msgspec.convert(line, kind)
    except msgspec.ValidationError as error:
        raise FormatError(str(error)) from error


def required_list(field: str, value: Any) -> list[Any]:
    """Returns ``value``, an empty list where it is None.

    Raises:
        FormatError: it is not a list; the message names ``field``.
    """
    if value is not None and not isinstance(value, list):
        raise FormatError(f"{field} is a {type(value).__name__}; a list is needed")
    return value or []


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


def known_time(value: Any) -> datetime | None:
    """Returns the moment that ``value`` names, None where it is not a text that says something.

    Raises:
        FormatError: it is a text and names none.
    """
    return parse_time(value) if isinstance(value, str) and value else None


def shifted(moment: datetime, *, milliseconds: float = 0, seconds: float = 0) -> datetime:
    """Returns the moment that lies so much after ``moment``, or before where it is negative.

    Raises:
        FormatError: it lies before the year 1 or after the year 9999.
    """
    try:
        return moment + timedelta(milliseconds=milliseconds, seconds=seconds)
    except OverflowError as error:
        given = f"{milliseconds} ms" if milliseconds else f"{seconds} s"
        raise FormatError(f"{given} from {moment.isoformat()} is no time that can be kept") from error


def has_fields(*names: str) -> Callable[[Any], bool]:
    """Returns what tells whether a value is an object with these fields."""
    wanted = frozenset(names)
    return lambda value: isinstance(value, dict) and wanted <= value.keys()


def first_has_fields(*names: str) -> Callable[[Any], bool]:
    """Returns what tells whether a value is a list that begins with an object with these fields."""
    fits = has_fields(*names)
    return lambda value: isinstance(value, list) and any(map(fits, value[:1]))
