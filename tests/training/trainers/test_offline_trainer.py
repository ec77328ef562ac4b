"""Trainings from a data set: budgets in updates, evaluation where there is an environment, resuming, proof, files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from learnloop.core.datasets import Dataset
from learnloop.core.errors import ConflictError, CorruptError, UsageError
from learnloop.core.records import Verdict
from learnloop.loop.training.training import training_options
from learnloop.training.options import TrainingOptions, make_options
from learnloop.training.run_files import read_dataset, read_metrics, write_dataset
from learnloop.training.runs import load_run, resume_run, start_run
from learnloop.training.trainers.seed_trainer import TrainingProgress
from learnloop.training.trainers.trainers import OfflineTrainer, make_trainer
from tests.training.logged import ENV, logged_contexts

SMALL: dict[str, Any] = {"net_arch": (16,), "batch_size": 32, "learning_rate": 3e-3}


def options(dataset: Dataset, algorithm: str = "iql", env: str | None = ENV, **fields: Any) -> TrainingOptions:
    fields = {"updates": 300, "eval_interval": 100, **fields}
    return make_options(algorithm, env, dataset=dataset, options=SMALL, **fields)


def test_an_algorithm_and_what_it_learns_from_must_fit() -> None:
    dataset = logged_contexts()
    with pytest.raises(UsageError, match=r"ppo learns by its own actions.*bc, cql, iql and awac|bc.*cql.*iql.*awac"):
        make_options("ppo", ENV, dataset=dataset)
    with pytest.raises(UsageError, match="cql learns from logged episodes; give a file"):
        make_options("cql", ENV)
    with pytest.raises(UsageError, match="takes no step in an environment"):
        make_options("bc", None, dataset=dataset, steps=100)
    with pytest.raises(UsageError, match="takes no step in an environment"):
        make_options("bc", None, dataset=dataset, n_envs=4)
    with pytest.raises(UsageError, match="ppo ends after environment steps"):
        make_options("ppo", ENV, updates=10)
    with pytest.raises(UsageError, match="updates is 0"):
        make_options("bc", None, dataset=dataset, updates=0)


def test_the_usual_budget() -> None:
    found = make_options("bc", None, dataset=logged_contexts())
    assert (found.steps, found.updates, found.budget, found.eval_interval) == (None, 20_000, 20_000, 1_000)
    assert found.dataset == logged_contexts().fingerprint()
    assert logged_contexts(seed=1).fingerprint() != found.dataset


def test_what_is_learned_is_tried_in_the_environment_that_was_logged(tmp_path: Path) -> None:
    dataset = logged_contexts()
    seen: list[TrainingProgress] = []
    trainer = OfflineTrainer(options(dataset), 0, dataset, folder=tmp_path, on_progress=seen.append)
    result = trainer.run()
    assert (result.num_steps, result.num_episodes, result.num_updates) == (400, 400, 300)
    assert [point.num_updates for point in result.curve] == [100, 200, 300]
    assert result.best_return == 1.0  # the best policy pays 1 in every episode, the uniform one 0
    assert seen[-1].fraction == 1
    assert seen[-1].is_offline
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert {line["num_steps"] for line in lines} == {400}  # of the data set: no environment step is taken
    assert [line["num_updates"] for line in lines if "eval/mean_reward" in line] == [100, 200, 300]
    assert all("time/fps" not in line and "time/updates_per_second" in line for line in lines)


def test_without_an_environment_nothing_is_said_of_what_it_earns(tmp_path: Path) -> None:
    dataset = logged_contexts()
    run = start_run(tmp_path, options(dataset, env=None), [0, 1], dataset=dataset)
    assert [result.best_return for result in run.record.results] == [None, None]
    assert [result.best_updates for result in run.record.results] == [300, 300]
    with pytest.raises(UsageError, match="what they earn is not measured"):
        run.evaluate()
    with pytest.raises(UsageError, match="choose one of seeds"):
        _ = run.best
    policy = run.seeds[1].policy
    assert [int(policy.act(np.array([shown], dtype=np.float32))) for shown in (-1.0, 1.0)] == [0, 1]
    later = load_run(tmp_path, run.record.run_id, env=lambda: gymnasium.make(ENV))
    assert later.seeds[0].evaluate(20).mean == 1.0
    with pytest.raises(UsageError, match=r"nothing was evaluated while it learned.*train again with env="):
        later.seeds[0].prove()


def test_an_environment_of_other_spaces_is_refused() -> None:
    dataset = logged_contexts()
    with pytest.raises(UsageError, match=r"CartPole-v1 has .* and the data set of a test"):
        make_trainer(options(dataset, env="CartPole-v1"), 0, dataset)


def test_another_data_set_is_refused() -> None:
    dataset = logged_contexts()
    with pytest.raises(CorruptError, match="not the one that the training is to learn from"):
        make_trainer(options(dataset), 0, logged_contexts(seed=1))
    with pytest.raises(CorruptError, match="is not there"):
        make_trainer(options(dataset), 0)


@pytest.mark.parametrize("algorithm", ["bc", "cql", "iql", "awac"])
def test_resuming_equals_going_on(algorithm: str, tmp_path: Path) -> None:
    dataset = logged_contexts()
    wanted = options(dataset, algorithm, checkpoint_interval=70)
    whole = OfflineTrainer(wanted, 3, dataset, folder=tmp_path / "whole").run()

    class Killed(OfflineTrainer):
        def _checkpoint(self) -> None:
            super()._checkpoint()
            if self.algorithm.num_updates >= 140:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Killed(wanted, 3, dataset, folder=tmp_path / "killed").run()
    resumed = OfflineTrainer(wanted, 3, dataset, folder=tmp_path / "killed")
    assert resumed.resume() == 140
    found = resumed.run()
    assert found.parameter_hash == whole.parameter_hash
    assert [point.mean_return for point in found.curve] == [point.mean_return for point in whole.curve]


def test_learning_from_logs_is_proven_against_twins(tmp_path: Path) -> None:
    """F4.5: where rewards were dealt to others' actions nothing is learned; so rewards matter."""
    dataset = logged_contexts()
    run = start_run(tmp_path, options(dataset), list(range(5)), dataset=dataset)
    proof = run.best.prove(num_episodes=100)
    assert proof.verdict is Verdict.LEARNED
    controls = next(test for test in proof.tests if test.against == "shuffled")
    assert controls.p_adjusted <= 0.05
    assert np.mean(controls.values) < 0.6  # one of four greedy policies is right, and one in four guesses
    assert proof.seed_means == [1.0] * 5


