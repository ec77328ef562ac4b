"""``learnloop train`` and ``learnloop policies evaluate`` on what it made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from learnloop.cli.main import run


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEARNLOOP_HOME", raising=False)
    monkeypatch.delenv("LEARNLOOP_DATABASE", raising=False)


def test_train_register_and_eval(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """All of it in the database of the command line; that the default one does is shown by ``docs/training.md``."""
    database = ["--database", f"sqlite:///{tmp_path / 'other.db'}"]
    arguments = ["train", "--env", "cartpole", "--steps", "16000", "--seeds", "2", "--set", "preset=many-envs"]
    assert run([*database, *arguments, "--register", "cart", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["schema"] == "learnloop.train/v1"
    assert found["run"]["status"] == "completed"
    assert found["evaluation"]["means"][0] > 150
    assert found["version"]["policy"] == "cart"
    assert run([*database, "policies", "evaluate", "cart", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["comparison"]["mean"] > 150
    assert run([*database, "policies", "list"]) == 0
    assert "cart@1" in capfd.readouterr().out
    assert run([*database, "policies", "show", "cart"]) == 0
    assert (tmp_path / "other.db").exists()
    assert not (tmp_path / ".learnloop" / "learnloop.db").exists()


def test_the_table_shows_each_seed(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--agent", "random", "--episodes", "5", "--seeds", "2"]) == 0  # the seed's own option
    out = capfd.readouterr().out
    assert "held-out return" in out
    assert "over 2 seeds" in out
    assert "too few for an interval" in out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--algorithm", "pppo"], 2, "did you mean 'ppo'"),
        (["--env", "CartPole-v99"], 3, "did you mean"),
        (["--set", "gamma"], 2, "NAME=VALUE"),
        (["--set", "gamma=1.2"], 2, "gamma is 1.2"),
        (["--set", "gamma=0.9", "--set", "gamma=0.8"], 2, "set twice"),
        (["--steps", "0"], 2, "0"),
        (["--resume", "latest"], 3, "no run 'latest'"),
        (["--algorithm", "dqn", "--env", "Pendulum-v1"], 2, "discrete"),
        (["--device", "quantum", "--steps", "100"], 2, "quantum"),
        (["--resume", "latest", "--steps", "9", "--set", "gamma=0.5"], 2, "leave out --steps, --set"),
        (["--agent", "dqn", "--algorithm", "ppo"], 2, "give one of them"),
        (["--register", "a/b"], 2, "cannot name a policy"),
        (["--set", "preset=[1]"], 2, "preset is [1]"),
        (["--set", "n_steps=1000000000000"], 2, "needs more memory"),
    ],
)
def test_a_wrong_call_is_told(
    arguments: list[str], code: int, words: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["train", *arguments]) == code
    captured = capfd.readouterr()
    assert words in captured.err
    assert captured.out == ""


def test_what_did_not_learn_exits_with_seven(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", "--steps", "256", "--set", "learning_rate=0", "--register", "nothing"]
    assert run(arguments) == 7
    assert "no_signal" in capfd.readouterr().err


def test_resuming(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--algorithm", "random", "--steps", "300", "--json"]) == 0
    name = json.loads(capfd.readouterr().out)["run"]["run_id"]
    assert run(["train", "--resume", name]) == 5
    assert "has completed" in capfd.readouterr().err


def test_what_environments_print_is_not_in_the_json(capfd: pytest.CaptureFixture[str]) -> None:
    env = "tests.training.printing_env:learnloop-tests/Printing-v0"
    assert run(["train", "--algorithm", "random", "--env", env, "--steps", "100", "--json"]) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out)["schema"] == "learnloop.train/v1"
    assert "hello" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", ".x:y"], "'.x:y' names the module '.x'"),
        (["--set", 'env_kwargs={"max_episode_steps": -1}'], "max_episode_steps of CartPole-v1 is -1"),
        (["--set", 'env_kwargs={"render_mode": "nope"}'], "render_mode of CartPole-v1 is 'nope'"),
        (["--set", "device=cuda", "--device", "cpu"], "--device and --set device say the same"),
        (["--set", "checkpoint_interval=5", "--checkpoint-interval", "7"], "--checkpoint-interval and --set"),
    ],
)
def test_what_would_fail_later_or_be_passed_over_is_told(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", "--steps", "100", *arguments]) == 2
    shown = " ".join(capfd.readouterr().err.split())
    assert message in shown
    assert "Traceback" not in shown


def test_a_file_of_traces(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """S0.6: what is learned from a log, and what of the log was left out, is said."""
    lines = [
        json.dumps(
            {
                "timestamp": f"2026-01-01T10:{number // 60:02d}:{number % 60:02d}Z",
                "goal": f"goal {number // 3}",
                "action": ["ls", "rm"][number % 2],
                "result": {"success": number % 2 == 0},
            }
        )
        for number in range(60)
    ]
    file = tmp_path / "traces.jsonl"
    file.write_text("\n".join([*lines, "no json"]))
    arguments = ["train", "--algorithm", "cql", "--trace-file", str(file), "--updates", "50", "--env", "jsonl"]
    assert run([*arguments, "--set", "net_arch=[16]"]) == 0
    shown = capfd.readouterr()
    assert "learning from 60 steps of 20 episodes: ls 30, rm 30" in shown.err
    assert "left out: 1 lines; line 61" in shown.err
    assert "what these policies earn is not measured" in shown.out
    assert run([*arguments[:-2], "--register", "x"]) == 2
    assert "name it with --env" in capfd.readouterr().err
    assert run([*arguments, "--register", "x"]) == 2  # a replay is not what was logged
    assert "name it with --env" in capfd.readouterr().err
    assert run(["train", "--trace-file", str(file), "--algorithm", "ppo"]) == 2
    assert "learns by its own actions" in capfd.readouterr().err
