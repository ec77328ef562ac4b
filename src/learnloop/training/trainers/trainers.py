"""Trains one algorithm with one seed: in an environment, where it collects, learns and evaluates, or from a data set.

Without an environment nothing is collected, and only evaluations need one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
from learnloop.envs.streams.lanes import spaces_of
from learnloop.training.options import TrainingOptions
from learnloop.training.trainers.assembling import assemble
from learnloop.training.trainers.seed_trainer import EPISODE_WINDOW, LOG_SECONDS, Progress, SeedTrainer
from learnloop.training.workers.asynchronous import AsynchronousTrainer

PART = 64
"""So many updates are taken between two looks at the clock."""


class Trainer(SeedTrainer):
    """One seed of a training in an environment, in this process."""

    def _build(self) -> Algorithm:
        options = self.options
        self._stream: EnvStream = make_stream(
            self._env, options.n_envs, vectorization=options.vectorization, env_kwargs=options.env_kwargs or None
        )
        self._is_callers = not isinstance(self._env, str) and not callable(self._env)
        try:
            return assemble(options, self._stream.spaces, self._stream.num_lanes, self.seed)
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        if not self._is_callers:
            self._stream.close()

    def _train(self) -> None:
        algorithm, stream, state = self.algorithm, self._stream, self._state
        observations, masks = stream.reset(self._stream_seed())
        begun = time.perf_counter() - state.seconds
        total = self.options.budget
        while algorithm.num_steps < total and not self._has_all_episodes():
            actions = algorithm.choose(observations, masks)
            step = stream.step(actions)
            algorithm.record(step)
            observations, masks = step.observations, step.masks
            algorithm.set_progress(self._fraction())
            learned = algorithm.learn()
            now = time.perf_counter()
            if now - self._last_log >= LOG_SECONDS and (learned or not algorithm.num_updates):
                state.seconds = now - begun
                self._log()
            if algorithm.num_steps >= state.next_eval:
                state.seconds = now - begun
                self._evaluate()
                begun = time.perf_counter() - state.seconds
            if self.options.checkpoint_interval and algorithm.num_steps >= state.next_checkpoint:
                state.seconds = time.perf_counter() - begun
                algorithm.interrupt()
                self._checkpoint()
                observations, masks = stream.reset(self._stream_seed())
                begun = time.perf_counter() - state.seconds
        state.seconds = time.perf_counter() - begun
        if not state.curve or state.curve[-1].num_steps != algorithm.num_steps:
            self._evaluate()
        self._log()

    def _stream_seed(self) -> int:
        """Returns the seed of the episodes from here on; it depends on nothing but the seed and the steps."""
        return derive_seed(self.seed, "stream", self.algorithm.num_steps)

    def _has_all_episodes(self) -> bool:
        if self.options.episodes is None:
            return False
        self._take_episodes()
        return self._state.num_episodes >= self.options.episodes

    def _take_episodes(self) -> None:
        state = self._state
        for episode in self._stream.episodes():
            state.num_episodes += 1
            state.last_returns = [*state.last_returns[1 - EPISODE_WINDOW :], episode.total_reward]
            state.last_lengths = [*state.last_lengths[1 - EPISODE_WINDOW :], episode.length]


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
