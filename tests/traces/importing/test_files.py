"""Files of each shape are recognised by what they hold, and damage is told from strangeness."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import IO, Any

import pytest

from learnloop.core.errors import FormatError, NotFoundError, UsageError
from learnloop.core.records import Record
from learnloop.traces.importing import files
from learnloop.traces.importing.files import decode_line, format_of, numbered_items, source_of
from learnloop.traces.importing.formats import FORMATS
from learnloop.traces.importing.reader import ItemReader, TraceFormat

GOAL = {"timestamp": "2026-01-01T10:00:01Z", "goal": "g", "action": "ls", "result": {"success": True}}
TRIAL = {"task_id": 1, "reward": 1.0, "trial": 0, "traj": [{"role": "user", "content": "hi"}]}


class Reader(ItemReader):
    format_name = "test"

    def read(self, item: Any) -> list[Record]:
        return []


def zipped_names(file: IO[bytes]) -> list[str]:
    return zipfile.ZipFile(file).namelist()


ARCHIVE = TraceFormat("box", "a zip file", lambda head: head[:2] == b"PK", Reader, shape="archive", items=zipped_names)


def items(path: Path, trace_format: TraceFormat) -> list[tuple[int, Any]]:
    found = numbered_items(path, trace_format)
    return [(number, decode_line(item) if isinstance(item, bytes) else item) for number, item in found]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("text", "name"),
    [
        (json.dumps(GOAL) + "\n", "goal"),
        ("not json\n\n" + json.dumps(GOAL) + "\n", "goal"),
        ("\ufeff" + json.dumps(GOAL), "goal"),
        (json.dumps([TRIAL]), "tau-bench"),
        (json.dumps([TRIAL], indent=2), "tau-bench"),
    ],
)
def test_a_format_is_recognised(tmp_path: Path, text: str, name: str, packed: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert format_of(path, None).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n', "has the fields 'a'"),
        ("[1, 2]", "is a JSON list"),
        ("hello\n", "holds no JSON object"),
        ("", "holds no JSON object"),
        ("[" * 100_000, "holds no JSON object"),
    ],
)
def test_what_is_of_no_format_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        format_of(path, None)
    if message.startswith("has"):
        assert all(name in str(caught.value) for name in FORMATS)


def test_an_archive_is_recognised_before_its_bytes_are_read_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, "box", ARCHIVE)  # type: ignore[arg-type]
    path = tmp_path / "file"
    with zipfile.ZipFile(path, "w") as box:
        box.writestr("one", "1")
        box.writestr("two", "2")
    found = format_of(path, None)
    assert found.name == "box"
    assert items(path, found) == [(1, "one"), (2, "two")]


def test_items_are_numbered(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text(f"{json.dumps(GOAL)}\n\n{json.dumps(GOAL)}\n")
    assert items(lines, FORMATS["goal"]) == [(1, GOAL), (2, None), (3, GOAL)]
    document = tmp_path / "document"
    document.write_text(json.dumps([TRIAL, 3]))
    assert items(document, FORMATS["tau-bench"]) == [(1, TRIAL), (2, 3)]


def test_a_document_that_is_cut_off_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text(json.dumps([TRIAL])[:-5])
    with pytest.raises(FormatError, match="cut off"):
        items(path, FORMATS["tau-bench"])


def test_a_document_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(FormatError, match="is no tau-bench file, which has a list of objects"):
        items(path, FORMATS["tau-bench"])


def test_a_document_too_large_for_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_DOCUMENT_BYTES", 10)
    path = tmp_path / "large.json"
    path.write_bytes(gzip.compress(json.dumps([TRIAL]).encode()))
    with pytest.raises(FormatError, match="more than 10 bytes"):
        items(path, FORMATS["tau-bench"])


def test_what_is_not_there_or_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        format_of(tmp_path / "none", None)
    with pytest.raises(NotFoundError):
        format_of(tmp_path, None)
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(gzip.compress(b"{}" * 1000)[:-8])
    with pytest.raises(FormatError, match="damaged gzip"):
        format_of(damaged, None)
    with pytest.raises(UsageError):
        format_of(damaged, "nonsense")


def test_two_files_of_one_name_are_two_sources(tmp_path: Path) -> None:
    """Two runs of one benchmark write files of the same name, and now and then the same lines."""
    paths = [tmp_path / folder / "results.jsonl" for folder in ("first", "second")]
    for path in paths:
        path.parent.mkdir()
        path.write_text("{}")
    first, second = (source_of(path, "agent") for path in paths)
    assert (first.name, second.name) == ("first/results.jsonl", "second/results.jsonl")
    assert first.file_name == "results.jsonl"
    assert source_of(paths[1], "agent", "first/results.jsonl").name == first.name
