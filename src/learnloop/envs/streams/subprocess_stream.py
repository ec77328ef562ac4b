"""Environments in worker processes, several lanes in each, which write into arrays that all share.

For environments whose step takes far longer than the half millisecond that two messages take.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import signal
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray

from learnloop.core.arrays import F32
from learnloop.core.errors import ActionError, ContextError, LearnloopError, UsageError
from learnloop.core.spaces import Spaces
from learnloop.core.stepping import LaneStep
from learnloop.envs.registry import EnvMaker, make_env, register_envs
from learnloop.envs.spaces import check_num_actions
from learnloop.envs.streams.blocks import StepBlock
from learnloop.envs.streams.episodes import Episode, EpisodeLog
from learnloop.envs.streams.lanes import Lanes, spaces_of
from learnloop.envs.streams.masks import MaskReader
from learnloop.nn.encoders.observation_encoder import ObservationEncoder

if TYPE_CHECKING:
    from learnloop.core.stepping import Actions, Masks

_CLOSE_SECONDS = 10.0
_ERRORS: Mapping[str, type[LearnloopError]] = {each.__name__: each for each in (ActionError, ContextError, UsageError)}
"""What an environment at fault raises; a worker sends its name and its text."""


class _Job(NamedTuple):
    """What a worker is started with."""

    env: Any
    """The id, or the callable in a wrapper that any process can read."""
    env_kwargs: Mapping[str, Any]
    label: str
    first: int
    stop: int
    num_lanes: int
    num_choices: int
    arrays: Sequence[Any]
    """The shared memory of two blocks."""


class SubprocessStream:
    """Lanes in worker processes; an ended lane begins again in the same step.

    Workers are started afresh (not forked from this process, whose threads may hold locks), so a script that makes
    such a stream must do it under ``if __name__ == "__main__":``.

    Attributes:
        spaces: of a policy for the environment.
        encoder: of its observations.
        num_lanes: how many environments there are.
        findings: what the check before found odd.
    """

    def __init__(
        self,
        env: str | EnvMaker,
        num_lanes: int,
        label: str,
        spaces: Spaces,
        env_kwargs: Mapping[str, Any],
        findings: Sequence[str] = (),
    ) -> None:
        self.spaces = spaces
        self.num_lanes = num_lanes
        self.findings = tuple(findings)
        self.encoder = ObservationEncoder(spaces.observation)
        self._label = label
        self._has_masks = False
        self._log = EpisodeLog(num_lanes)
        methods = multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        num_choices = MaskReader(spaces.action).num_choices
        arrays: list[Any] = []

        def allocate(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
            arrays.append(context.RawArray(ctypes.c_char, max(1, math.prod(shape) * np.dtype(dtype).itemsize)))
            return _view(arrays[-1], shape, dtype)

        self._blocks = [StepBlock(num_lanes, self.encoder.size, num_choices, allocate) for _ in range(2)]
        self._turn = 0
        self._workers = []
        num_workers = min(num_lanes, os.cpu_count() or 1)
        for number in range(num_workers):
            first, stop = number * num_lanes // num_workers, (number + 1) * num_lanes // num_workers
            target = env if isinstance(env, str) else CloudpickleWrapper(env)
            job = _Job(target, env_kwargs, label, first, stop, num_lanes, num_choices, arrays)
            self._workers.append(_Worker(context, job))

    def reset(self, seed: int) -> tuple[F32, Masks | None]:
        """Begins new episodes in all lanes; see ``EnvStream.reset``."""
        block = self._ask([("reset", seed)] * len(self._workers))
        self._log.begin(range(self.num_lanes))
        return block.observations, block.masks if self._has_masks else None

    def step(self, actions: Actions) -> LaneStep:
        """Steps all lanes; see ``EnvStream.step``.

        Raises:
            LearnloopError: a worker ended, or its environment failed; the message names its lanes.
        """
        check_num_actions(actions, self.num_lanes)
        block = self._ask([("step", actions[each.job.first : each.job.stop]) for each in self._workers])
        self._log.count(block.rewards, self.num_lanes)
        ended = np.flatnonzero(block.terminated | block.truncated).tolist()
        if ended:
            self._log.end(ended, block.terminated, block.truncated)
            self._log.begin(ended)
        return block.lane_step(has_ended=bool(ended), has_masks=self._has_masks)

    def episodes(self) -> list[Episode]:
        """Returns the episodes that ended since it was last asked."""
        return self._log.take()

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            worker.close()

    def _ask(self, messages: Sequence[tuple[str, Any]]) -> StepBlock:
        self._turn = 1 - self._turn
        try:
            for worker, (command, value) in zip(self._workers, messages, strict=True):
                worker.send((command, self._turn, self._has_masks, value))
            told = [worker.receive() for worker in self._workers]
        except LearnloopError:
            self.close()
            raise
        block = self._blocks[self._turn]
        self._has_masks = any(told)
        for worker, has_masks in zip(self._workers, told, strict=True):
            if self._has_masks and not has_masks:  # told elsewhere for the first time: here all is allowed
                block.masks[worker.job.first : worker.job.stop] = True
                block.final_masks[worker.job.first : worker.job.stop] = True
        return block


class _Worker:
    """One process, as its parent sees it."""

    def __init__(self, context: Any, job: _Job) -> None:
        self.job = job
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=_work, args=(child, job), daemon=True)
        self._process.start()
        child.close()

    def send(self, message: Any) -> None:
        """Sends a command to the process."""
        try:
            self._pipe.send(message)
        except OSError as error:
            self._refuse(error)

    def receive(self) -> bool:
        """Returns whether its lanes have masks, once it has done what was asked."""
        try:
            kind, value = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._refuse(error)
        if kind == "done":
            return bool(value)
        raise _ERRORS.get(kind, LearnloopError)(value)

    def close(self) -> None:
        """Asks the process to end; one that does not is terminated."""
        if self._process.is_alive() and not self._pipe.closed:
            try:
                self._pipe.send(("close", 0, False, None))
            except OSError:  # it ended meanwhile, which is what was wanted
                self._process.join(_CLOSE_SECONDS)
        self._pipe.close()
        self._process.join(_CLOSE_SECONDS)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()

    def _refuse(self, error: Exception) -> NoReturn:
        self._process.join(1.0)
        raise LearnloopError(
            f"{self.job.label}: the process of lanes {self.job.first} to {self.job.stop - 1} ended by itself with exit "
            f"code {self._process.exitcode} (a negative one is the signal that killed it, such as -9 when the memory "
            "is full); make the stream anew"
        ) from error


def _view(memory: Any, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    return np.frombuffer(memory, dtype=dtype, count=math.prod(shape)).reshape(shape)


def _work(pipe: Connection, job: _Job) -> None:
    """What a worker process does: makes its lanes, then steps them until it is told to close or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal interrupts all processes; the parent decides
    try:
        lanes, blocks = _prepare(job)
        while True:
            command, turn, has_masks, value = pipe.recv()
            if command == "close":
                lanes.close()
                return
            lanes.has_masks = lanes.has_masks or has_masks
            if command == "reset":
                lanes.reset(blocks[turn], value)
            else:  # observations must be whole also here, where another worker's lane may have ended
                lanes.restart(blocks[turn], lanes.advance(blocks[turn], value))
            pipe.send(("done", lanes.has_masks))
    except LearnloopError as error:
        cause = error.__cause__  # of another's code; it does not come over the pipe, its traceback does
        told = (
            ""
            if cause is None or isinstance(cause, LearnloopError)
            else "\n" + "".join(traceback.format_exception(cause))
        )
        pipe.send((type(error).__name__, f"{error}{told}"))
        raise SystemExit(1) from error
    except EOFError as error:  # the parent closed its end
        raise SystemExit(0) from error
    except Exception as error:
        text = f"{job.label}: an environment of lanes {job.first} to {job.stop - 1} failed\n{traceback.format_exc()}"
        pipe.send(("LearnloopError", text))
        raise SystemExit(1) from error


def _prepare(job: _Job) -> tuple[Lanes, list[StepBlock]]:
    register_envs()
    env = job.env if isinstance(job.env, str) else job.env.fn
    made = [make_env(env, job.env_kwargs) for _ in range(job.first, job.stop)]
    lanes = Lanes(made, job.label, spaces_of(made[0].env), job.first)
    memories = iter(job.arrays)
    blocks = [
        StepBlock(job.num_lanes, lanes.encoder.size, job.num_choices, lambda *each: _view(next(memories), *each)).part(
            job.first, job.stop
        )
        for _ in range(2)
    ]
    return lanes, blocks
