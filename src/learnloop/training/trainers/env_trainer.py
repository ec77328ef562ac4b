"""Trains one algorithm with one seed in an environment: collects, learns, evaluates."""

from __future__ import annotations

import time

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.core.seeding import derive_seed
from learnloop.envs import EnvStream, make_stream
from learnloop.training.trainers.assembling import assemble
from learnloop.training.trainers.seed_trainer import EPISODE_WINDOW, LOG_SECONDS, SeedTrainer


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
