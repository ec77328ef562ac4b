"""Workers of an asynchronous training: each acts in environments of its own and finds gradients, in its own process.

The numbers lie in an ``ActorSlot``: the learner says ``GO``, the worker answers ``DONE`` once its rollout and gradient
are there.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec
from threadpoolctl import threadpool_limits

from learnloop.algorithms.on_policy.a3c import A3C
from learnloop.core.errors import UsageError
from learnloop.core.seeding import derive_seed
from learnloop.core.spaces import Spaces
from learnloop.envs import make_stream
from learnloop.system.worker import Channel, Worker, found_at
from learnloop.training.options import TrainingOptions
from learnloop.training.trainers.seed_trainer import assemble
from learnloop.training.workers.actor_slots import ActorSlot

GO, DONE = b"g", b"d"

CLOSE_SECONDS = 2.0
"""So long workers have to end by themselves; then they are killed."""
_TARGET = "learnloop.training.workers.actors:work"
_HINT = (
    "Workers are processes that do not run your script: give an environment that the script registers as 'module:Id', "
    "and put a network that it registers into a package"
)


class ActorTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker does."""

    options: TrainingOptions
    env: str
    """The environment's id, or the place of the callable that makes it."""
    is_maker: bool
    """Whether ``env`` is such a place, ``module:name``."""
    seed: int
    """Of the training."""
    number: int
    """Of the worker, from 0."""
    num_steps: int
    """Environment steps of all workers before: a training that goes on does not repeat its random numbers."""
    spaces: Spaces
    """Those of the learner's environment, which the worker's must have."""
    handle: int
    """The open file of its slot."""

    def derive(self, name: str) -> int:
        """Returns its seed for ``name``; that of the first worker is A2C's, and depends on nothing but the steps."""
        return derive_seed(self.seed, name, self.num_steps, *([self.number] if self.number else []))

    def algorithm_seed(self) -> int:
        """Returns the seed of its actions."""
        return self.seed if not self.number and not self.num_steps else self.derive("worker")


def place_of(env: object) -> tuple[str, bool]:
    """Returns how another process finds ``env``: an id, or the place of a callable, and whether it is such a place.

    Raises:
        UsageError: another process cannot find it.
    """
    if isinstance(env, str):
        return env, False
    module, name = getattr(env, "__module__", None), getattr(env, "__qualname__", None)
    if callable(env) and module and name and module != "__main__" and "<" not in name:
        with suppress(ImportError, AttributeError):
            if found_at(f"{module}:{name}") is env:
                return f"{module}:{name}", True
    raise UsageError(
        f"{env!r} cannot be made again by the workers, which are processes of their own: give an id, 'module:Id' of an "
        "environment that the module registers, or a class or function that can be imported from a module other than "
        "the script"
    )


# The learner's side ----------------------------------------------------------------------------------------------


class Actors:
    """Worker processes, started and ready.

    Attributes:
        slots: what each of them shares with the learner, by its number.
    """

    def __init__(self, tasks: Sequence[ActorTask], slots: Sequence[ActorSlot]) -> None:
        """Starts one for each task, and returns when all have made their environments.

        Raises:
            LearnloopError: one could not; the others are stopped.
        """
        self.slots = slots
        self._workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()
        try:
            for task in tasks:
                name = f"worker {task.number}"
                worker = Worker(_TARGET, name, handles=[task.handle], prefix=f"{name}: ", hint=_HINT)
                self._workers.append(worker)
                self._selector.register(worker, selectors.EVENT_READ, task.number)
                worker.send(msgspec.json.encode(task))
            waiting = set(range(len(tasks)))
            for number in self.answers():
                waiting.discard(number)
                if not waiting:
                    break
        except BaseException:
            self.close()
            raise

    def answers(self) -> Iterator[int]:
        """Yields the number of each worker that has done what it was told, as they come; waits for the next one.

        Raises:
            LearnloopError: one failed, or its process ended; the message names it.
        """
        while True:
            for key, _ in self._selector.select():
                self._workers[key.data].receive()
                yield key.data

    def go_on(self, number: int) -> None:
        """Tells a worker to act with what is in its slot now."""
        self._workers[number].send(GO)

    def close(self) -> None:
        """Ends all of them, whatever they do, within ``CLOSE_SECONDS``, and gives their memory back."""
        for worker in self._workers:
            worker.ask_to_end()
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in self._workers:
            worker.close(max(0.0, deadline - time.monotonic()))
        self._selector.close()
        for slot in self.slots:
            slot.close()


# The worker's side -----------------------------------------------------------------------------------------------


class _Replica:
    """A copy of the learner's algorithm, with environments of its own."""

    def __init__(self, task: ActorTask) -> None:
        options = task.options
        self._stream = make_stream(
            found_at(task.env) if task.is_maker else task.env,
            options.n_envs,
            vectorization=options.vectorization,
            env_kwargs=options.env_kwargs or None,
            check=False,  # the learner tried it out
        )
        spaces = self._stream.spaces
        if spaces != task.spaces:
            raise UsageError(f"the environment has other spaces in the process of a worker: {spaces}")
        algorithm = assemble(options, spaces, self._stream.num_envs, task.algorithm_seed(), network_seed=task.seed)
        if not isinstance(algorithm, A3C):
            raise UsageError(f"{options.algorithm} has no workers")
        self._algorithm = algorithm
        self._slot = ActorSlot(algorithm, task.handle)
        self._observations, self._masks = self._stream.reset(task.derive("stream"))

    def collect(self) -> None:
        """Acts for a rollout with the parameters in the slot, and leaves its gradient there."""
        algorithm, stream, slot = self._algorithm, self._stream, self._slot
        algorithm.follow(slot.parameters, slot.num_updates)
        if slot.before.size:
            algorithm.put_moments(slot.before)
        before = algorithm.num_steps
        observations, masks = self._observations, self._masks
        for _ in range(algorithm.config.n_steps):
            step = stream.step(algorithm.choose(observations, masks))
            algorithm.record(step)
            observations, masks = step.observations, step.masks
        self._observations, self._masks = observations, masks
        gradient = algorithm.find_gradient()
        slot.answer(algorithm.num_steps - before, gradient, algorithm.metrics.take())
        slot.put_episodes([(each.total_reward, each.length) for each in stream.episodes()])
        if slot.after.size:
            slot.after[:] = algorithm.moments()

    def close(self) -> None:
        self._stream.close()


def work(channel: Channel) -> None:
    """Does what the first message asks for, whenever it is told to go on, until nobody is there to tell it."""
    task = msgspec.json.decode(channel.receive(), type=ActorTask)
    with threadpool_limits(limits=1, user_api="blas"):
        replica = _Replica(task)
        try:
            channel.send(DONE)
            while channel.receive() == GO:
                replica.collect()
                channel.send(DONE)
        finally:
            replica.close()
