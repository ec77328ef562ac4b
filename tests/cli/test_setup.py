"""``learnloop extensions``: what can be used by name is listed; what cannot is named, and does not stop the rest."""

from __future__ import annotations

import importlib.metadata
import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from learnloop.cli import setup as command
from learnloop.cli.main import run
from learnloop.core import extensions as core
from tests.test_import_cost import HEAVY, measure


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages whose modules are there, are not, end the process, or are no algorithm."""
    found = [
        EntryPoint("gone", "no_such_module_at_all:Algorithm", "learnloop.algorithms"),
        EntryPoint("leaves", "tests.cli.leaving_module:Algorithm", "learnloop.algorithms"),
        EntryPoint("number", "math:pi", "learnloop.algorithms"),
        EntryPoint("ppo", "learnloop.algorithms:A2C", "learnloop.algorithms"),
        EntryPoint("pole", "learnloop.envs.tool_use:ToolUse", "learnloop.environments"),
        EntryPoint("pi", "math:pi", "learnloop.environments"),
        EntryPoint("length", "builtins:len", "learnloop.rewards"),
        EntryPoint("e", "math:e", "learnloop.rewards"),
        EntryPoint("tau", "math:tau", "learnloop.encoders"),
        EntryPoint("phi", "math:inf", "learnloop.networks"),
    ]
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [each for each in found if each.group == group]
    )
    for point in core.POINTS.values():
        monkeypatch.setattr(point, "_declared", None)
        monkeypatch.setattr(point, "_loaded", {})


def test_what_cannot_be_used_is_named_and_the_rest_listed(plugins: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["extensions", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "learnloop.extensions/v1"
    rows = {(each["kind"], each["name"], each["source"]): each for each in answer["extensions"]}
    assert rows["algorithm", "ppo", "learnloop"]["error"] is None
    assert rows["environment", "pole", "an unknown package"]["error"] is None
    assert rows["reward", "length", "an unknown package"]["description"].startswith("Return the number")
    errors = {name: each["error"] for (_, name, source), each in rows.items() if source != "learnloop"}
    assert "ModuleNotFoundError" in errors["gone"]
    assert "SystemExit: 3" in errors["leaves"]
    assert "3.14" in errors["number"]
    assert "learnloop's own" in errors["ppo"]
    assert "subclass of gymnasium.Env" in errors["pi"]
    assert "a callable is needed" in errors["e"]
    assert "size and encode" in errors["tau"]
    assert "a function of (input_size, output_size)" in errors["phi"]


def test_the_table(plugins: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["extensions", "--kind", "algorithm"]) == 0
    output = capsys.readouterr()
    assert "ppo" in output.out
    assert "cartpole" not in output.out
    assert "no_such_module_at_all" not in output.out
    assert "not usable: the algorithm 'gone' of an unknown package cannot be imported" in output.err


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["--algorithm", "gone"], "cannot be imported", 1),
        (["--algorithm", "leaves"], "SystemExit: 3", 1),
        (["--algorithm", "gonne"], "did you mean 'gone'", 2),
        (["--env", "poel"], "did you mean 'pole'", 3),
        (["--env", "pi"], "subclass of gymnasium.Env", 2),
        (["--env", "goal-task", "--set", "text_encoder=tao"], "did you mean 'tau'", 3),
        (["--env", "cartpole", "--set", "text_encoder=hashed"], "shows no text", 2),
        (["--env", "cartpole", "--network", "fhi"], "did you mean 'phi'", 3),
        (["--env", "cartpole", "--network", "phi", "--set", "network=phi"], "say the same", 2),
    ],
)
def test_asked_for(
    plugins: None, arguments: list[str], message: str, code: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = (
        ["--set", 'env_kwargs={"goal_view": "text", "make_executor": "simulated"}'] if "goal-task" in arguments else []
    )
    assert run(["--home", str(tmp_path), "train", *arguments, *text, "--steps", "64"]) == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_help_loads_nothing_heavy() -> None:
    assert command.KINDS == core.KINDS
    _, modules = measure("from learnloop.cli.main import run; run(['extensions', '--help'])", repetitions=1)
    assert modules & HEAVY == set()
    assert "importlib.metadata" not in modules


def test_serving_looks_for_no_packages() -> None:
    """A policy that is served does not pay for the search of entry points."""
    _, modules = measure("from learnloop.algorithms.policies.network_policy import NetworkPolicy", repetitions=1)
    assert "importlib.metadata" not in modules
