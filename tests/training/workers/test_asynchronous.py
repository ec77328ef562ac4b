"""A3C across processes: A2C with one worker, its equal with two, and no process or memory left whatever happens."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gymnasium
import msgspec
import numpy as np
import psutil
import pytest

from learnloop.algorithms.base.states import part_of
from learnloop.core.errors import CorruptError, DivergedError, LearnloopError, UsageError
from learnloop.training.checkpoints import newest_checkpoint
from learnloop.training.options import TrainingOptions, make_options
from learnloop.training.run_files import read_metrics
from learnloop.training.runs import start_run
from learnloop.training.trainers.seed_trainer import SeedResult, TrainingProgress
from learnloop.training.trainers.trainers import EnvTrainer, make_trainer
from learnloop.training.workers.asynchronous import AsynchronousTrainer
from tests.signals import heed_interrupts
from tests.training.worker_envs import FAULTY, Faulty, make_well
from tests.waiting import PATIENCE_SECONDS, eventually


def small(env: str = "CartPole-v1", algorithm: str = "a3c", **others: Any) -> TrainingOptions:
    given = {"net_arch": (16,), **others.pop("options", {})}
    fields = {"steps": 600, "n_envs": 2, "eval_interval": 300, "eval_episodes": 2, **others}
    return make_options(algorithm, env, options=given, **fields)


@contextmanager
def nothing_left() -> Iterator[None]:
    """Checks that no process, no open file and no named shared memory is left."""
    me, shared = psutil.Process(), Path("/dev/shm")

    def found() -> tuple[set[int], int, set[str]]:
        ours = ("psm_*", "*learnloop*")  # others have memory there too
        names = {each.name for pattern in ours for each in shared.glob(pattern)}
        return {each.pid for each in me.children(recursive=True)}, me.num_fds(), names

    before = found()
    yield
    processes, handles, names = found()
    assert processes <= before[0]
    assert handles <= before[1]
    assert names <= before[2]


ONE: dict[str, dict[str, Any]] = {
    "plain": {},
    "scaled": {"options": {"normalize_observations": True, "normalize_rewards": True, "dropout": 0.2}},
    "vector": {"vectorization": "vector"},
    "shuffled": {"shuffled": True},
    "schedule": {"options": {"learning_rate": "lin_0.01"}},
}


@pytest.mark.parametrize(
    "others",
    [pytest.param(each, id=name, marks=[] if name == "plain" else [pytest.mark.slow]) for name, each in ONE.items()],
)
def test_with_one_worker_it_is_a2c_to_the_bit(others: dict[str, Any]) -> None:
    """S0.3: the same parameters, from the same episodes; nothing is ever stale."""
    ours = dict(others)
    ours["options"] = {**ours.get("options", {}), "num_workers": 1}
    with nothing_left():
        trainer = AsynchronousTrainer(small(**ours), 5)
        found = trainer.run()
    same = {**others, "steps": found.num_steps}  # of rollouts in which envs reset themselves: not a multiple of 10
    wanted = EnvTrainer(small(algorithm="a2c", **same), 5).run()
    assert found.parameter_hash == wanted.parameter_hash
    assert found.num_updates == wanted.num_updates >= 60
    assert found.num_episodes == wanted.num_episodes > 0
    if "vectorization" not in others:
        assert [point.mean_return for point in found.curve] == [point.mean_return for point in wanted.curve]
    assert trainer.algorithm.staleness_max == 0


def test_two_workers_share_one_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.training.trainers.seed_trainer.LOG_SECONDS", 0.0)
    seen: list[TrainingProgress] = []
    with nothing_left():
        trainer = make_trainer(small(steps=3000, eval_interval=1000), 0, folder=tmp_path, on_progress=seen.append)
        assert isinstance(trainer, AsynchronousTrainer)
        result = trainer.run()
    assert result.num_steps == 3000
    assert result.num_updates == 300
    assert result.num_episodes > 30
    assert len(result.curve) == 3
    assert result.best_return == max(point.mean_return for point in result.curve)
    assert [each.num_steps for each in seen] == sorted(each.num_steps for each in seen)
    assert seen[-1].fraction == 1
    lines = read_metrics(tmp_path / "metrics.jsonl")
    stale = [line["train/staleness_mean"] for line in lines if "train/staleness_mean" in line]
    assert np.mean(stale) > 0.2  # two workers, so that mostly the other one's update came between
    assert trainer.algorithm.staleness_max >= 1
    names = set().union(*lines)
    assert {"train/staleness_max", "train/num_stale_dropped", "train/policy_loss", "rollout/ep_rew_mean"} <= names


def test_stale_gradients_are_dropped_and_their_steps_count(tmp_path: Path) -> None:
    options = small(steps=3000, options={"max_staleness": 0, "num_workers": 3})
    trainer = AsynchronousTrainer(options, 0, folder=tmp_path)
    result = trainer.run()
    dropped = trainer.algorithm.num_stale_dropped
    assert dropped > 0
    assert result.num_updates == 300 - dropped
    lines = [line for line in read_metrics(tmp_path / "metrics.jsonl") if "train/num_stale_dropped" in line]
    assert lines[-1]["train/num_stale_dropped"] == dropped


@pytest.mark.slow
def test_scales_are_of_what_all_workers_saw() -> None:
    options = small(options={"normalize_observations": True, "normalize_rewards": True})
    trainer = AsynchronousTrainer(options, 0)
    trainer.run()
    moments = trainer.algorithm.moments()
    assert moments[0] == 600  # observations that were acted on, of both
    assert moments[9] == 600  # rewards
    assert (moments[5:9] > 0).all()


def test_it_ends_after_so_many_episodes() -> None:
    result = AsynchronousTrainer(small(steps=None, episodes=30), 0).run()
    assert 30 <= result.num_episodes < 40
    assert result.num_steps < 3000


@pytest.mark.slow
def test_environments_of_workers_in_further_processes() -> None:
    with nothing_left():
        assert AsynchronousTrainer(small(vectorization="subprocess"), 0).run().num_steps == 600


@pytest.mark.slow
def test_a_class_that_can_be_imported_is_found_by_workers() -> None:
    """Also one that makes them with arguments."""
    for env, kwargs in ((Faulty, {"fault": "raise", "after": 10**9}), (make_well, {})):
        options = small("its description", env_kwargs=kwargs)
        assert AsynchronousTrainer(options, 0, env=env).run().num_updates == 60


@pytest.mark.parametrize(
    "env", [lambda: Faulty(), gymnasium.make("CartPole-v1"), Faulty().render], ids=["lambda", "object", "method"]
)
def test_what_workers_cannot_make_again_is_refused(env: Any) -> None:
    with nothing_left(), pytest.raises(UsageError, match="module:Id"):
        AsynchronousTrainer(small("its description", n_envs=1), 0, env=env)


def test_an_id_of_this_process_alone_is_told() -> None:
    if "learnloop-tests/OfHere-v0" not in gymnasium.registry:
        gymnasium.register("learnloop-tests/OfHere-v0", entry_point=Faulty)
    with nothing_left(), pytest.raises(UsageError, match=r"worker [01]: .*module:Id"):
        AsynchronousTrainer(small("learnloop-tests/OfHere-v0"), 0).run()


def test_an_algorithm_without_workers_is_refused() -> None:
    with pytest.raises(UsageError, match="a2c has no workers"):
        AsynchronousTrainer(small(algorithm="a2c"), 0)


# Faults ----------------------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[type[LearnloopError], str]] = {
    "kill": (LearnloopError, r"worker [01] \(process \d+\) ended by itself with exit code -9"),
    "exit": (LearnloopError, r"worker [01] \(process \d+\) ended by itself with exit code 5"),
    "raise": (LearnloopError, r"(?s)worker [01]: .*the wheel came off.*Traceback"),
    "nan": (LearnloopError, r"worker [01]: .*nan"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_worker_that_fails_stops_the_training_and_is_named(fault: str, tmp_path: Path) -> None:
    kind, words = FAULTS[fault]
    kwargs = {"fault": fault, "after": 400, "only": str(tmp_path / "taken")}
    with nothing_left(), pytest.raises(kind, match=words):
        AsynchronousTrainer(small(FAULTY, env_kwargs=kwargs, steps=10**7, eval_interval=10**7), 0).run()


def test_a_worker_that_is_killed_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.training.trainers.seed_trainer.LOG_SECONDS", 0.0)
    others = {each.pid for each in psutil.Process().children()}  # of earlier tests: a database, a tracker
    killed: list[int] = []

    def kill(progress: TrainingProgress) -> None:
        if not killed and progress.num_steps > 200:
            killed.extend([each.pid for each in psutil.Process().children() if each.pid not in others][:1])
            os.kill(killed[0], signal.SIGKILL)

    trainer = AsynchronousTrainer(small(steps=10**7, eval_interval=10**7), 0, on_progress=kill)
    with nothing_left():
        try:
            trainer.run()
        except LearnloopError as error:
            told = str(error)
    assert re.match(rf"worker [01] \(process {killed[0]}\) ended by itself with exit code -9", told)


@pytest.mark.slow
def test_a_worker_that_hangs_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one goes on; at the end, and when it is stopped, the one that hangs is killed."""
    monkeypatch.setattr("learnloop.training.workers.actors.CLOSE_SECONDS", 0.5)
    kwargs = {"fault": "hang", "after": 50, "only": str(tmp_path / "taken")}
    with nothing_left():
        result = AsynchronousTrainer(small(FAULTY, env_kwargs=kwargs, steps=2000, eval_interval=10**7), 0).run()
        assert result.num_steps == 2000
        assert (tmp_path / "taken").exists()  # it would hang for an hour


