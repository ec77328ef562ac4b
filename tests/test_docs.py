"""The documents say what is true: their code runs, their commands run, and nothing public is left out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import learnloop
from learnloop.cli.main import COMMANDS, run
from learnloop.core.extensions import POINTS
from tests.docs_writer import CLI_PAGE, cli_page, commands
from tests.project import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def blocks(path: Path, language: str) -> list[str]:
    """Returns the code blocks of a page in one language."""
    return [body for found, body in _BLOCK.findall(path.read_text(encoding="utf-8")) if found == language]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEARNLOOP_HOME", raising=False)
    monkeypatch.delenv("LEARNLOOP_DATABASE", raising=False)
    for point in POINTS.values():
        monkeypatch.setattr(point, "registered", {})  # what a page registers is gone after it


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_blocks_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The blocks of a page run one after the other, as a reader would type them."""
    names: dict[str, object] = {"__name__": "__docs__"}
    for body in blocks(page, "python"):
        exec(compile(body, str(page), "exec"), names)  # noqa: S102 - our own documents, as their reader would
    for loop in [value for value in names.values() if isinstance(value, learnloop.Loop)]:
        counters = loop.counters()
        loop.close()
        assert counters.num_failed == 0
        assert counters.last_error is None
    if page.name == "proof.md":
        assert str(names["result"].verdict) == "learned"  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=lambda page: page.name)
def test_console_blocks_name_commands_that_work(page: Path) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in "".join(blocks(page, "console")).splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words[0] == "learnloop":
            assert run(words[1:]) == 0, line
        else:
            assert words[0] == "make", line
            assert words[1] in targets, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_command_reference_is_up_to_date() -> None:
    assert CLI_PAGE.read_text(encoding="utf-8") == cli_page(), "docs/cli.md is old; write it again with: make docs"


def test_every_command_is_documented() -> None:
    page = CLI_PAGE.read_text(encoding="utf-8")
    names = [name for name, _, _ in commands()]
    assert len(names) > len(COMMANDS)
    for name in names:
        assert f"## {name}\n" in page


def test_every_public_name_is_documented() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for name in learnloop.__all__:
        if not name.startswith("__"):
            assert f"`{name}`" in page, name


def test_every_event_and_format_is_documented() -> None:
    from learnloop.store import insert
    from learnloop.traces.importing.formats import FORMATS

    events = [*(report.kind for report in insert.REPORTS.values()), "episode.ended"]
    assert all(f"`{event}`" in (ROOT / "docs" / "store.md").read_text() for event in events)
    assert all(f"| `{name}` |" in (ROOT / "docs" / "formats.md").read_text() for name in FORMATS)


def test_the_first_screen_of_the_readme() -> None:
    """One sentence, three numbers with the command for each, two commands, the example: within 40 lines."""
    head = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:40]
    rows = [line for line in head if line.startswith("|") and "`" in line]
    assert len(rows) == 3
    for row in rows:
        assert all(re.search(r"\d", cell) for cell in row.split("|")[2:4]), row
        assert not re.search(r"[A-Z]+_[A-Z]+", row), row
    assert [line.split("#")[0].strip() for line in head if line.startswith("$ ")] == ["$ make demo", "$ make test"]
    assert any("ep.reward(saved=0.61)" in line for line in head)


def test_the_version_is_one() -> None:
    assert f'version = "{learnloop.__version__}"' in (ROOT / "pyproject.toml").read_text()
