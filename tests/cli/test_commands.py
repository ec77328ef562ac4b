"""The command line: exit codes, what goes to which stream, JSON with a schema, and nothing half-done."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import click
import numpy as np
import pytest

from learnloop.algorithms import BanditTrainer
from learnloop.cli.main import COMMANDS, cli
from learnloop.core.protocols import PolicyArtifact, Sample
from learnloop.core.records import Verdict
from learnloop.demo.packing import SECONDS_PRICE
from learnloop.evaluation import OutcomeTable, verify_learning
from learnloop.loop import Loop, Workspace, find_settings, register_proven
from learnloop.registry import Proof
from tests.cli.calling import Call
from tests.signals import heed_interrupts
from tests.waiting import PATIENCE_SECONDS, eventually

ACTIONS = ["left", "right"]
GOAL = {"timestamp": "2026-01-01T10:00:01Z", "goal": "g", "action": "ls", "result": {"success": True}}


def register_version(workspace: Workspace, seed: int) -> None:
    """Registers a policy that learned which action each kind of task needs."""
    rng = np.random.default_rng(seed)

    def rewards(kind: str) -> list[float]:
        return [float(action == ("left" if kind == "x" else "right")) + rng.normal(0, 0.1) for action in ACTIONS]

    samples = []
    for number in range(300):
        kind, index = str(rng.choice(["x", "y"])), int(rng.integers(2))
        samples.append(Sample(f"u{number}", {"kind": kind}, ACTIONS, None, ACTIONS[index], 0.5, rewards(kind)[index]))
    kinds = [str(rng.choice(["x", "y"])) for _ in range(100)]
    contexts = [{"kind": kind} for kind in kinds]
    table = OutcomeTable([f"h{i}" for i in range(100)], contexts, ACTIONS, np.array(list(map(rewards, kinds))))
    verification = verify_learning(BanditTrainer(), samples, table)
    assert verification.verdict is Verdict.LEARNED, verification.reasons
    assert workspace.store.blobs is not None
    held_out = {"kind": "outcomes", "blob": workspace.store.blobs.put(table.to_bytes())}
    register_proven(workspace, "bot.route", verification, {"agent": "bot", "policy": "route", "held_out": held_out})


@pytest.fixture
def filled(tmp_path: Path, call: Call) -> Call:
    """A store with an episode and two versions of a policy."""
    with Loop("bot", seed=1) as loop:
        with loop.episode(task="t") as ep, loop.span("search", "execute_tool", query="q"):
            loop.choose("route", ACTIONS, {"kind": "x"})
            ep.reward(solved=0.75)
        for seed in (1, 2):
            register_version(loop.workspace, seed)
    return call


def leaf_commands() -> list[str]:
    """Returns every command that is not a group; another name of a command is left to the command's own."""
    context = click.Context(cli)
    top = {name: cli.get_command(context, name) for name in COMMANDS}
    found = []
    for name, command in top.items():
        if isinstance(command, click.Group):
            found += [f"{name} {child}" for child, each in command.commands.items() if each not in top.values()]
        else:
            found.append(name)
    return found