def test_numbers_that_are_not_finite_stop_it_with_the_update() -> None:
    trainer = AsynchronousTrainer(small(options={"learning_rate": 10.0, "max_grad_norm": None}, steps=10**6), 0)
    taken = trainer.algorithm.apply_gradient

    def spoil(gradient: Any, num_updates: int) -> bool:
        if trainer.algorithm.num_updates == 7:
            gradient = gradient * np.float32(np.nan)
        return taken(gradient, num_updates)

    trainer.algorithm.apply_gradient = spoil  # type: ignore[method-assign]
    with nothing_left(), pytest.raises(DivergedError, match="update 8"):
        trainer.run()


LONG = """
import sys
from pathlib import Path
from learnloop.training.options import make_options
from learnloop.training.runs import start_run
start_run(Path(sys.argv[1]), make_options("a3c", "CartPole-v1", steps=10**9), [0])
"""
HANGING = """
import sys
from learnloop.training.workers.asynchronous import AsynchronousTrainer
from learnloop.training.options import make_options
from tests.training.worker_envs import Faulty
kwargs = {"fault": "hang", "after": 100}  # more than the steps of the trial before the training
AsynchronousTrainer(make_options("a3c", "its place", steps=10**9, n_envs=1, env_kwargs=kwargs), 0, env=Faulty).run()
"""


