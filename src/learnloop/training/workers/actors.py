"""Workers of an asynchronous training: each acts in environments of its own and finds gradients, in its own process.

A worker is asked with one JSON line; then single bytes go to and fro, and the numbers lie in a ``Slot``: the learner
says ``GO``, the worker answers ``DONE`` once its rollout and its gradient are there, or ``FAILED`` and a line of JSON.
"""

from __future__ import annotations

import importlib
import os
import select
import selectors
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

import msgspec
from threadpoolctl import threadpool_limits

from learnloop.algorithms.on_policy.a3c import A3C
from learnloop.core.errors import LearnloopError, UsageError
from learnloop.core.seeding import derive_seed
from learnloop.envs import make_stream
from learnloop.training.options import TrainingOptions
from learnloop.training.trainers.assembling import assemble
from learnloop.training.workers.actor_slots import Slot
from learnloop.training.workers.child_processes import Failure, child_environment, error_of

GO, DONE, FAILED = b"g", b"d", b"f"

CLOSE_SECONDS = 2.0
"""So long workers have to end by themselves; then they are killed."""
_PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "  # the terminal interrupts all; the learner decides
    "from learnloop.training.workers.actors import main; main()"
)
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
    spaces: Any
    """As JSON: those of the learner's environment, which the worker's must have."""
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


def found_at(place: str) -> Any:
    """Returns what lies at ``module:name``.

    Raises:
        ImportError, AttributeError: it is not there.
    """
    module, _, name = place.partition(":")
    return reduce(getattr, name.split("."), importlib.import_module(module))


# The learner's side ----------------------------------------------------------------------------------------------


class Actors:
    """Worker processes, started and ready.

    Attributes:
        slots: what each of them shares with the learner, by its number.
    """

    def __init__(self, tasks: Sequence[ActorTask], slots: Sequence[Slot]) -> None:
        """Starts one for each task, and returns when all have made their environments.

        Raises:
            LearnloopError: one could not; the others are stopped.
        """
        self.slots = slots
        self._actors: list[_Actor] = []
        self._selector = selectors.DefaultSelector()
        try:
            for task in tasks:
                actor = _Actor(task)
                self._actors.append(actor)
                self._selector.register(actor.answers, selectors.EVENT_READ, actor)
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
                key.data.take()
                yield key.data.task.number

    def go_on(self, number: int) -> None:
        """Tells a worker to act with what is in its slot now."""
        self._actors[number].tell()

    def close(self) -> None:
        """Ends all of them, whatever they do, within ``CLOSE_SECONDS``, and gives their memory back."""
        for actor in self._actors:
            actor.ask_to_end()
        deadline = time.monotonic() + CLOSE_SECONDS
        for actor in self._actors:
            actor.end(deadline)
        self._selector.close()
        for slot in self.slots:
            slot.close()


class _Actor:
    """One worker, as the learner sees it."""

    def __init__(self, task: ActorTask) -> None:
        self.task = task
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[task.handle],
            env=child_environment(),
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise LearnloopError("the process of a worker has no pipes")
        self._commands, self.answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._write(msgspec.json.encode(task) + b"\n")

    def _write(self, data: bytes) -> None:
        with suppress(BrokenPipeError):  # it has ended; its answer, or its end, says why
            while data:
                data = data[os.write(self._commands, data) :]

    def tell(self) -> None:
        self._write(GO)

    def take(self) -> None:
        """Reads its answer.

        Raises:
            LearnloopError: what it raised, or that it ended.
        """
        found = os.read(self.answers, 1)
        if found == DONE:
            return
        told = b""
        while found and not told.endswith(b"\n"):
            part = os.read(self.answers, 1 << 16)
            told, found = told + part, part
        if told.endswith(b"\n"):
            failure = msgspec.json.decode(told, type=Failure)
            raise error_of(Failure(failure.kind, f"worker {self.task.number}: {failure.message}"), _HINT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_SECONDS)
        raise LearnloopError(
            f"worker {self.task.number} (process {self._process.pid}) ended by itself with exit code "
            f"{self._process.returncode}; what it said is on standard error (a negative code is the signal that killed "
            "it, -9 when the memory is full)"
        )

    def ask_to_end(self) -> None:
        """Lets it find that nobody tells it to go on."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def end(self, deadline: float) -> None:
        """Waits for its end until ``deadline``, then kills it."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


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
        if msgspec.json.decode(msgspec.json.encode(spaces)) != task.spaces:
            raise UsageError(f"the environment has other spaces in the process of a worker: {spaces}")
        algorithm = assemble(options, spaces, self._stream.num_lanes, task.algorithm_seed(), network_seed=task.seed)
        if not isinstance(algorithm, A3C):
            raise UsageError(f"{options.algorithm} has no workers")
        self._algorithm = algorithm
        self._slot = Slot(algorithm, task.handle)
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


def main() -> None:
    """Does what the line on standard input asks for, until nobody tells it to go on."""
    line = sys.stdin.buffer.readline()
    if not line:
        return
    commands, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what an environment prints is no answer
    task = msgspec.json.decode(line, type=ActorTask)
    try:
        _work(task, commands, answers)
    except LearnloopError as error:
        cause = error.__cause__  # of another's code
        is_ours = cause is None or isinstance(cause, LearnloopError)
        told = str(error) if is_ours else f"{error}\n{''.join(traceback.format_exception(cause))}"
        _answer(answers, FAILED + msgspec.json.encode(Failure(type(error).__name__, told)) + b"\n")
        raise SystemExit(error.exit_code) from error
    except Exception as error:
        failure = Failure("LearnloopError", f"it failed\n{traceback.format_exc()}")
        _answer(answers, FAILED + msgspec.json.encode(failure) + b"\n")
        raise SystemExit(1) from error


def _end_with(commands: int) -> None:
    """Ends this process some time after the learner has closed its end of ``commands``, whatever it does by then.

    Else one whose environment takes long would outlive a learner that was killed until its step returns.
    """
    watched = select.poll()
    watched.register(commands, 0)  # a hang-up is told without being asked for
    watched.poll()
    time.sleep(CLOSE_SECONDS)
    os._exit(1)


def _work(task: ActorTask, commands: int, answers: int) -> None:
    threading.Thread(target=_end_with, args=(commands,), daemon=True).start()
    with threadpool_limits(limits=1, user_api="blas"):
        replica = _Replica(task)
        try:
            _answer(answers, DONE)
            while os.read(commands, 1) == GO:
                replica.collect()
                _answer(answers, DONE)
        finally:
            replica.close()


def _answer(answers: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(answers, data) :]
    except BrokenPipeError as error:  # the learner is gone
        raise SystemExit(1) from error
