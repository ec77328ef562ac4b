"""PPO's updates in a process of their own, so that what chooses never waits for one.

The process is given all of it, the state of the network and the steps, and gives back the state after the update: it
remembers nothing, and can be killed at any time.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import msgspec

from learnloop.algorithms.base.states import AlgorithmState, part_of, prefixed
from learnloop.algorithms.on_policy.ppo import PPOConfig
from learnloop.algorithms.on_policy.rollout import Steps
from learnloop.algorithms.on_policy.segment_ppo import SegmentPPO
from learnloop.core.errors import LearnloopError, UnreachableError
from learnloop.system.state_file import State, decode_state, encode_state
from learnloop.system.worker import Channel, Worker, WorkerDied

NICENESS = 10
"""How much the process gives way to those that answer requests."""
_TARGET = "learnloop.compat.seed1.update_process:work"
_FORMAT = "learnloop.update/v1"
"""Of what parent and child tell each other."""


class Job(NamedTuple):
    """One update."""

    config: PPOConfig
    size: int
    """How many numbers an observation has."""
    num_actions: int
    seed: int
    weight_decay: float
    rate_factor: float
    state: AlgorithmState
    steps: Steps


class Done(NamedTuple):
    """What came of it."""

    state: AlgorithmState
    metrics: dict[str, float]
    num_stale: int
    max_log_ratio: float


def learn(job: Job) -> Done:
    """Makes an update here and now.

    Raises:
        DivergedError: a number is not finite.
    """
    ppo = SegmentPPO(job.config, job.size, job.num_actions, seed=job.seed, weight_decay=job.weight_decay)
    ppo.restore(job.state)
    ppo.rate_factor = job.rate_factor
    prepared = ppo.learn_steps(job.steps)
    return Done(ppo.state(), ppo.metrics.take(), prepared.num_stale, prepared.max_log_ratio)


class UpdateProcess:
    """Makes updates in a child process, which is started when the first one is asked for. One at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: Worker | None = None

    def learn(self, job: Job) -> Done:
        """Returns what came of an update.

        Raises:
            DivergedError: a number is not finite.
            UnreachableError: the process ended before it was done; the next update starts another one.
        """
        with self._lock:
            if self._worker is None or not self._worker.is_alive:
                self._end()
                self._worker = Worker(_TARGET, "the process that learns", niceness=NICENESS)
            try:
                self._worker.send(_told(job))
                return _done(self._worker.receive())
            except LearnloopError as error:
                self._end()
                if isinstance(error, WorkerDied):
                    raise UnreachableError(f"{error}; try again") from error
                raise

    def close(self) -> None:
        """Ends the process; an update that runs is given up."""
        worker = self._worker
        if worker is not None:
            worker.kill()  # first: whoever holds the lock waits for its answer
        with self._lock:
            self._end()

    def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close(0.0)


def _told(job: Job) -> bytes:
    fields = job._asdict()
    state, steps = fields.pop("state"), fields.pop("steps")
    values = {**fields, "config": msgspec.to_builtins(job.config), "state": state.values}
    known = {name: value for name, value in steps._asdict().items() if value is not None}
    return encode_state(_FORMAT, State(prefixed("state.", state.tensors) | prefixed("steps.", known), values))


def _job(message: bytes) -> Job:
    tensors, values = decode_state(message, _FORMAT)
    config = msgspec.convert(values.pop("config"), PPOConfig)
    state = AlgorithmState(part_of(tensors, "state."), values.pop("state"))
    return Job(config=config, state=state, steps=Steps(**part_of(tensors, "steps.")), **values)


def _done(message: bytes) -> Done:
    tensors, values = decode_state(message, _FORMAT)
    return Done(AlgorithmState(tensors, values.pop("state")), **values)


def work(channel: Channel) -> None:
    """Makes an update for each message."""
    while True:
        done = learn(_job(channel.receive()))
        values: dict[str, Any] = {**done._asdict(), "state": done.state.values}
        channel.send(encode_state(_FORMAT, State(dict(done.state.tensors), values)))