def members(group: int) -> list[int]:
    """Returns the processes of a process group that still run."""
    found = []
    for each in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.Error):
            if os.getpgid(each.pid) == group and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each.pid)
    return found


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_that_hang_end_with_their_learner(how: signal.Signals) -> None:
    """They look at nothing while a step of their environment lasts."""
    child = subprocess.Popen([sys.executable, "-c", HANGING], start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        assert eventually(lambda: len(members(child.pid)) == 3)
        time.sleep(2.0)  # after the 100 steps that they take
        os.kill(child.pid, how)
        child.wait(PATIENCE_SECONDS)
        assert eventually(lambda: not members(child.pid))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["interrupt", "kill"])
def test_when_the_learner_is_stopped_no_worker_is_left(how: str, tmp_path: Path) -> None:
    """Ctrl-C ends all without a word of the workers; a learner that is killed takes them along."""
    child = subprocess.Popen(
        [sys.executable, "-c", LONG, str(tmp_path)],
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        preexec_fn=heed_interrupts,
    )
    try:
        assert eventually(lambda: bool(list(tmp_path.glob("*/seed-*/metrics.jsonl"))))
        assert len(members(child.pid)) == 3
        if how == "interrupt":
            os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        else:
            os.kill(child.pid, signal.SIGKILL)
        _, told = child.communicate(timeout=PATIENCE_SECONDS)
        assert eventually(lambda: not members(child.pid))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # what would train for ever if this test fails
    assert told.count("Traceback") == (1 if how == "interrupt" else 0), told


