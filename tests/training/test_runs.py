"""Runs: seeds side by side, resumed, looked at again, and stopped as a whole when one fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import pytest

from learnloop.core.errors import ConflictError, CorruptError, NotFoundError, UsageError
from learnloop.training.options import make_options
from learnloop.training.runs import RUN_FILE, load_run, resume_run, start_run
from tests.training.test_trainer import Spoilt, small


def test_seeds_side_by_side_are_those_of_one_process(tmp_path: Path) -> None:
    options = small("ppo")
    together = start_run(tmp_path / "a", options, [0, 1])
    alone = [start_run(tmp_path / "b", options, [seed]) for seed in (0, 1)]
    hashes = [result.parameter_hash for result in together.record.results]
    assert hashes == [run.record.results[0].parameter_hash for run in alone]
    assert hashes[0] != hashes[1]
    assert together.record.status == "completed"


def test_a_run_can_be_looked_at_again(tmp_path: Path) -> None:
    run = start_run(tmp_path, small("ppo"), [4])
    again = load_run(tmp_path, "latest")
    assert again.record == run.record
    assert again.best.seed == 4
    assert again.best.evaluate(5) == run.best.evaluate(5)
    evaluation = again.evaluate(5)
    assert evaluation.means == [run.best.evaluate(5).mean]
    assert evaluation.summary.iqm_interval is None
    assert "too few" in (evaluation.summary.reason or "")


def test_the_best_seed_is_that_of_the_best_policy(tmp_path: Path) -> None:
    run = start_run(tmp_path, small("ppo"), [0, 1, 2], jobs=2)
    returns = {result.seed: result.best_return for result in run.record.results}
    assert returns[run.best.seed] == max(returns.values())
    assert [seed.seed for seed in run.seeds] == [0, 1, 2]


def test_an_environment_of_ones_own(tmp_path: Path) -> None:
    def make() -> gymnasium.Env:  # type: ignore[type-arg]
        return gymnasium.make("CartPole-v1")

    run = start_run(tmp_path, small("ppo"), [0, 1], env=make)
    assert run.record.own_env
    assert run.best.evaluate(3).returns
    again = load_run(tmp_path, "latest")
    with pytest.raises(UsageError, match="hand it over again"):
        again.best.evaluate(3)
    assert load_run(tmp_path, "latest", env=make).best.evaluate(3) == run.best.evaluate(3)


def test_a_failure_is_kept_with_the_run(tmp_path: Path) -> None:
    Spoilt.count = 0
    with pytest.raises(UsageError):
        start_run(tmp_path, small("ppo"), [0], env=Spoilt)
    (folder,) = tmp_path.iterdir()
    record = load_run(tmp_path, folder.name).record
    assert record.status == "failed"
    assert "nan" in (record.error or "").lower()


def test_a_seed_that_fails_stops_the_others(tmp_path: Path) -> None:
    options = make_options("ppo", "tests.training.failing_env:learnloop-tests/Failing-v0", steps=10**8, n_envs=1)
    begun = time.monotonic()
    with pytest.raises(UsageError, match="observation"):
        start_run(tmp_path, options, [0, 1])
    assert time.monotonic() - begun < 60
    assert load_run(tmp_path, "latest").record.status == "failed"


def test_what_cannot_be_found_or_resumed(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no run 'latest'"):
        load_run(tmp_path, "latest")
    run = start_run(tmp_path, small("random"), [0])
    with pytest.raises(NotFoundError, match=run.record.run_id):
        load_run(tmp_path, "other")
    with pytest.raises(ConflictError, match="has completed"):
        resume_run(tmp_path, run.record.run_id)
    with pytest.raises(UsageError, match="each of them once"):
        start_run(tmp_path, small("random"), [0, 0])
    (run.folder / RUN_FILE).write_text("{")
    with pytest.raises(CorruptError):
        load_run(tmp_path, run.record.run_id)


@pytest.mark.parametrize("file", ["policy.json", "weights.safetensors"])
def test_a_changed_policy_is_refused(tmp_path: Path, file: str) -> None:
    run = start_run(tmp_path, small("ppo"), [0])
    path = run.seed_folder(0) / "best" / file
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError):
        _ = run.best


KILLED = """
import sys
from pathlib import Path
from learnloop.training.options import make_options
from learnloop.training.runs import start_run
options = make_options("ppo", "CartPole-v1", steps=24_000, checkpoint_interval=4_000, eval_interval=4_000)
start_run(Path(sys.argv[1]), options, [0])
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """B10, S0.8: kill -9 while it trains; resumed, it ends with the parameters of the uninterrupted run."""
    options = make_options(
        "ppo", "CartPole-v1", steps=24_000, options={}, checkpoint_interval=4_000, eval_interval=4_000
    )
    whole = start_run(tmp_path / "whole", options, [0]).record.results[0]
    folder = tmp_path / "killed"
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)])
    deadline = time.monotonic() + 60
    while not list(folder.glob("*/seed-0/checkpoints/0*8???")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert load_run(folder, "latest").record.status == "running"
    resumed = resume_run(folder, "latest").record.results[0]
    assert resumed.parameter_hash == whole.parameter_hash
    assert resumed.best_steps == whole.best_steps
