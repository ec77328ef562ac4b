"""One seed of a training: the same again, the same after a resumption, and stopped by numbers that are not finite."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from learnloop.core.errors import CorruptError, DivergedError, NotFoundError, UsageError
from learnloop.training.options import TrainingOptions, make_options
from learnloop.training.run_files import read_metrics
from learnloop.training.trainers.seed_trainer import TrainingProgress
from learnloop.training.trainers.trainers import EnvTrainer

SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "net_arch": (16,)},
    "a2c": {"net_arch": (16,)},
    "dqn": {"net_arch": (16,), "learning_starts": 100, "buffer_size": 1000, "batch_size": 16},
    "sac": {"net_arch": (16,), "learning_starts": 100, "buffer_size": 1000, "batch_size": 16, "train_freq": 8},
}


def small(algorithm: str, env: str = "CartPole-v1", **others: Any) -> TrainingOptions:
    fields = {"steps": 600, "n_envs": 2, "eval_interval": 300, "eval_episodes": 2, **others}
    return make_options(algorithm, env, options=SMALL.get(algorithm, {}), **fields)


@pytest.mark.parametrize("algorithm", [*SMALL, "random"])
def test_the_same_seed_gives_the_same_training(algorithm: str) -> None:
    """B10, S0.3: for each algorithm."""
    first, second = (EnvTrainer(small(algorithm), 5).run() for _ in range(2))
    assert first.parameter_hash == second.parameter_hash
    assert [point.mean_return for point in first.curve] == [point.mean_return for point in second.curve]
    assert first.num_steps >= 600
    assert first.num_episodes == second.num_episodes > 0
    if algorithm != "random":
        assert first.num_updates > 0
        assert EnvTrainer(small(algorithm), 6).run().parameter_hash != first.parameter_hash


@pytest.mark.parametrize("vectorization", ["sync", "vector"])
@pytest.mark.parametrize("algorithm", SMALL)
def test_a_resumed_training_is_the_uninterrupted_one(algorithm: str, vectorization: str, tmp_path: Path) -> None:
    """B10, F1.9: weights, optimiser, random numbers, buffers, seeds of environments and schedules, bit for bit."""
    options = small(algorithm, checkpoint_interval=200, vectorization=vectorization)
    whole = EnvTrainer(options, 1, folder=tmp_path / "whole").run()

    class Killed(Exception):
        pass

    trainer = EnvTrainer(options, 1, folder=tmp_path / "cut")
    learn = trainer.algorithm.learn

    def dies() -> bool:
        if trainer.algorithm.num_steps > 450:
            raise Killed
        return learn()

    trainer.algorithm.learn = dies  # type: ignore[method-assign]
    with pytest.raises(Killed):
        trainer.run()
    again = EnvTrainer(options, 1, folder=tmp_path / "cut")
    assert again.resume() >= 400
    resumed = again.run()
    assert resumed.parameter_hash == whole.parameter_hash
    assert resumed.num_updates == whole.num_updates
    assert resumed.num_episodes == whole.num_episodes
    assert [point.mean_return for point in resumed.curve] == [point.mean_return for point in whole.curve]
    steps = [line["num_steps"] for line in read_metrics(tmp_path / "cut" / "metrics.jsonl")]
    assert steps == sorted(steps)


def test_a_checkpoint_of_other_options_is_refused(tmp_path: Path) -> None:
    options = small("ppo", checkpoint_interval=200)
    EnvTrainer(options, 1, folder=tmp_path).run()
    with pytest.raises(CorruptError, match="other options"):
        EnvTrainer(small("ppo", checkpoint_interval=100), 1, folder=tmp_path).resume()
    with pytest.raises(CorruptError, match="other options"):
        EnvTrainer(options, 2, folder=tmp_path).resume()
    with pytest.raises(NotFoundError, match="no checkpoint"):
        EnvTrainer(options, 1, folder=tmp_path / "other").resume()


def test_figures_are_written_as_they_come(tmp_path: Path) -> None:
    EnvTrainer(small("ppo"), 0, folder=tmp_path).run()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    names = set().union(*lines)
    assert {"train/approx_kl", "rollout/ep_rew_mean", "time/fps", "eval/mean_reward", "num_steps"} <= names
    assert lines[-1]["num_steps"] >= 600


def test_progress_tells_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.training.trainers.seed_trainer.LOG_SECONDS", 0.0)
    seen: list[TrainingProgress] = []
    EnvTrainer(small("ppo"), 3, on_progress=seen.append).run()
    assert [each.num_steps for each in seen] == sorted(each.num_steps for each in seen)
    assert seen[-1].fraction == 1
    assert seen[-1].seconds_left == 0
    assert seen[0].seed == 3
    assert seen[-1].mean_return is not None
    assert all(each.per_second > 0 for each in seen)


def test_it_ends_after_so_many_episodes() -> None:
    options = small("random", episodes=7, steps=None, n_envs=1)
    result = EnvTrainer(options, 0).run()
    assert result.num_episodes == 7
    assert result.num_steps < options.steps


def test_the_best_policy_is_the_one_that_evaluations_liked() -> None:
    trainer = EnvTrainer(small("ppo", steps=3000, eval_interval=500), 0)
    result = trainer.run()
    assert result.best_return == max(point.mean_return for point in result.curve)
    assert result.best_steps in [point.num_steps for point in result.curve]
    assert trainer.best is not None
    again = trainer.best.choose(np.zeros((1, 4), dtype=np.float32))
    assert again.shape == (1,)


class Spoilt(gymnasium.Env[Any, Any]):
    """Pays NaN at its hundredth step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Spoilt.count += 1
        reward = float("nan") if Spoilt.count > 100 else 1.0
        return np.zeros(2, dtype=np.float32), reward, Spoilt.count % 10 == 0, False, {}


