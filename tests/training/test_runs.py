"""Runs: seeds side by side, resumed, looked at again, and stopped as a whole when one fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import msgspec
import pytest

from learnloop.core.errors import ConflictError, CorruptError, LearnloopError, NotFoundError, UsageError
from learnloop.training.options import make_options
from learnloop.training.run_files import held
from learnloop.training.runs import RUN_FILE, load_run, resume_run, start_run
from tests.signals import heed_interrupts
from tests.training.trainers.test_trainers import Spoilt, small
from tests.waiting import PATIENCE_SECONDS, eventually


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
    with pytest.raises(UsageError, match="observation"):
        start_run(tmp_path, options, [0, 1])  # alone the others would go on for hours
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
    (path,) = run.seed_folder(0).glob(f"best/*/{file}")
    path.chmod(0o644)
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
    eventually(lambda: list(folder.glob("*/seed-0/checkpoints/0*8???.safetensors")))
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert load_run(folder, "latest").record.status == "running"
    resumed = resume_run(folder, "latest").record.results[0]
    assert resumed.parameter_hash == whole.parameter_hash
    assert resumed.best_steps == whole.best_steps


DIED = r"\(process \d+\) ended by itself with exit code -9"
PRINTING = "tests.training.printing_env:learnloop-tests/Printing-v0"


def test_what_an_environment_prints_is_no_answer_of_its_process(tmp_path: Path) -> None:
    run = start_run(tmp_path, small("random", PRINTING), [0, 1])
    assert [result.num_steps for result in run.record.results] == [600, 600]


def test_a_process_that_dies_is_named_with_its_signal(tmp_path: Path) -> None:
    options = small("random", PRINTING, env_kwargs={"dies": True})
    with pytest.raises(LearnloopError, match=rf"the process of seed [01] {DIED}"):
        start_run(tmp_path, options, [0, 1])
    assert load_run(tmp_path, "latest").record.status == "failed"


def test_an_environment_of_this_process_alone_is_told(tmp_path: Path) -> None:
    Spoilt.count = -(10**6)  # it works here
    if "learnloop-tests/Here-v0" not in gymnasium.registry:
        gymnasium.register("learnloop-tests/Here-v0", entry_point=Spoilt)
    with pytest.raises(UsageError, match="module:Id"):
        start_run(tmp_path, small("random", "learnloop-tests/Here-v0"), [0, 1])


INTERRUPTED = """
import sys
from pathlib import Path
from learnloop.training.options import make_options
from learnloop.training.runs import start_run
start_run(Path(sys.argv[1]), make_options("ppo", "CartPole-v1", steps=10**9), [0, 1])
"""


def test_ctrl_c_ends_all_seeds_without_a_word_of_theirs(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        preexec_fn=heed_interrupts,
    )
    try:
        assert eventually(lambda: len(list(tmp_path.glob("*/seed-*/metrics.jsonl"))) == 2)
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does: parent and seeds
        _, told = child.communicate(timeout=PATIENCE_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # what would train for ever if this test fails
    assert told.count("Traceback") == 1  # that of this script, which does not catch it
    assert load_run(tmp_path, "latest").record.status == "interrupted"
    with pytest.raises(ConflictError, match="interrupted and has no results yet"):
        _ = load_run(tmp_path, "latest").best


def test_an_object_of_the_callers_stays_open(tmp_path: Path) -> None:
    """Asynchronous vector environments refuse to go on once they are closed."""
    env = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="async")
    run = start_run(tmp_path, small("random"), [0, 1], env=env)
    assert all(result.num_steps >= 600 for result in run.record.results)
    env.reset()
    env.close()


@pytest.mark.parametrize("seed", ["1", 1.0, True, None, -1, 2**63])
def test_seeds_are_whole_numbers(seed: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a seed is"):
        start_run(tmp_path, small("random"), [seed])
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_trained_by_one_process(tmp_path: Path) -> None:
    run = start_run(tmp_path, small("random"), [0])
    record = msgspec.structs.replace(run.record, status="running")
    (run.folder / RUN_FILE).write_bytes(msgspec.json.encode(record))
    with held(run.folder), pytest.raises(ConflictError, match="another process trains"):
        resume_run(tmp_path, "latest")
    assert load_run(tmp_path, "latest").record.status == "running"
    (run.seed_folder(0) / "result.json").write_text("{")
    with pytest.raises(CorruptError, match=r"result\.json cannot be read"):
        resume_run(tmp_path, "latest")


def test_a_record_of_another_format_is_refused(tmp_path: Path) -> None:
    run = start_run(tmp_path, small("random"), [0])
    record = msgspec.structs.replace(run.record, format="learnloop.run/v9")
    (run.folder / RUN_FILE).write_bytes(msgspec.json.encode(record))
    with pytest.raises(CorruptError, match=r"learnloop\.run/v9"):
        load_run(tmp_path, "latest")


def test_a_run_of_before_updates_were_kept_can_be_read(tmp_path: Path) -> None:
    run = start_run(tmp_path, make_options("random", "CartPole-v1", steps=300), [0])
    path = run.folder / "run.json"
    record = json.loads(path.read_text())
    for result in record["results"]:
        del result["best_updates"]
        for point in result["curve"]:
            del point["num_updates"]
    path.write_text(json.dumps(record))
    found = load_run(tmp_path, "latest")
    assert found.best.evaluate(3).mean == run.best.evaluate(3).mean
