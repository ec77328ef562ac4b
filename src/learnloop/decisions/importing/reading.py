"""Reads a log file line by line: through gzip, with bounds, counting and naming what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from learnloop.core.errors import FormatError, NotFoundError, one_of
from learnloop.core.records import Record
from learnloop.decisions.importing.choices import Activated, Choices, LoggedChoice, Observation
from learnloop.decisions.importing.dsjson import read_line
from learnloop.decisions.importing.vw_text import VwExample, adf_choice, cb_choice, read_example
from learnloop.decisions.service.settings import MAX_ACTIONS
from learnloop.traces.importing.files import Progress, opened
from learnloop.traces.importing.report import LineFault

FORMATS: Final = ("dsjson", "vw")
MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_FAULTS = 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Found = Record | Observation | Activated


def format_of(path: Path) -> str:
    """Returns the format of a file by the first of its lines that is not empty.

    Raises:
        NotFoundError: there is no such file.
        FormatError: it is of none, or empty.
        UsageError: it cannot be read.
    """
    if not path.is_file():
        raise NotFoundError(f"no file {str(path)!r}; name a log of Azure Personalizer or Vowpal Wabbit")
    for _, raw in numbered_lines(path):
        text = raw.strip()
        if text:
            if text[:1] == b"{":
                return "dsjson"
            if b"|" in text:
                return "vw"
            break
    raise FormatError(f"{path.name} fits no format of {one_of(FORMATS)}: lines of JSON objects, or of '... | features'")


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of a file, gzipped or not, with their numbers from 1.

    Raises:
        FormatError: the gzip is damaged, or a line is too long.
        UsageError: it cannot be read.
    """
    with opened(path) as lines:
        number = 0
        while raw := lines.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                raise FormatError(f"{path.name}, line {number} is longer than {MAX_LINE_BYTES:,} bytes")
            yield number, raw.removeprefix(_BYTE_ORDER_MARK) if number == 1 else raw


class LogFile:
    """One pass over a log.

    Attributes:
        num_lines: read so far.
        num_bad_lines: those of them that could not be read.
        bad_lines: the first of these.
    """

    def __init__(
        self,
        path: Path,
        format_name: str,
        choices: Choices,
        *,
        strict: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Reads nothing yet; the arguments are as for ``import_decisions``."""
        if format_name not in FORMATS:
            raise FormatError(f"{format_name!r} is not a format of logs; allowed are {one_of(FORMATS)}")
        self._path = path
        self._format = format_name
        self._choices = choices
        self._strict = strict
        self._progress = progress or (lambda number: None)
        self.num_lines = 0
        self.num_bad_lines = 0
        self.bad_lines: list[LineFault] = []

    def items(self) -> Iterator[list[Found]]:
        """Yields what each good line says: the records of its choices, or observations without their choice.

        Raises:
            FormatError: the file is damaged; with ``strict`` also where a line cannot be read.
            UsageError: it cannot be read.
        """
        num_actions = _highest_action(self._path) if self._format == "vw" else None
        is_adf = self._format == "vw" and num_actions is None
        for number, lines in self._blocks(several=is_adf):
            try:
                found = self._records(number, lines, num_actions)
            except FormatError as error:
                self._refuse(number, error)
            else:
                yield found

    def _blocks(self, *, several: bool) -> Iterator[tuple[int, list[bytes]]]:
        """Yields the lines of each choice, with the number of the first; ``several``: they go on to an empty one."""
        block: list[bytes] = []
        first = 0
        for number, raw in numbered_lines(self._path):
            self._progress(len(raw))
            self.num_lines = number
            is_empty = not raw.strip()
            if not is_empty:
                first = first or number
                block.append(raw)
                if len(block) > MAX_ACTIONS + 1:
                    raise FormatError(f"{self._path.name}, line {first}: more than {MAX_ACTIONS} lines of one choice")
            if block and (is_empty or not several):
                yield first, block
                block, first = [], 0
        if block:
            yield first, block

    def _records(self, number: int, lines: list[bytes], num_actions: int | None) -> list[Found]:
        raw = b"".join(lines)
        said: Sequence[LoggedChoice | Observation | Activated]
        if self._format == "dsjson":
            said = read_line(raw)
        else:
            examples = [_example(each) for each in lines]
            said = [adf_choice(examples) if num_actions is None else cb_choice(examples[0], num_actions)]
        found: list[Found] = []
        for each in said:
            found += self._choices.records(each, number, raw) if isinstance(each, LoggedChoice) else [each]
        return found

    def _refuse(self, number: int, error: FormatError) -> None:
        if self._strict:
            raise FormatError(f"{self._path.name}, line {number}: {error}; nothing was imported") from error
        self.num_bad_lines += 1
        if len(self.bad_lines) < MAX_FAULTS:
            self.bad_lines.append(LineFault(line=number, reason=str(error)))


def modified_at(path: Path) -> datetime:
    """Returns when a file was written last: it stands for the time of lines that have none."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _example(raw: bytes) -> VwExample:
    try:
        return read_example(raw.decode("utf-8").strip("\r\n"))
    except UnicodeDecodeError as error:
        raise FormatError(f"not UTF-8 ({error})") from error


def _highest_action(path: Path) -> int | None:
    """Returns the number of actions of a ``cb`` log, the highest that is named; None: it is ``cb_adf``.

    The whole log has to be read for it: a line names the action that was chosen, not those that could have been.
    """
    highest = 0
    num_labelled = num_lines = 0
    for _, raw in numbered_lines(path):
        if not raw.strip():
            if num_lines > 1 and num_labelled < num_lines:
                return None  # lines that belong together, of which not all have a label
            continue
        head = raw.partition(b"|")[0].split()
        if head[:1] == [b"shared"]:
            return None
        num_lines += 1
        numbers = [int(word.partition(b":")[0]) for word in head if _is_label(word)]
        num_labelled += bool(numbers)
        if 0 in numbers:
            return None  # actions of cb are counted from 1; 0 stands for "this line" in cb_adf
        highest = max([highest, *numbers])
    return highest if num_labelled and highest <= MAX_ACTIONS else None


def _is_label(word: bytes) -> bool:
    action, colon, _ = word.partition(b":")
    return bool(colon) and action.isdigit() and len(action) <= 6
