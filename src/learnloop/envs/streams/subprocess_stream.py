"""Environments in worker processes, several lanes in each, which write into arrays that all share.

For environments whose step takes far longer than the half millisecond that two messages take.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import DTypeLike, NDArray

from learnloop.core.arrays import F32
from learnloop.core.errors import LearnloopError
from learnloop.core.spaces import Spaces
from learnloop.core.stepping import LaneStep
from learnloop.envs.registry import EnvMaker, MadeEnv, make_env, register_envs
from learnloop.envs.spaces import check_num_actions
from learnloop.envs.streams.blocks import StepBlock
from learnloop.envs.streams.episodes import Episode, EpisodeLog
from learnloop.envs.streams.lanes import Lanes, spaces_of
from learnloop.envs.streams.masks import MaskReader
from learnloop.nn.encoders.observation_encoder import ObservationEncoder
from learnloop.system.shared_arrays import SharedArrays
from learnloop.system.worker import Channel, Worker

if TYPE_CHECKING:
    from learnloop.core.stepping import Actions, Masks

_CLOSE_SECONDS = 10.0
_TARGET = "learnloop.envs.streams.subprocess_stream:work"
_HINT = (
    "The processes of the lanes run what is above the script's if __name__ == '__main__': register it there, or give "
    "'module:Id'"
)

_MASKED, _FREE = b"m", b"f"
"""What a worker answers: whether its lanes have told masks."""

Shapes = list[tuple[DTypeLike, tuple[int, ...]]]


class _Job(msgspec.Struct, frozen=True):
    """What a worker is told first."""

    made_by: bytes
    """The function that makes an environment, as any process can read it."""
    label: str
    first: int
    stop: int
    num_lanes: int
    num_choices: int
    handle: int
    """The open file of two blocks."""


class _Order(msgspec.Struct, frozen=True, array_like=True):
    """What a worker is told then."""

    turn: int
    """Which block is written to."""
    has_masks: bool
    """Whether a lane of any worker has told a mask so far."""
    seed: int = 0
    dtype: str = ""
    """Of the actions; empty: lanes are reset."""
    shape: tuple[int, ...] = ()
    actions: bytes = b""


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
        num_choices = MaskReader(spaces.action).num_choices
        self._shared, self._blocks = _blocks(num_lanes, self.encoder.size, num_choices)
        self._turn = 0
        self._workers: list[Worker] = []
        self._lanes: list[slice] = []
        maker: Any = partial(make_env, env, dict(env_kwargs))
        made_by = CloudpickleWrapper(maker).__getstate__()
        num_workers = min(num_lanes, os.cpu_count() or 1)
        for number in range(num_workers):
            first, stop = number * num_lanes // num_workers, (number + 1) * num_lanes // num_workers
            name = f"{label}: the process of lanes {first} to {stop - 1}"
            worker = Worker(_TARGET, name, handles=[self._shared.handle], one_thread=False, script=True, hint=_HINT)
            job = _Job(made_by, label, first, stop, num_lanes, num_choices, self._shared.handle)
            worker.send(msgspec.msgpack.encode(job))
            self._workers.append(worker)
            self._lanes.append(slice(first, stop))

    def reset(self, seed: int) -> tuple[F32, Masks | None]:
        """Begins new episodes in all lanes; see ``EnvStream.reset``."""
        block = self._ask(lambda lanes: {"seed": seed})
        self._log.begin(range(self.num_lanes))
        return block.observations, block.masks if self._has_masks else None

    def step(self, actions: Actions) -> LaneStep:
        """Steps all lanes; see ``EnvStream.step``.

        Raises:
            LearnloopError: a worker ended, or its environment failed; the message names its lanes.
        """
        check_num_actions(actions, self.num_lanes)
        given = np.asarray(actions)
        block = self._ask(lambda lanes: _told(given[lanes]))
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
            worker.ask_to_end()
        for worker in self._workers:
            worker.close(_CLOSE_SECONDS)
        self._shared.close()

    def _ask(self, fields: Callable[[slice], Mapping[str, Any]]) -> StepBlock:
        """Lets all workers do what ``fields`` says for their lanes, and returns the block that they wrote."""
        self._turn = 1 - self._turn
        try:
            for worker, lanes in zip(self._workers, self._lanes, strict=True):
                worker.send(msgspec.msgpack.encode(_Order(self._turn, self._has_masks, **fields(lanes))))
            told = [worker.receive() == _MASKED for worker in self._workers]
        except LearnloopError:
            self.close()
            raise
        block = self._blocks[self._turn]
        self._has_masks = any(told)
        for lanes, has_masks in zip(self._lanes, told, strict=True):
            if self._has_masks and not has_masks:  # told elsewhere for the first time: here all is allowed
                block.masks[lanes] = True
                block.final_masks[lanes] = True
        return block


def _told(actions: NDArray[Any]) -> dict[str, Any]:
    return {"dtype": actions.dtype.str, "shape": actions.shape, "actions": actions.tobytes()}


def _blocks(
    num_lanes: int, size: int, num_choices: int, handle: int | None = None
) -> tuple[SharedArrays, list[StepBlock]]:
    """Returns two blocks in shared memory: new, or that of the open file ``handle``."""
    shapes: Shapes = []

    def note(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        shapes.append((dtype, shape))
        return np.empty(shape, dtype)

    for _ in range(2):
        StepBlock(num_lanes, size, num_choices, note)
    shared = SharedArrays({str(number): each for number, each in enumerate(shapes)}, handle)
    arrays = iter(shared.arrays.values())
    return shared, [StepBlock(num_lanes, size, num_choices, lambda shape, dtype: next(arrays)) for _ in range(2)]


def work(channel: Channel) -> None:
    """Makes lanes as the first message says, then resets or steps them at each message."""
    job = msgspec.msgpack.decode(channel.receive(), type=_Job)
    lanes, blocks = _prepare(job)
    decoder = msgspec.msgpack.Decoder(_Order)
    try:
        while True:
            order = decoder.decode(channel.receive())
            lanes.has_masks = lanes.has_masks or order.has_masks
            block = blocks[order.turn]
            if order.dtype:  # observations must be whole also here, where another worker's lane may have ended
                actions = np.frombuffer(order.actions, order.dtype).reshape(order.shape)
                lanes.restart(block, lanes.advance(block, actions))
            else:
                lanes.reset(block, order.seed)
            channel.send(_MASKED if lanes.has_masks else _FREE)
    finally:
        lanes.close()


def _prepare(job: _Job) -> tuple[Lanes, list[StepBlock]]:
    register_envs()
    maker: Any = CloudpickleWrapper.__new__(CloudpickleWrapper)
    maker.__setstate__(job.made_by)
    made: list[MadeEnv] = [maker.fn() for _ in range(job.first, job.stop)]
    lanes = Lanes(made, job.label, spaces_of(made[0].env), job.first)
    _, blocks = _blocks(job.num_lanes, lanes.encoder.size, job.num_choices, job.handle)
    return lanes, [block.part(job.first, job.stop) for block in blocks]
