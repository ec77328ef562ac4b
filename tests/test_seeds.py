"""What docs/seeds.md says of the seed documents is so: names import, commands have their options, routes exist."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import re
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from learnloop.cli.main import cli, run
from learnloop.compat.seed3 import TraceCollector, hook_into_agent
from learnloop.compat.seed4 import RewardSignalIntegrator
from learnloop.loop import Workspace
from learnloop.loop.workspace.settings import find_settings
from tests.project import ROOT

PAGE = ROOT / "docs" / "seeds.md"
_ROW = re.compile(r"^\| (.+?) \| (.+?) \| ?(.*?) ?\|$", re.MULTILINE)
_ROUTES = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]


def rows(*, defaults: bool) -> list[tuple[str, str, str]]:
    """Returns the rows of the tables of defaults, or of all others, without their heads."""
    parts = re.split(r"^##+ ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    chosen = [part for part in parts if part.startswith("Defaults") is defaults]
    return [row for part in chosen for row in _ROW.findall(part) if row[0] not in ("the seed says", "name")]


def quoted(cell: str) -> list[str]:
    """Returns what a cell has in backticks."""
    return re.findall(r"`([^`]+)`", cell)


NAMES = rows(defaults=False)
DEFAULTS = rows(defaults=True)
REFERENCES = sorted({each for _, here, far in NAMES for each in [*quoted(here), *quoted(far)]})
PYTHON = [each for each in REFERENCES if re.match(r"(learnloop|ll)\.\w", each)]
COMMANDS = [each for each in REFERENCES if each.startswith("learnloop ")]
ROUTES = [each for each in REFERENCES if re.match(r"(GET|POST|PUT) /", each)]


def resolve(name: str) -> Any:
    """Returns what a dotted name, or a call without arguments on the way to it, stands for."""
    parts = name.replace("ll.", "learnloop.", 1).split(".") if name.startswith("ll.") else name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            value = getattr(value, part.removesuffix("()"))
            value = value() if part.endswith("()") else value
        return value
    raise LookupError(name)


def default_of(name: str) -> Any:
    """Returns the value that a row of defaults names: of an expression, or of a field of a record that needs others."""
    home, _, field = name.rpartition(".")
    owner = resolve(home)
    if isinstance(owner, type) and issubclass(owner, msgspec.Struct):
        return next(each.default for each in msgspec.structs.fields(owner) if each.name == field)
    return resolve(name)


def test_each_row_says_where_it_is_or_why_not() -> None:
    assert len(NAMES) > 90
    for seed, here, far in NAMES:
        if here == "later":
            assert "issue" in far, seed
        elif here == "no":
            assert far, seed
        else:
            assert quoted(here), seed


def test_all_five_seeds_are_told() -> None:
    assert re.findall(r"^## Seed (\d)", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == ["0", "1", "2", "3", "4"]


def test_every_python_name_can_be_imported() -> None:
    assert len(PYTHON) > 50
    assert all(resolve(name) is not None for name in PYTHON)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_have_their_options(line: str) -> None:
    command: click.Command = cli
    names, *options = line.removeprefix("learnloop ").split(" --")
    for word in names.split():
        assert isinstance(command, click.Group), line
        found = command.get_command(click.Context(command), word)
        assert found is not None, line
        command = found
    known = {option for parameter in command.params for option in parameter.opts}
    assert {f"--{option}" for option in options} <= known


def test_routes_exist() -> None:
    assert len(ROUTES) > 10
    for route in ROUTES:
        method, path = route.split()
        assert method.lower() in _ROUTES[path], route


def test_defaults_are_the_seeds() -> None:
    assert len(DEFAULTS) > 15
    found = [(name, default_of(quoted(here)[0])) for name, _, here in DEFAULTS]
    assert found == [(name, ast.literal_eval(quoted(value)[0])) for name, value, _ in DEFAULTS]


class FlowAgent:
    """An agent such as seed 3's: an object with a method that runs it."""

    async def a_run(self, query: str) -> str:
        return query.upper()


def test_the_lines_of_seed_3_run(tmp_path: Path) -> None:
    agent = FlowAgent()
    collector = TraceCollector(home=tmp_path)
    hook_into_agent(agent, collector)
    assert asyncio.run(agent.a_run("hello")) == "HELLO"
    collector.flush()
    assert [row.episode.agent_id for row in collector.workspace.episodes.list()] == ["agent"]
    collector.close()


def test_the_line_of_seed_4_runs(tmp_path: Path) -> None:
    with Workspace(find_settings(tmp_path), create=True) as workspace:
        integrator = RewardSignalIntegrator(workspace)
        result = {"task_type": "math", "output": "4", "expected": "4", "agents": ["solver"], "metadata": {}}
        done = asyncio.run(integrator.process_task_completion("sum", result))
    assert done.raw_reward == 1.0
    assert sum(share.credit_assigned for share in done.shares) == pytest.approx(1.0)


def test_the_lines_of_seed_0_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    home = ["--home", str(tmp_path)]
    assert run([*home, "init"]) == 0
    for line in ("rl train --agent random --env cartpole --episodes 10", "rl policy list"):
        assert run([*home, *line.split()]) == 0
    assert "no policies yet" in capsys.readouterr().err
    (tmp_path / "traces.jsonl").write_text("{}\n")
    line = f"rl train --agent ppo --env jsonl --trace-file {tmp_path}/traces.jsonl --episodes 5000"
    assert run([*home, *line.split()]) == 2
    assert "cql" in capsys.readouterr().err
