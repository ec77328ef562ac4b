"""The parts of the long form: each nightly test is in one, and what passed is not run again."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.nightly.parts import NOTHING_LEFT, PARTS, main
from tests.nightly.progress import read
from tests.nightly.test_learning_tables import LINES
from tests.project import ROOT

EXAMPLE = """
from collections import Counter

import pathlib
import pytest

def test_one(record_property):
    record_property("figures", {"returns": [1.5, 2.0], "verdicts": Counter(["no_signal"] * 2)})

def test_two():
    assert pathlib.Path(__file__).with_name("mended").exists()

def test_three():
    pytest.fail("as it does")
"""


def test_each_nightly_test_is_in_one_part() -> None:
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if _is_nightly(path)]
    places = {
        str(path.relative_to(ROOT)): [name for name, part in PARTS.items() if _has(part.tests, path)] for path in marked
    }
    table = places.pop("tests/nightly/test_learning_tables.py")
    assert table == ["cartpole", "control", "lunar-lander"]
    assert {file: names for file, names in places.items() if len(names) != 1} == {}
    assert {"CartPole-v1", "LunarLander-v3"} < {line.env for line in LINES}
    assert set(PARTS) == set(table).union(*places.values())


def _is_nightly(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    marks = (
        [] if "nightly" not in text else [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Attribute)]
    )
    return any(ast.unparse(mark) == "pytest.mark.nightly" for mark in marks)


def _has(arguments: tuple[str, ...], path: Path) -> bool:
    left_out = [ROOT / each.partition("=")[2] for each in arguments if each.startswith("--ignore=")]
    return path.is_relative_to(ROOT / arguments[0]) and not any(path.is_relative_to(each) for each in left_out)


def test_each_part_is_told_of() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name in PARTS if f"`{name}`" not in page] == []


def test_what_passed_is_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(EXAMPLE)
    first = run(tmp_path, code=1)
    assert [first[name]["outcome"] for name in ("one", "two", "three")] == ["passed", "failed", "failed"]
    assert first["one"]["figures"] == {"returns": [1.5, 2.0], "verdicts": {"no_signal": 2}}
    assert first["two"]["figures"] is None
    (tmp_path / "mended").touch()
    second = run(tmp_path, code=1)
    assert second["one"] == first["one"]
    assert [second[name]["outcome"] for name in ("two", "three")] == ["passed", "failed"]
    run(tmp_path, "-k", "one or two", code=NOTHING_LEFT)


def run(folder: Path, *arguments: str, code: int) -> dict[str, Any]:
    """Returns what is kept of each test of the example after a run that ends so."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # no xdist's own
    plugins = ["-p", "no:cacheprovider", "-p", "xdist", "-p", "tests.nightly.progress"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *plugins,
            "-n",
            "1",
            f"--kept={folder / 'kept.json'}",
            f"--rootdir={folder}",
            *arguments,
            str(folder / "test_example.py"),
        ],
        cwd=ROOT,
        env={**outside, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # the others take seconds to start
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return {test.rpartition("test_")[2]: found for test, found in read(folder / "kept.json").items()}


def test_an_unknown_part_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-part"]) == 2
    said = capsys.readouterr().out
    assert "'no-such-part'" in said
    assert all(name in said for name in PARTS)
