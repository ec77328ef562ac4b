"""Which trainer does what the options ask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from learnloop.algorithms.on_policy.a3c import A3CConfig
from learnloop.core.datasets import Dataset
from learnloop.core.errors import CorruptError
from learnloop.training.options import TrainingOptions
from learnloop.training.trainers.env_trainer import Trainer
from learnloop.training.trainers.offline_trainer import OfflineTrainer
from learnloop.training.trainers.seed_trainer import Progress, SeedTrainer
from learnloop.training.workers.asynchronous import AsynchronousTrainer


def make_trainer(
    options: TrainingOptions,
    seed: int,
    dataset: Dataset | None = None,
    *,
    env: Any = None,
    folder: Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> SeedTrainer:
    """Returns the trainer of one seed; arguments and errors are those of ``SeedTrainer`` and ``OfflineTrainer``."""
    if options.dataset is None:
        has_workers = isinstance(options.algorithm_config(), A3CConfig)
        kind = AsynchronousTrainer if has_workers else Trainer
        return kind(options, seed, env=env, folder=folder, on_progress=on_progress)
    if dataset is None:
        raise CorruptError("the training is to learn from a data set, which is not there")
    return OfflineTrainer(options, seed, dataset, env=env, folder=folder, on_progress=on_progress)
