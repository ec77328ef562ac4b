"""learnloop.training.workers.seeds: processes that train one seed after the other."""

from __future__ import annotations

from pathlib import Path

import psutil

from learnloop.training.options import make_options
from learnloop.training.workers.seeds import SeedProcesses, SeedTask, train_seed

SMALL = {"n_steps": 16, "batch_size": 32, "net_arch": (8,)}
OPTIONS = make_options("ppo", "CartPole-v1", steps=256, options=SMALL, n_envs=2)


def tasks(folder: Path, seeds: range) -> list[SeedTask]:
    return [SeedTask(options=OPTIONS, seed=seed, folder=str(folder / str(seed))) for seed in seeds]


def test_processes_are_kept_for_further_seeds(tmp_path: Path) -> None:
    """What came before in a process does not matter: each seed learns what it learns here."""
    (tmp_path / "here").mkdir()
    with SeedProcesses(2) as processes:
        found = processes.train(tasks(tmp_path, range(3)), None)
        first = processes.process_ids
        found += processes.train(tasks(tmp_path, range(3, 5)), None)
        assert processes.process_ids == first
        assert len(first) == 2
    assert not any(psutil.pid_exists(each) for each in first)
    here = [train_seed(task) for task in tasks(tmp_path / "here", range(5))]
    assert [each.seed for each in found] == [0, 1, 2, 3, 4]
    assert [each.parameter_hash for each in found] == [each.parameter_hash for each in here]
