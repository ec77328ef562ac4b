"""learnloop.loop.traces.importing and exporting: many files at once, and folders of others' formats."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from learnloop.core.errors import FormatError, NotFoundError, StoreError, UsageError
from learnloop.core.records import Episode
from learnloop.loop import Workspace, find_settings
from learnloop.loop.traces.exporting import export_as
from learnloop.loop.traces.importing import find_files, import_files

GOAL = {"timestamp": "2026-01-01T10:00:01Z", "goal": "g", "action": "ls", "result": {"success": True}}
SAID = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
TAU = [{"task_id": task, "reward": reward, "traj": SAID} for task, reward in ((1, 1.0), (1, 0.0), (2, 1.0))]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(find_settings(tmp_path / "home"), create=True) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files of traces, one in a folder below, and three of other things."""
    root = tmp_path / "results"
    (root / "sub" / ".hidden").mkdir(parents=True)
    (root / "tau.json").write_text(json.dumps(TAU))
    (root / "sub" / "goals.jsonl.gz").write_bytes(gzip.compress(json.dumps(GOAL).encode() + b"\n{bad\n"))
    (root / "README.md").write_text("# words")
    (root / "sub" / ".hidden" / "x.jsonl").write_text(json.dumps(GOAL))
    (root / ".x.jsonl").write_text(json.dumps(GOAL))
    return root


def test_files_in_folders_are_found(folder: Path) -> None:
    found = find_files([folder, folder / "tau.json", folder / ".x.jsonl"])
    assert [(path.name, name) for path, name in found] == [
        ("README.md", "README.md"),
        ("goals.jsonl.gz", "sub/goals.jsonl.gz"),
        ("tau.json", "tau.json"),
        (".x.jsonl", ".x.jsonl"),
    ]
    (folder / "empty").mkdir()
    for wrong in (folder / "nothing", folder / "empty"):
        with pytest.raises(NotFoundError, match=wrong.name):
            find_files([folder, wrong])


def test_all_that_can_be_imported_is_and_the_rest_is_listed(workspace: Workspace, folder: Path) -> None:
    found = import_files(workspace, find_files([folder]), agent="a")
    assert [(Path(each.file).name, each.report.format) for each in found.files] == [
        ("goals.jsonl.gz", "goal"),
        ("tau.json", "tau-bench"),
    ]
    assert [(Path(each.file).name, each.is_damaged) for each in found.left] == [("README.md", False)]
    assert found.num_records["episode"] == 4
    assert (found.num_episodes_with_outcome, found.num_bad_lines) == (4, 1)
    assert (found.groups.num_groups, found.groups.num_repeated, found.groups.num_mixed) == (3, 1, 1)
    again = import_files(workspace, find_files([folder]), agent="a")
    assert again.num_new == 0
    assert again.num_records == found.num_records


def test_a_damaged_file_stops_no_other(workspace: Workspace, folder: Path) -> None:
    whole = (folder / "sub" / "goals.jsonl.gz").read_bytes()
    (folder / "sub" / "cut.jsonl.gz").write_bytes(whole[:-12])
    found = import_files(workspace, find_files([folder]), agent="a", format_name=None)
    assert [(Path(each.file).name, each.is_damaged) for each in found.left if each.is_damaged] == [
        ("cut.jsonl.gz", True)
    ]
    assert workspace.store.count(Episode) >= 4
    strict = import_files(workspace, find_files([folder]), agent="a", strict=True)
    assert {Path(each.file).name for each in strict.left if each.is_damaged} == {"cut.jsonl.gz", "goals.jsonl.gz"}


def test_nothing_to_import_is_an_error(workspace: Workspace, folder: Path) -> None:
    with pytest.raises(FormatError, match=r"README\.md"):
        import_files(workspace, find_files([folder / "README.md"]), agent="a")
    (folder / "other.md").write_text("more words")
    with pytest.raises(FormatError, match=r"README\.md.*1 more file"):
        import_files(workspace, find_files([folder / "README.md", folder / "other.md"]), agent="a")


def test_the_source_tells_runs_apart(workspace: Workspace, folder: Path) -> None:
    """The same runs from two sources are attempts of their own, in one file or in several."""
    for source in ("monday", "tuesday", "monday"):
        import_files(workspace, find_files([folder / "tau.json"]), agent="a", source=source)
    assert workspace.store.count(Episode) == 6
    (folder / "copy.json").write_bytes((folder / "tau.json").read_bytes())
    for _ in range(2):
        import_files(workspace, find_files([folder / "tau.json", folder / "copy.json"]), agent="b", source="both")
    assert workspace.store.count(Episode, where={"agent_id": "b"}) == 6


def test_exports_in_each_format_come_back(workspace: Workspace, folder: Path, tmp_path: Path) -> None:
    import_files(workspace, find_files([folder / "tau.json"]), agent="a")
    assert export_as(workspace, tmp_path / "all.jsonl", "learnloop").unit == "records"
    assert export_as(workspace, tmp_path / "atif.jsonl", "atif") == (3, "episodes")
    assert export_as(workspace, tmp_path / "atif", "atif") == (3, "files")
    assert export_as(workspace, tmp_path / "rl" / "traces", "execution-trace", agent="a") == (3, "files")
    assert export_as(workspace, tmp_path / "none", "execution-trace", agent="nobody") == (0, "files")
    for name in ("all.jsonl", "atif.jsonl", "atif", "rl"):
        with Workspace(find_settings(tmp_path / f"from-{name}"), create=True) as other:
            import_files(other, find_files([tmp_path / name]), agent="a")
            assert other.store.count(Episode) == 3, name


def test_a_folder_of_files_needs_a_folder(workspace: Workspace, folder: Path, tmp_path: Path) -> None:
    import_files(workspace, find_files([folder / "tau.json"]), agent="a")
    for target in (Path("-"), folder / "tau.json"):
        with pytest.raises(UsageError, match="name a folder"):
            export_as(workspace, target, "execution-trace")
    with pytest.raises(StoreError, match="cannot be written"):
        export_as(workspace, folder / "tau.json" / "x", "atif")
