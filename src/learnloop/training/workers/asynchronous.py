"""Trains A3C with one seed: workers act and find gradients in processes of their own, this one takes them as they come.

Each worker has ``n_envs`` environments and random numbers of its own. It goes on with the newest parameters once its
gradient was taken, so that its own updates are always in them; how many updates of others were not is the gradient's
staleness. With one worker it is 0, and the training is A2C's, to the bit. With several the order in which gradients
come is the system's: the same seed does not give the same parameters again.

A checkpoint holds the weights, the optimiser, the scales and all counters exactly. What the workers do at the time is
not in it: a training that goes on from it begins new episodes, with random numbers that were not used before, and is
not the uninterrupted one to the bit.
"""

from __future__ import annotations

import math
import time

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.on_policy.a3c import A3C
from learnloop.core.errors import UsageError
from learnloop.envs import make_stream
from learnloop.training.trainers.seed_trainer import SeedTrainer, assemble
from learnloop.training.workers.actor_slots import FIGURES, ActorSlot
from learnloop.training.workers.actors import Actors, ActorTask, place_of


class AsynchronousTrainer(SeedTrainer):
    """One seed of a training with several workers.

    It ends with the rollout that makes its steps, or its episodes, full; what other workers do then is not counted.
    """

    algorithm: A3C

    def _build(self) -> Algorithm:
        options = self.options
        self._actors: Actors | None = None
        self._place, self._is_maker = place_of(self._env)
        in_processes = options.vectorization == "subprocess"  # of the workers; here it is only looked at
        stream = make_stream(
            self._env,
            1 if in_processes else options.n_envs,
            vectorization="sync" if in_processes else options.vectorization,
            env_kwargs=options.env_kwargs or None,
        )
        stream.close()
        algorithm = assemble(options, stream.spaces, options.n_envs, self.seed)
        if not isinstance(algorithm, A3C):
            raise UsageError(f"{options.algorithm} has no workers; train it in one process")
        return algorithm

    def _release(self) -> None:
        if self._actors is not None:
            self._actors.close()
            self._actors = None

    def _train(self) -> None:
        if not self._is_over():
            self._actors = self._start()
            self._learn(self._actors)
            self._release()

    def _start(self) -> Actors:
        """Returns the workers, ready to act with the parameters of now."""
        slots = [ActorSlot(self.algorithm) for _ in range(self.algorithm.config.num_workers)]
        tasks = [
            ActorTask(
                options=self.options,
                env=self._place,
                is_maker=self._is_maker,
                seed=self.seed,
                number=number,
                num_steps=self.algorithm.num_steps,
                spaces=self.algorithm.spaces,
                handle=slot.handle,
            )
            for number, slot in enumerate(slots)
        ]
        return Actors(tasks, slots)

    def _learn(self, actors: Actors) -> None:
        algorithm = self.algorithm
        for number, slot in enumerate(actors.slots):
            slot.offer(algorithm)
            actors.go_on(number)
        self._start_clock()
        for number in actors.answers():
            slot = actors.slots[number]
            self._take(slot)
            self._look_up(time.perf_counter())
            if self._is_over():
                return
            slot.offer(algorithm)
            actors.go_on(number)

    def _take(self, slot: ActorSlot) -> None:
        """Learns from what a worker has left in its slot."""
        algorithm = self.algorithm
        algorithm.num_steps += slot.num_steps
        self._count_episodes((total_reward, int(length)) for total_reward, length in slot.take_episodes())
        algorithm.set_progress(self._fraction())
        if slot.after.size:
            algorithm.merge_moments(slot.before, slot.after)
        if slot.has_gradient:
            algorithm.apply_gradient(slot.gradient, slot.num_updates)
        for name, figure in zip(FIGURES, slot.figures.tolist(), strict=True):
            if math.isfinite(figure):
                algorithm.metrics.add(name, figure)

    def _is_over(self) -> bool:
        return self._fraction() >= 1.0

    def _take_episodes(self) -> None:
        """They were counted with the steps that they ended with."""
