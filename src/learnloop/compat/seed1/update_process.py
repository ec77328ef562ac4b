"""PPO's updates in a process of their own, so that what chooses never waits for one.

The process is given all of it, the state of the network and the steps, and gives back the state after the update: it
remembers nothing, and can be killed at any time.
"""

from __future__ import annotations

import math
import threading

import msgspec

from learnloop.algorithms.base.states import part_of, prefixed
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


def job_of(settings: MutationSettings, seed: int, rate_factor: float, ppo: State, steps: Steps) -> State:
    """Returns one update as what ``learn`` takes.

    Args:
        settings: how it learns.
        seed: from which PPO's random numbers derive.
        rate_factor: what the learning rate is multiplied with.
        ppo: its state before the update.
        steps: what is learned from.
    """
    columns = {name: value for name, value in steps._asdict().items() if value is not None}
    values = {
        "settings": msgspec.to_builtins(settings),
        "seed": seed,
        "rate_factor": rate_factor,
        "ppo": ppo.values,
    }
    return State(prefixed("ppo.", ppo.tensors) | prefixed("steps.", columns), values)


def learn(job: State) -> State:
    """Makes the update of ``job_of`` here and now; returns PPO's state with ``ppo`` and ``metrics``, the finite ones.

    Raises:
        DivergedError: a number is not finite.
    """
    tensors, values = job
    ppo = msgspec.convert(values["settings"], MutationSettings).ppo(values["seed"])
    ppo.restore(State(part_of(tensors, "ppo."), values["ppo"]))
    ppo.rate_factor = values["rate_factor"]
    prepared = ppo.learn_steps(Steps(**part_of(tensors, "steps.")))
    metrics = ppo.metrics.take()
    metrics |= {
        "train/learning_rate": metrics["train/learning_rate"] * ppo.rate_factor,
        "train/num_stale_steps": float(prepared.num_stale),
        "train/max_first_log_ratio": prepared.max_log_ratio,
    }
    state = ppo.state()
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    return State(state.tensors, {"ppo": state.values, "metrics": finite})


class UpdateProcess:
    """Makes updates in a child process, which is started when the first one is asked for. One at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: Worker | None = None

    def learn(self, job: State) -> State:
        """Returns what ``learn`` would.

        Raises:
            DivergedError: a number is not finite.
            UnreachableError: the process ended before it was done; the next update starts another one.
        """
        with self._lock:
            if self._worker is None or not self._worker.is_alive:
                self._end()
                self._worker = Worker(_TARGET, "the process that learns", niceness=NICENESS)
            try:
                self._worker.send(encode_state(_FORMAT, job))
                return decode_state(self._worker.receive(), _FORMAT)
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


def work(channel: Channel) -> None:
    """Makes an update for each message."""
    while True:
        channel.send(encode_state(_FORMAT, learn(decode_state(channel.receive(), _FORMAT))))