# Going on --------------------------------------------------------------------------------------------------------


class Killed(Exception):
    """Stops a training as a kill would."""


def cut(options: TrainingOptions, folder: Path, after: int) -> AsynchronousTrainer:
    """Trains until ``after`` updates and stops there."""
    trainer = AsynchronousTrainer(options, 1, folder=folder)
    taken = trainer.algorithm.apply_gradient

    def dies(gradient: Any, num_updates: int) -> bool:
        if trainer.algorithm.num_updates == after:
            raise Killed
        return taken(gradient, num_updates)

    trainer.algorithm.apply_gradient = dies  # type: ignore[method-assign]
    with pytest.raises(Killed):
        trainer.run()
    return trainer


def test_a_resumed_training_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """B10: weights, optimiser, scales and counters exactly; what workers did at the time is begun anew."""
    options = small(steps=1200, checkpoint_interval=200, options={"normalize_observations": True, "max_staleness": 0})
    with nothing_left():
        cut(options, tmp_path, 50)
    kept = newest_checkpoint(tmp_path / "checkpoints")
    trainer = AsynchronousTrainer(options, 1, folder=tmp_path)
    assert trainer.resume() == kept.position >= 400
    algorithm = trainer.algorithm
    values, tensors = kept.values["algorithm"], part_of(kept.tensors, "algorithm/")
    assert algorithm.num_steps == values["num_steps"] == kept.position
    assert algorithm.num_updates == values["num_updates"] > 0
    assert algorithm.num_stale_dropped == values["num_stale_dropped"]
    np.testing.assert_array_equal(algorithm.network.parameters, tensors["parameters"])
    for name, value in algorithm.optimizer.state().items():
        np.testing.assert_array_equal(value, tensors[f"optimizer.{name}"])
    assert algorithm.moments()[0] == tensors["observation_scaler.count"][0] == kept.position
    with nothing_left():
        result = trainer.run()
    assert result.num_steps == 1200
    assert result.num_updates + algorithm.num_stale_dropped == 120
    steps = [line["num_steps"] for line in read_metrics(tmp_path / "metrics.jsonl")]
    assert steps == sorted(steps)
    with pytest.raises(CorruptError, match="other options"):
        AsynchronousTrainer(small(), 1, folder=tmp_path).resume()


def test_one_that_had_ended_starts_no_worker(tmp_path: Path) -> None:
    options = small(checkpoint_interval=600)
    AsynchronousTrainer(options, 1, folder=tmp_path).run()
    trainer = AsynchronousTrainer(options, 1, folder=tmp_path)
    trainer.resume()
    trainer._start = lambda: pytest.fail("workers were started")  # type: ignore[method-assign]
    assert trainer.run().num_steps == 600


@pytest.mark.slow
def test_several_seeds_train_side_by_side(tmp_path: Path) -> None:
    run = start_run(tmp_path, small(), [0, 1])
    assert [result.num_steps for result in run.record.results] == [600, 600]
    text = (run.folder / "run.json").read_text()
    assert json.loads(text)["options"]["config"]["num_workers"] == 2
    assert re.search(r'"status": "completed"', text)


# Learning --------------------------------------------------------------------------------------------------------


def late_means(algorithm: str, seeds: range) -> list[float]:
    options = small("learnloop/Identity-v0", algorithm, steps=3000, n_envs=8, eval_interval=500, eval_episodes=10)
    options = msgspec.structs.replace(options, config={**options.config, "learning_rate": "lin_0.003"})
    results: list[SeedResult] = [make_trainer(options, seed).run() for seed in seeds]
    return [result.curve[-1].mean_return for result in results]


@pytest.mark.slow
def test_it_learns_as_a2c() -> None:
    """At least 90 of 100 with each seed, as Stable-Baselines3's tests/test_identity.py demands of A2C."""
    for algorithm in ("a2c", "a3c"):
        found = late_means(algorithm, range(3))
        assert min(found) >= 90, (algorithm, found)
