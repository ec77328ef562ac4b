"""PPO's updates in a process of their own, so that what chooses never waits for one.

The process is given all of it, the state of the network and the steps, and gives back the state after the update: it
remembers nothing, and can be killed at any time. Parent and child speak through pipes: a line of JSON with the names,
types and shapes of arrays, then their bytes.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.base.states import AlgorithmState, part_of, prefixed
from learnloop.algorithms.on_policy.ppo import PPOConfig
from learnloop.algorithms.on_policy.rollout import Steps
from learnloop.algorithms.on_policy.segment_ppo import SegmentPPO
from learnloop.core.errors import DivergedError, LearnloopError, UnreachableError
from learnloop.training.workers.child_processes import child_environment

NICENESS = 10
"""How much the process gives way to those that answer requests."""
_STOP_SECONDS = 2.0
_CONFIG = "config"

Tensors = Mapping[str, NDArray[Any]]


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
        self._child: subprocess.Popen[bytes] | None = None

    def learn(self, job: Job) -> Done:
        """Returns what came of an update.

        Raises:
            DivergedError: a number is not finite.
            UnreachableError: the process ended before it was done; the next update starts another one.
        """
        with self._lock:
            child = self._started()
            try:
                _write(_pipe(child.stdin), *_told(job))
                values, tensors = _read(_pipe(child.stdout))
            except (OSError, EOFError, ValueError) as error:
                self._end()
                raise UnreachableError(
                    f"the process that learns ended before it was done ({error}); try again"
                ) from error
        if values["error"] is not None:
            raise DivergedError(values["error"])
        state = AlgorithmState(tensors, values["state"])
        metrics = {name: math.nan if value is None else value for name, value in values["metrics"].items()}
        return Done(state, metrics, values["num_stale"], values["max_log_ratio"])

    def close(self) -> None:
        """Ends the process; an update that runs is given up."""
        child = self._child
        if child is not None:
            child.kill()  # first: whoever holds the lock waits for its answer
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self._end()
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=child_environment(),
                start_new_session=True,  # Ctrl-C is for the server, which ends it
            )
        return self._child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait(_STOP_SECONDS)
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # what was not sent yet cannot be any more
                    continue


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise EOFError("it has no pipe")
    return stream


def _told(job: Job) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    values = {
        _CONFIG: msgspec.to_builtins(job.config),
        "size": job.size,
        "num_actions": job.num_actions,
        "seed": job.seed,
        "weight_decay": job.weight_decay,
        "rate_factor": job.rate_factor,
        "state": job.state.values,
    }
    return values, {**_named("state.", job.state.tensors), **_named("steps.", _known(job.steps))}


def _named(prefix: str, tensors: Tensors) -> dict[str, NDArray[Any]]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _known(steps: Steps) -> dict[str, NDArray[Any]]:
    return {name: value for name, value in steps._asdict().items() if value is not None}


def _job(values: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Job:
    config = msgspec.convert(values.pop(_CONFIG), PPOConfig)
    state = AlgorithmState(part_of(tensors, "state."), values.pop("state"))
    return Job(config=config, state=state, steps=Steps(**part_of(tensors, "steps.")), **values)


def _write(stream: IO[bytes], values: Mapping[str, Any], tensors: Tensors) -> None:
    arrays = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    shapes = {name: [tensor.dtype.str, list(tensor.shape)] for name, tensor in arrays.items()}
    stream.write(json.dumps({"values": values, "arrays": shapes}).encode() + b"\n")
    for tensor in arrays.values():
        if tensor.size:
            stream.write(tensor.reshape(-1).view(np.uint8).data)
    stream.flush()


def _read(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Returns what ``_write`` sent.

    Raises:
        EOFError: the other side is gone.
    """
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError("nothing more comes")
    head = json.loads(line)
    tensors = {}
    for name, (dtype, shape) in head["arrays"].items():
        tensor = np.empty(shape, dtype=dtype)
        if tensor.size:
            left = tensor.reshape(-1).view(np.uint8).data
            while len(left):
                count = stream.readinto(left)  # type: ignore[attr-defined]
                if not count:
                    raise EOFError("it is cut off")
                left = left[count:]
        tensors[name] = tensor
    return head["values"], tensors


def _answer(job: Job) -> tuple[dict[str, Any], Tensors]:
    try:
        done = learn(job)
    except LearnloopError as error:
        return {"error": str(error)}, {}
    metrics = {name: value if math.isfinite(value) else None for name, value in done.metrics.items()}
    values = {
        "error": None,
        "state": done.state.values,
        "metrics": metrics,
        "num_stale": done.num_stale,
        "max_log_ratio": done.max_log_ratio,
    }
    return values, prefixed("", done.state.tensors)


def run() -> None:
    """Answers jobs from the standard input until it ends."""
    os.nice(NICENESS)
    given = sys.stdin.buffer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is written there is no answer
    while True:
        try:
            values, tensors = _read(given)
        except EOFError:
            return
        _write(answers, *_answer(_job(values, tensors)))


if __name__ == "__main__":
    run()
