"""Trains one algorithm with one seed from a data set: no environment is needed, but for evaluations."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.offline.learner import OfflineAlgorithm
from learnloop.core.datasets import Dataset
from learnloop.core.errors import CorruptError, UsageError
from learnloop.core.spaces import Spaces
from learnloop.envs.registry import EnvMaker, make_env
from learnloop.envs.streams.lanes import spaces_of
from learnloop.training.options import TrainingOptions
from learnloop.training.trainers.assembling import assemble
from learnloop.training.trainers.seed_trainer import LOG_SECONDS, Progress, SeedTrainer

PART = 64
"""So many updates are taken between two looks at the clock."""


class OfflineTrainer(SeedTrainer):
    """One seed of a training from a data set."""

    algorithm: OfflineAlgorithm

    def __init__(
        self,
        options: TrainingOptions,
        seed: int,
        dataset: Dataset,
        *,
        env: Any = None,
        folder: Path | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """Checks everything that can be known before the first update.

        Args:
            options: what to do.
            seed: of the algorithm and the evaluations.
            dataset: what it learns from: the one of the options' fingerprint.
            env: where its policies are evaluated, if it is the caller's own and has no id.
            folder: for metrics and checkpoints; None: neither is written.
            on_progress: called about twice a second.

        Raises:
            UsageError: the options, the data set and the environment do not fit each other.
            CorruptError: it is another data set.
        """
        if dataset.fingerprint() != options.dataset:
            raise CorruptError(f"the data set of {dataset.source} is not the one that the training is to learn from")
        self._dataset = dataset
        super().__init__(options, seed, env=env, folder=folder, on_progress=on_progress)
        self._state.num_episodes = dataset.num_episodes

    def _build(self) -> Algorithm:
        options, dataset = self.options, self._dataset
        if self._evaluation_env is not None:
            _check_spaces(self._evaluation_env, options, dataset)
        algorithm = assemble(options, dataset.spaces, 1, self.seed)
        if not isinstance(algorithm, OfflineAlgorithm):
            raise UsageError(f"{options.algorithm} learns from its own actions, not from a data set")
        algorithm.load(dataset)
        return algorithm

    def _train(self) -> None:
        algorithm, state, options = self.algorithm, self._state, self.options
        begun = time.perf_counter() - state.seconds
        while (done := algorithm.num_updates) < options.budget:
            stops = [done + PART, options.budget, state.next_eval]
            if options.checkpoint_interval:
                stops.append(state.next_checkpoint)
            algorithm.set_progress(self._fraction())
            algorithm.update(max(1, min(stops) - done))
            now = time.perf_counter()
            state.seconds = now - begun
            if now - self._last_log >= LOG_SECONDS:
                self._log()
            if algorithm.num_updates >= state.next_eval:
                self._evaluate()
                begun = time.perf_counter() - state.seconds
            if options.checkpoint_interval and algorithm.num_updates >= state.next_checkpoint:
                self._checkpoint()
                begun = time.perf_counter() - state.seconds
        if not state.curve or state.curve[-1].num_updates != algorithm.num_updates:
            self._evaluate()
        self._log()

    def _position(self) -> int:
        return self.algorithm.num_updates

    def _take_episodes(self) -> None:
        """All its episodes are there from the beginning."""

    def _release(self) -> None:
        """A data set is nothing to give back."""


def _check_spaces(env: str | EnvMaker, options: TrainingOptions, dataset: Dataset) -> None:
    made = make_env(env, options.env_kwargs or None).env
    try:
        found: Spaces = spaces_of(made)
    finally:
        made.close()
    if found != dataset.spaces:
        raise UsageError(
            f"the environment {options.env} has {found}, and the data set of {dataset.source} {dataset.spaces}; "
            "evaluate in the environment that was logged, or leave it out"
        )
