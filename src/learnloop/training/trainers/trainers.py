"""Trains one algorithm with one seed: in an environment, where it collects, learns and evaluates, or from a data set.

Without an environment nothing is collected, and only evaluations need one.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.offline.learner import OfflineAlgorithm
from learnloop.algorithms.on_policy.a3c import A3CConfig
from learnloop.core.datasets import Dataset
from learnloop.core.errors import CorruptError, UsageError
from learnloop.core.seeding import derive_seed
from learnloop.core.spaces import Spaces
from learnloop.envs import EnvStream, make_stream
from learnloop.envs.registry import EnvMaker, make_env
from learnloop.envs.streams.sync_stream import spaces_of
from learnloop.training.options import TrainingOptions
from learnloop.training.trainers.seed_trainer import OnProgress, SeedTrainer, assemble
from learnloop.training.workers.asynchronous import AsynchronousTrainer

PART = 64
"""So many updates are taken between two looks at the clock."""


class EnvTrainer(SeedTrainer):
    """One seed of a training in an environment, in this process."""

    def _build(self) -> Algorithm:
        options = self.options
        self._stream: EnvStream = make_stream(
            self._env, options.n_envs, vectorization=options.vectorization, env_kwargs=options.env_kwargs or None
        )
        self._is_callers = not isinstance(self._env, str) and not callable(self._env)
        try:
            return assemble(options, self._stream.spaces, self._stream.num_envs, self.seed)
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        if not self._is_callers:
            self._stream.close()

    def _train(self) -> None:
        algorithm, stream = self.algorithm, self._stream
        observations, masks = stream.reset(self._stream_seed())
        total, stop = self.options.budget, self._next_stop()
        self._start_clock()
        while algorithm.num_steps < total and not self._has_all_episodes():
            actions = algorithm.choose(observations, masks)
            step = stream.step(actions)
            algorithm.record(step)
            observations, masks = step.observations, step.masks
            algorithm.set_progress(self._fraction())
            learned = algorithm.learn()
            now = time.perf_counter()
            is_logging = now >= self._next_log and (learned or not algorithm.num_updates)
            if is_logging or algorithm.num_steps >= stop:
                if self._look_up(now, may_log=is_logging):
                    observations, masks = stream.reset(self._stream_seed())
                stop = self._next_stop()
        self._state.seconds = time.perf_counter() - self._begun

    def _checkpoint(self) -> None:
        self.algorithm.interrupt()
        super()._checkpoint()

    def _stream_seed(self) -> int:
        """Returns the seed of the episodes from here on; it depends on nothing but the seed and the steps."""
        return derive_seed(self.seed, "stream", self.algorithm.num_steps)

    def _has_all_episodes(self) -> bool:
        if self.options.episodes is None:
            return False
        self._take_episodes()
        return self._state.num_episodes >= self.options.episodes

    def _take_episodes(self) -> None:
        self._count_episodes((episode.total_reward, episode.length) for episode in self._stream.episodes())


class OfflineTrainer(SeedTrainer):
    """One seed of a training from a data set."""

    algorithm: OfflineAlgorithm

    def _build(self) -> Algorithm:
        options, dataset = self.options, self._dataset
        if dataset is None:
            raise CorruptError("the training is to learn from a data set, which is not there")
        if dataset.fingerprint() != options.dataset:
            raise CorruptError(f"the data set of {dataset.source} is not the one that the training is to learn from")
        if self._evaluation_env is not None:
            _check_spaces(self._evaluation_env, options, dataset)
        algorithm = assemble(options, dataset.spaces, 1, self.seed)
        if not isinstance(algorithm, OfflineAlgorithm):
            raise UsageError(f"{options.algorithm} learns from its own actions, not from a data set")
        algorithm.load(dataset)
        return algorithm

    def _train(self) -> None:
        algorithm, budget = self.algorithm, self.options.budget
        self._start_clock()
        while (done := algorithm.num_updates) < budget:
            algorithm.set_progress(self._fraction())
            algorithm.update(max(1, min(done + PART, budget, self._next_stop()) - done))
            self._look_up(time.perf_counter())

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


def make_trainer(
    options: TrainingOptions,
    seed: int,
    dataset: Dataset | None = None,
    *,
    env: Any = None,
    folder: Path | None = None,
    on_progress: OnProgress | None = None,
) -> SeedTrainer:
    """Returns the trainer of one seed; arguments and errors are those of ``SeedTrainer``."""
    kind: type[SeedTrainer] = EnvTrainer if options.dataset is None else OfflineTrainer
    if isinstance(options.algorithm_config(), A3CConfig):
        kind = AsynchronousTrainer
    return kind(options, seed, dataset, env=env, folder=folder, on_progress=on_progress)
