"""PPO's updates in a process of their own, so that what chooses never waits for one.

The process is given all of it, the state of the network and the steps, and gives back the state after the update: it
remembers nothing, and can be killed at any time.
"""

from __future__ import annotations

import math
import threading
from typing import NamedTuple

import msgspec

from learnloop.algorithms.base.states import AlgorithmState, part_of, prefixed
from learnloop.algorithms.on_policy.rollout import Steps
from learnloop.compat.seed1.settings import MutationSettings
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

    settings: MutationSettings
    seed: int
    rate_factor: float
    """What the learning rate is multiplied with."""
    state: AlgorithmState
    steps: Steps


class Done(NamedTuple):
    """What came of it."""

    state: AlgorithmState
    metrics: dict[str, float]
    """Those that are finite."""


def learn(job: Job) -> Done:
    """Makes an update here and now.

    Raises:
        DivergedError: a number is not finite.
    """
    ppo = job.settings.ppo(job.seed)
    ppo.restore(job.state)
    ppo.rate_factor = job.rate_factor
    prepared = ppo.learn_steps(job.steps)
    metrics = ppo.metrics.take()
    metrics |= {
        "train/learning_rate": metrics["train/learning_rate"] * job.rate_factor,
        "train/num_stale_steps": float(prepared.num_stale),
        "train/max_first_log_ratio": prepared.max_log_ratio,
    }
    return Done(ppo.state(), {name: value for name, value in metrics.items() if math.isfinite(value)})


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
                self._worker.send(_encoded(job))
                state = decode_state(self._worker.receive(), _FORMAT)
            except LearnloopError as error:
                self._end()
                if isinstance(error, WorkerDied):
                    raise UnreachableError(f"{error}; try again") from error
                raise
        return Done(AlgorithmState(state.tensors, state.values["state"]), state.values["metrics"])

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


def _encoded(job: Job) -> bytes:
    steps = {name: value for name, value in job.steps._asdict().items() if value is not None}
    values = {
        "settings": msgspec.to_builtins(job.settings),
        "seed": job.seed,
        "rate_factor": job.rate_factor,
        "state": job.state.values,
    }
    return encode_state(_FORMAT, State(prefixed("state.", job.state.tensors) | prefixed("steps.", steps), values))


def _decoded(message: bytes) -> Job:
    tensors, values = decode_state(message, _FORMAT)
    return Job(
        settings=msgspec.convert(values["settings"], MutationSettings),
        seed=values["seed"],
        rate_factor=values["rate_factor"],
        state=AlgorithmState(part_of(tensors, "state."), values["state"]),
        steps=Steps(**part_of(tensors, "steps.")),
    )


def work(channel: Channel) -> None:
    """Makes an update for each message."""
    while True:
        done = learn(_decoded(channel.receive()))
        values = {"state": done.state.values, "metrics": done.metrics}
        channel.send(encode_state(_FORMAT, State(dict(done.state.tensors), values)))
