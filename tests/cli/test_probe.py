"""``learnloop probe``: exit codes, the table, JSON, and errors that say what is wrong with what was named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.calling import Call

MODULE = "tests.testing.my_algorithms"
SETTINGS = ("n_steps=8", "learning_rate=lin_0.01", "net_arch=[32]", "use_rms_prop=false")
FAST = [word for setting in SETTINGS for word in ("--set", setting)]


@pytest.fixture
def call(call: Call) -> Call:
    """Runs ``learnloop probe`` in an empty folder."""
    return lambda *arguments: call("probe", *arguments)


def test_one_that_passes(call: Call) -> None:
    code, out, err = call("a2c", "--probe", "P4", "--steps", "4000")
    assert (code, err) == (0, "")
    head, row, last = out.splitlines()
    assert head.split("  ")[0] == "probe"
    assert row.startswith("P4     sign of the advantage  passed")
    assert "value(0) is" in row
    assert last == "a2c passes 1 probes, as actor-critic"


def test_one_that_fails(call: Call) -> None:
    code, out, err = call(f"{MODULE}:Inverted", "--probe", "P1", "--probe", "P4", "--steps", "3000", *FAST)
    assert code == 7
    assert "failed" in out
    assert "action_probabilities(0, 1) is" in out
    assert "fails 2 of 2 probes: P1, P4" in err


def test_json(call: Call) -> None:
    code, out, err = call(f"{MODULE}:Mine", "--probe", "P4", "--steps", "3000", "--seed", "1", "--json", *FAST)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["schema"] == "learnloop.probe/v1"
    assert found["failed"] == []
    (row,) = found["data"]
    assert (row["probe"], row["verdict"], row["family"], row["steps"]) == ("P4", "passed", "actor-critic", 3000)
    code, out, _ = call("a2c", "--probe", "P4", "--steps", "64", "--json")
    assert (code, json.loads(out)["failed"]) == (7, ["P4"])


def test_a_module_in_this_folder(call: Call, tmp_path: Path) -> None:
    (tmp_path / "my_own_probe_module.py").write_text(f"from {MODULE} import make\n")
    assert call("my_own_probe_module:make", "--probe", "P4", "--steps", "3000")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("pppo",), 2, "did you mean 'ppo'"),
        (("no_such_module_at_all:Mine",), 3, "needs the module 'no_such_module_at_all', which cannot be found"),
        ((f"{MODULE}:Nothing",), 3, "has no 'Nothing'; it has"),
        ((f"{MODULE}:NoAlgorithm",), 2, "no subclass of learnloop.algorithms.Algorithm"),
        ((f"{MODULE}:NUMBER",), 2, "a callable make"),
        ((f"{MODULE}:Unfinished",), 2, "is abstract"),
        ((":Mine",), 2, "is not MODULE:ALGORITHM"),
        (("a2c", "--probe", "P99"), 2, "there is no probe 'P99'"),
        (("a2c", "--probe", "P14"), 2, "judges a replay"),
        (("a2c", "--set", "n_stepz=4"), 2, "n_stepz"),
        (("dqn", "--continuous"), 2, "needs a discrete action space"),
        (("cql",), 2, "learns from a data set"),
        (("a2c", "--family", "soft-q"), 2, "needs action_values"),
        (("a2c", "--steps", "0"), 2, "--steps"),
        ((), 2, "MODULE:ALGORITHM"),
    ],
)
def test_errors(call: Call, arguments: tuple[str, ...], code: int, message: str) -> None:
    found, out, err = call(*arguments)
    assert (found, out) == (code, "")
    assert message in err


@pytest.mark.parametrize("body", ["raise RuntimeError('at import')", "x ="])
def test_a_module_that_cannot_be_imported(call: Call, tmp_path: Path, body: str) -> None:
    name = f"my_broken_probe_module_{len(body)}"
    (tmp_path / f"{name}.py").write_text(body)
    code, out, err = call(f"{name}:Mine")
    assert (code, out) == (2, "")
    assert f"the module '{name}' cannot be imported; it raised" in err