def test_copying_is_not_learning(tmp_path: Path) -> None:
    """Behaviour cloning of a uniform log earns what the log earned."""
    dataset = logged_contexts()
    run = start_run(tmp_path, options(dataset, "bc"), [0], dataset=dataset)
    assert run.best.prove(num_episodes=100).verdict is not Verdict.LEARNED


def test_a_run_that_failed_is_resumed_from_its_own_data(tmp_path: Path) -> None:
    dataset = logged_contexts()
    run = start_run(tmp_path, options(dataset, "bc"), [0], dataset=dataset)
    with pytest.raises(ConflictError, match="has completed"):
        resume_run(tmp_path, run.record.run_id)
    assert run.dataset_file is not None
    assert read_dataset(run.dataset_file).fingerprint() == dataset.fingerprint()


def test_data_sets_on_the_disk(tmp_path: Path) -> None:
    dataset = replace(logged_contexts(20), masks=np.ones((20, 2), dtype=np.bool_), action_names=["left", "right"])
    path = tmp_path / "folder" / "dataset.safetensors"
    write_dataset(path, dataset)
    found = read_dataset(path)
    assert found.fingerprint() == dataset.fingerprint()
    assert (found.spaces, found.goals, found.action_names, found.source) == (
        dataset.spaces,
        list(dataset.goals),
        ["left", "right"],
        "a test",
    )
    whole = path.read_bytes()
    for at in (3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptError):
            read_dataset(path)
    path.write_bytes(whole[:-9])
    with pytest.raises(CorruptError):
        read_dataset(path)
    with pytest.raises(CorruptError):
        read_dataset(tmp_path / "missing")


def test_an_environment_object_to_evaluate_in() -> None:
    """It has envs of its own, which a training from a data set does not need."""
    dataset = logged_contexts()
    env = gymnasium.make_vec(ENV, num_envs=3)
    found = training_options("bc", env, dataset=dataset, options={"updates": 10})
    env.close()
    assert (found.updates, found.n_envs) == (10, 1)


def test_a_twin_cannot_be_made_of_single_steps(tmp_path: Path) -> None:
    dataset = logged_contexts(50)
    wanted = make_options("cql", ENV, dataset=dataset, updates=20, options={**SMALL, "batch_size": 1})
    run = start_run(tmp_path, wanted, [0], dataset=dataset)
    with pytest.raises(UsageError, match="batch_size of at least 2"):
        run.best.prove(num_episodes=20)
