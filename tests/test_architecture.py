"""The map is of this house: every room is in it, every file that it names exists, its layers are the tested ones."""

from __future__ import annotations

import re

from tests.project import ROOT, SOURCE, source_files
from tests.test_layers import LAYERS

PAGE = ROOT / "docs" / "architecture.md"
_QUOTED = re.compile(r"`([^`\s]+)`")


def section(title: str) -> str:
    """Returns what stands under a heading of the map, up to the next of its rank."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None, title
    return found[1]


def missing(text: str) -> list[str]:
    """Returns the files and folders that a text names and that are not there."""
    paths = [name for name in _QUOTED.findall(text) if "/" in name and re.fullmatch(r"[a-z0-9_/]+(\.\w+)?", name)]
    files = [path for path in paths if not path.startswith("train/")]  # names of figures are no files
    return [path for path in files if not any((folder / path).exists() for folder in (SOURCE, ROOT))]


def test_every_room_and_part_has_its_row() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", section("Rooms"), re.MULTILINE)
    folders = {path.parent.relative_to(SOURCE).as_posix() for path in source_files()} - {"."}
    assert sorted(rows) == sorted(folders)


def test_the_layers_are_those_that_are_tested() -> None:
    lines = re.search(r"```text\n(.*?)```", section("Layers"), re.DOTALL)
    assert lines is not None
    assert [set(line.split()) for line in lines[1].splitlines()] == LAYERS


def test_every_file_that_is_named_exists() -> None:
    assert missing(PAGE.read_text(encoding="utf-8")) == []


def test_what_is_missing_is_found() -> None:
    assert missing("`core/ids.py`, `tests/project.py`, `core/no_such.py`, `no/such`") == ["core/no_such.py", "no/such"]
    assert missing("`train/approx_kl` `Loop.choose` `n_steps`") == []


def test_records_and_names_of_the_flows_exist() -> None:
    """What a flow says is there after a step is a class of the source."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in source_files())
    named = set(re.findall(r"`([A-Z][a-z]\w+)`", section("Four flows")))
    assert len(named) > 10
    assert [name for name in sorted(named) if not re.search(rf"^class {name}\b", text, re.MULTILINE)] == []


def test_all_flows_are_told() -> None:
    assert len(re.findall(r"^### ", section("Four flows"), re.MULTILINE)) == 4
