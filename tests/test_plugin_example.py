"""The worked plug-in, installed as a user would install it, beside a broken one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.project import ROOT

PLUGIN = ROOT / "examples" / "plugin"
BROKEN = """
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"
[project]
name = "broken-example"
version = "0.3"
[project.entry-points."learnloop.algorithms"]
broken = "broken_example:Algorithm"
[project.entry-points."learnloop.environments"]
two-doors-broken = "broken_example:Env"
[tool.hatch.build.targets.wheel]
packages = ["broken_example"]
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder into which both are installed."""
    folder = tmp_path_factory.mktemp("plugins")
    broken = folder / "broken"
    (broken / "broken_example").mkdir(parents=True)
    (broken / "broken_example" / "__init__.py").write_text("import a_module_that_nobody_has\n")
    (broken / "pyproject.toml").write_text(BROKEN)
    target = folder / "site"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(PLUGIN), str(broken)], check=True)
    return target


def run(place: Path, home: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "learnloop", "--home", str(home), *arguments]
    variables = {**os.environ, "PYTHONPATH": str(place)}
    return subprocess.run(command, env=variables, check=check, capture_output=True, text=True)


def test_it_is_listed_and_the_broken_one_is_named(place: Path, tmp_path: Path) -> None:
    """S0.1: what is registered appears in the CLI."""
    answer: dict[str, Any] = json.loads(run(place, tmp_path, "extensions", "--json").stdout)
    found = {(each["kind"], each["name"]): each for each in answer["extensions"]}
    for key in [
        ("algorithm", "reinforce"),
        ("environment", "two-doors"),
        ("reward", "brevity"),
        ("encoder", "letters"),
    ]:
        assert found[key]["source"] == "learnloop-example 1.0"
        assert found[key]["error"] is None
        assert found[key]["description"]
    assert "a_module_that_nobody_has" in found["algorithm", "broken"]["error"]
    assert "broken-example 0.3" in found["algorithm", "broken"]["error"]
    shown = run(place, tmp_path, "extensions")
    assert "reinforce" in shown.stdout
    assert "not usable" in shown.stderr


def test_it_trains_by_name_in_several_processes(place: Path, tmp_path: Path) -> None:
    arguments = ["--algorithm", "reinforce", "--env", "two-doors", "--steps", "3000", "--seeds", "2", "--json"]
    answer = json.loads(run(place, tmp_path, "train", *arguments, "--set", "n_steps=16").stdout)
    assert answer["evaluation"]["means"] == [1.0, 1.0]
    refused = run(place, tmp_path, "train", "--algorithm", "broken", check=False)
    assert refused.returncode == 1
    assert "broken-example 0.3 cannot be imported" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_its_own_tests_pass(place: Path) -> None:
    variables = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(PLUGIN), "tests"]
    found = subprocess.run(command, cwd=PLUGIN, env=variables, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-3000:]