@pytest.mark.parametrize("name", ["", *COMMANDS, *leaf_commands()])
def test_every_command_has_help_with_examples(call: Call, name: str) -> None:
    outcome = call(*name.split(), "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("Usage: learnloop")
    if name in leaf_commands():
        examples = outcome.out.split("Examples:")[1].replace("--database postgresql://me@localhost/agents ", "")
        assert f"learnloop {name}" in examples
        assert "--json" in outcome.out


def test_other_names_of_commands_are_told_by_their_group(call: Call) -> None:
    examples = call("rl", "--help").out.split("Examples:")[1]
    assert "learnloop rl train" in examples
    assert "learnloop rl policy list" in examples


def test_help_of_the_table_is_that_of_the_command() -> None:
    context = click.Context(cli)
    for name, entry in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert (command.help or "").strip()
        assert len(entry.help) <= 90


def test_shell_completion_lists_commands() -> None:
    context = click.Context(cli)
    assert [item.value for item in cli.shell_complete(context, "po")] == ["policies"]
    assert cli.get_command(context, "nothing") is None


def test_init_makes_a_store_once(call: Call, tmp_path: Path) -> None:
    outcome = call("init", "--json")
    assert outcome.code == 0
    assert outcome.json()["schema"] == "learnloop.init/v1"
    assert (tmp_path / "learnloop.toml").read_text().startswith("# Settings")
    assert call("init").code == 0
    assert call("traces", "list", "--json").json() == {"schema": "learnloop.traces/v1", "data": [], "next_cursor": None}


def test_init_in_another_folder(call: Call, tmp_path: Path) -> None:
    assert call("init", "below/it").code == 0
    assert (tmp_path / "below" / "it" / ".learnloop" / "learnloop.db").exists()


@pytest.mark.parametrize(
    "command",
    ["traces list", "policies list", "policies evaluate x", "db current", "db backup b.tar", "policies show x"],
)
def test_without_a_store_nothing_is_made(call: Call, tmp_path: Path, command: str) -> None:
    outcome = call(*command.split())
    assert outcome.code == 3
    assert "learnloop init" in outcome.err
    assert outcome.out == ""
    assert list(tmp_path.iterdir()) == []


def test_doctor(call: Call) -> None:
    outcome = call("doctor", "--json")
    assert outcome.code == 7
    assert not outcome.json()["ok"]
    call("init")
    outcome = call("doctor", "--json")
    assert (outcome.code, outcome.json()["ok"]) == (0, True)
    assert {"python", "sqlite", "store", "write and read"} <= {check["name"] for check in outcome.json()["checks"]}
    assert "write and read" in call("doctor").out


def test_doctor_finds_a_damaged_policy(filled: Call, tmp_path: Path) -> None:
    assert filled("doctor").code == 0
    weights = next((tmp_path / ".learnloop" / "policies").glob("*/weights.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    outcome = filled("doctor", "--json")
    assert outcome.code == 7
    broken = [check for check in outcome.json()["checks"] if not check["ok"]]
    assert [check["found"] for check in broken] == ["CorruptError"]


def test_traces_import_list_show_export(call: Call, tmp_path: Path) -> None:
    (tmp_path / "g.jsonl").write_text(json.dumps(GOAL) + "\n{bad\n")
    outcome = call("traces", "import", "g.jsonl", "--agent", "shell")
    assert outcome.code == 0
    assert outcome.out.startswith("goal: 2 lines, 1 episodes, 1 rewards, 1 spans; 3 records are new")
    assert "line 2: not JSON" in outcome.err
    assert call("traces", "import", "g.jsonl", "--agent", "shell", "--json").json()["report"]["num_new"] == 0
    listed = call("traces", "list", "--agent", "shell", "--json").json()["data"]
    assert [row["episode"]["task_id"] for row in listed] == ["g"]
    episode_id = listed[0]["episode"]["episode_id"]
    assert episode_id in call("traces", "list").out
    assert "execute_tool ls" in call("traces", "show", episode_id).out
    shown = call("traces", "show", episode_id, "--json").json()
    assert (shown["schema"], len(shown["spans"]), len(shown["rewards"])) == ("learnloop.trace/v1", 1, 1)
    assert call("traces", "export", "all.jsonl", "--json").json()["num_records"] == 5
    assert call("traces", "export", "-").out == (tmp_path / "all.jsonl").read_text()


def test_traces_strict_import_of_a_bad_file(call: Call, tmp_path: Path) -> None:
    (tmp_path / "g.jsonl").write_text(json.dumps(GOAL) + "\n{bad\n")
    outcome = call("traces", "import", "g.jsonl", "--strict")
    assert (outcome.code, outcome.out) == (2, "")
    assert "line 2" in outcome.err
    assert call("traces", "list", "--json").json()["data"] == []


def test_traces_pages(call: Call, tmp_path: Path) -> None:
    lines = [json.dumps({**GOAL, "goal": f"g{i}"}) for i in range(7)]
    (tmp_path / "g.jsonl").write_text("\n".join(lines))
    call("traces", "import", "g.jsonl")
    seen: list[str] = []
    cursor: list[str] = []
    while True:
        page = call("traces", "list", "--limit", "3", "--json", *cursor).json()
        seen += [row["episode"]["task_id"] for row in page["data"]]
        if page["next_cursor"] is None:
            break
        cursor = ["--after", page["next_cursor"]]
    assert sorted(seen) == [f"g{i}" for i in range(7)]


def test_what_is_not_there_is_exit_3(filled: Call) -> None:
    for command in (
        "traces show nothing",
        "policies show nothing",
        "policies show bot.route@9",
        "traces import nothing",
    ):
        outcome = filled(*command.split())
        assert (outcome.code, outcome.out) == (3, ""), command
        assert "nothing" in outcome.err or "9" in outcome.err


def test_usage_errors_are_exit_2(filled: Call) -> None:
    for command in (
        "nothing",
        "traces list --limit 0",
        "policies prune bot.route",
        "policies evaluate bot.route --baseline nothing",
    ):
        outcome = filled(*command.split())
        assert (outcome.code, outcome.out) == (2, ""), command


def test_policy_list_and_show(filled: Call) -> None:
    rows = filled("policies", "list", "--json").json()["data"]
    assert [(row["version"]["version"], row["proven"], row["aliases"]) for row in rows] == [
        (1, True, []),
        (2, True, ["candidate"]),
    ]
    assert "bot.route@2" in filled("policies", "list").out
    shown = filled("policies", "show", "bot.route", "--json").json()
    assert shown["version"]["version"] == 2
    assert shown["version"]["parent_id"] == rows[0]["version"]["policy_version_id"]
    assert [each["verdict"] for each in shown["certificates"]] == ["learned"]
    assert "certificate" in filled("policies", "show", "bot.route@1").out


def test_a_policy_that_is_not_proven_is_shown_as_such(filled: Call, tmp_path: Path) -> None:
    artifact = PolicyArtifact("uniform", {}, {})
    with Workspace(find_settings(tmp_path / ".learnloop")) as workspace:
        workspace.registry.register("bot.route", artifact, None, lineage={}, allow_unproven=True)
    assert [row["proven"] for row in filled("policies", "list", "--json").json()["data"]] == [True, True, False]
    listed = [line.split() for line in filled("policies", "list").out.splitlines() if "bot.route@" in line]
    assert ["not" in line and "proven" in line for line in listed] == [False, False, True]
    assert "its learning is not proven: no alias can point to it" in filled("policies", "show", "bot.route@3").out
    assert "not proven" not in filled("policies", "show", "bot.route").out, "the latest that is proven"
    refused = filled("policies", "alias", "bot.route@3", "candidate", "--reason", "hope")
    assert (refused.code, "neither can 'candidate'" in refused.err) == (7, True)


def test_policy_alias_and_rollback(filled: Call) -> None:
    assert filled("policies", "alias", "bot.route@1", "champion", "--reason", "first").code == 0
    assert filled("policies", "alias", "bot.route@2", "champion", "--reason", "better").code == 0
    assert filled("policies", "show", "bot.route", "--json").json()["aliases"] == {
        "candidate": 2,
        "champion": 2,
        "previous": 1,
    }
    filled("policies", "alias", "bot.route@previous", "champion", "--reason", "roll back")
    assert filled("policies", "show", "bot.route", "--json").json()["version"]["version"] == 1


def test_policy_prune_keeps_what_is_needed(filled: Call) -> None:
    outcome = filled("policies", "prune", "bot.route", "--keep", "1", "--dry-run", "--json").json()
    assert outcome == {"schema": "learnloop.prune/v1", "dry_run": True, "removed": []}  # 1 is the parent of 2


def test_policy_prune_removes(call: Call, tmp_path: Path) -> None:
    with Loop("bot") as loop:
        for number in range(4):
            artifact = PolicyArtifact("linear", {}, {"w": np.full(3, number)})
            proof = Proof(verdict=Verdict.LEARNED, reasons=[], metrics={"reward": number / 10})
            loop.workspace.registry.register("bot.route", artifact, proof, lineage={})
    folder = tmp_path / ".learnloop" / "policies"
    assert len(list(folder.glob("*/weights.safetensors"))) == 4
    dry = call("policies", "prune", "bot.route", "--keep", "2", "--dry-run")
    assert dry.out.splitlines() == ["2 versions would be removed", "  bot.route@1", "  bot.route@2"]
    outcome = call("policies", "prune", "bot.route", "--keep", "2", "--json").json()
    assert [version["version"] for version in outcome["removed"]] == [1, 2]
    assert [row["version"]["version"] for row in call("policies", "list", "--json").json()["data"]] == [3, 4]
    assert len(list(folder.glob("*/weights.safetensors"))) == 2
    assert call("policies", "prune", "bot.route", "--keep", "2").out == "0 versions removed\n"


@pytest.mark.parametrize("name", ["bot.rout", "bot.route@1"])
def test_policy_prune_of_what_is_not_there(filled: Call, name: str) -> None:
    outcome = filled("policies", "prune", name, "--keep", "1")
    assert (outcome.code, outcome.out) == (3, "")
    assert "registered are 'bot.route'" in outcome.err


@pytest.mark.parametrize("reason", ["", "  "])
def test_policy_alias_needs_a_reason(filled: Call, reason: str) -> None:
    assert filled("policies", "alias", "bot.route@1", "champion", "--reason", reason).code == 2


def test_the_rewards_formula_is_in_the_help(call: Call) -> None:
    assert f"less {SECONDS_PRICE} x the CPU seconds" in " ".join(call("demo", "--help").out.split())


def test_eval(filled: Call) -> None:
    outcome = filled("policies", "evaluate", "bot.route", "--baseline", "random", "--json").json()
    assert outcome["schema"] == "learnloop.eval/v1"
    assert outcome["comparison"]["difference"] == pytest.approx(0.5, abs=0.05)
    assert outcome["comparison"]["p_value"] < 0.001
    text = filled("policies", "evaluate", "bot.route@1", "--baseline", "bot.route@2").out
    assert "bot.route@1" in text
    assert "bot.route@2" in text
    assert filled("policies", "evaluate", "bot.route", "--baseline", "best-fixed").code == 0


def test_db_backup_and_restore(filled: Call, tmp_path: Path) -> None:
    assert filled("db", "current", "--json").json()["schema"] == "learnloop.revision/v1"
    assert filled("db", "upgrade").code == 0
    assert filled("db", "backup", "b.tar", "--json").json()["num_bytes"] > 1000
    assert filled("db", "backup", "b.tar").code == 5
    before = filled("policies", "show", "bot.route", "--json").json()
    assert filled("db", "restore", "b.tar").code == 5
    assert filled("db", "restore", "b.tar", "--force").code == 0
    assert filled("--home", "other", "db", "restore", "b.tar").code == 0
    assert filled("--home", "other", "policies", "show", "bot.route", "--json").json() == before
    assert filled("--home", "other", "policies", "evaluate", "bot.route").code == 0
    assert filled("--home", "other", "doctor").code == 0
    data = bytearray((tmp_path / "b.tar").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "bad.tar").write_bytes(data)
    assert filled("--home", "third", "db", "restore", "bad.tar").code == 1


def test_a_database_that_is_not_ours(call: Call, tmp_path: Path) -> None:
    (tmp_path / ".learnloop").mkdir()
    (tmp_path / ".learnloop" / "learnloop.db").write_bytes(b"not a database at all" * 100)
    outcome = call("traces", "list")
    assert outcome.code == 1
    assert outcome.err.startswith("Error: ")
    assert "Traceback" not in outcome.err
    assert call("doctor").code == 7


def test_a_server_that_does_not_answer_is_exit_6(call: Call) -> None:
    outcome = call("--database", "postgresql://nobody@127.0.0.1:9/none?connect_timeout=1", "traces", "list")
    assert outcome.code == 6
    assert "Traceback" not in outcome.err


def test_a_password_among_the_parameters_is_never_printed(call: Call) -> None:
    outcome = call("--database", "postgresql://127.0.0.1:9/none?password=hunter2&connect_timeout=1", "traces", "list")
    assert outcome.code == 6
    assert "hunter2" not in outcome.out + outcome.err


def test_a_password_is_never_printed(call: Call) -> None:
    outcome = call("--database", "postgresql://me:hunter2@127.0.0.1:9/none?connect_timeout=1", "doctor")
    assert "hunter2" not in outcome.out + outcome.err


def test_against_postgresql(call: Call, postgres_url: str, tmp_path: Path) -> None:
    (tmp_path / "g.jsonl").write_text(json.dumps(GOAL))
    assert call("--database", postgres_url, "traces", "import", "g.jsonl").code == 0
    assert len(call("--database", postgres_url, "traces", "list", "--json").json()["data"]) == 1
    assert call("--database", postgres_url, "doctor").code == 0


def test_interrupt_is_exit_130(tmp_path: Path) -> None:
    place = tmp_path / "learnloop.db"
    environment = {**os.environ, "LEARNLOOP_HOME": str(tmp_path)}
    child = subprocess.Popen(
        [sys.executable, "-m", "learnloop", "demo"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )

    def has_chosen() -> bool:
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{place}?mode=ro", uri=True)) as store:
            return store.execute("SELECT 1 FROM decisions LIMIT 1").fetchone() is not None
        return False

    assert eventually(has_chosen)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == 130, err
    assert "Traceback" not in err


def test_settings_name_the_store(call: Call, tmp_path: Path) -> None:
    call("init")
    assert find_settings().origins["home"] == str(tmp_path / "learnloop.toml")