def test_a_reward_that_is_not_finite_is_named() -> None:
    Spoilt.count = 0
    with pytest.raises((UsageError, DivergedError), match="nan"):
        EnvTrainer(small("ppo"), 0, env=Spoilt).run()


@pytest.mark.parametrize(
    ("algorithm", "env", "words"),
    [
        ("sac", "learnloop/ActionRewardContinuous-v0", None),
        ("dqn", "Pendulum-v1", "discrete"),
        ("ppo", "CartPole-v1", None),
    ],
)
def test_spaces_that_do_not_fit_are_refused_before_training(algorithm: str, env: str, words: str | None) -> None:
    if words is None:
        EnvTrainer(small(algorithm, env, steps=64, eval_interval=64), 0)
        return
    with pytest.raises(UsageError, match=words):
        EnvTrainer(small(algorithm, env), 0)


def test_one_object_cannot_be_trained_and_evaluated_in() -> None:
    with pytest.raises(UsageError, match="another environment of its kind"):
        EnvTrainer(small("ppo", n_envs=1), 0, env=Spoilt())
    made = gymnasium.make("CartPole-v1")
    assert EnvTrainer(small("random", n_envs=1), 0, env=made).run().num_steps >= 600


@pytest.mark.parametrize("algorithm", SMALL)
def test_torch_learns_what_numpy_learns(algorithm: str) -> None:
    """S0.13: the PyTorch back end, below each algorithm; rounding apart the same training."""
    results = {}
    for device in ("cpu", "torch"):
        trainer = EnvTrainer(small(algorithm, steps=300, device=device), 0)
        trainer.run()
        results[device] = next(iter(trainer.algorithm.networks().values())).parameters.copy()
        assert trainer.best is not None
        trainer.best.to_artifact()  # what learned on a device is served with numpy
    moved = np.abs(results["torch"] - results["cpu"])
    assert np.median(moved) < 1e-3


def test_more_memory_than_there_is_is_told_before_training() -> None:
    options = make_options("ppo", "CartPole-v1", options={"n_steps": 10**12, "batch_size": 64})
    with pytest.raises(UsageError, match="needs more memory"):
        EnvTrainer(options, 0)


def test_what_does_not_fit_leaves_no_processes() -> None:
    before = set(multiprocessing.active_children())
    with pytest.raises(UsageError, match="discrete"):
        EnvTrainer(small("dqn", "Pendulum-v1", vectorization="subprocess"), 0)
    assert set(multiprocessing.active_children()) <= before


def test_figures_that_were_cut_short_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"position": 1}\n{"posit{"position": 2}\n7\n{"position": 3}\n{"position": 4')
    assert [line["position"] for line in read_metrics(path)] == [1, 3]


def test_schedules_end_with_the_episodes_where_these_end_the_training(tmp_path: Path) -> None:
    """Their steps are an upper bound that is hardly reached: the learning rate would stay where it started."""
    options = make_options("ppo", "CartPole-v1", episodes=60, n_envs=2, options={**SMALL["ppo"], "lr": "lin_0.001"})
    trainer = EnvTrainer(options, 0)
    trainer.run()
    assert trainer.algorithm.num_steps < options.steps / 5
    assert trainer.algorithm.progress > 0.9
