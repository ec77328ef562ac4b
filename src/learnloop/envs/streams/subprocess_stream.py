"""Environments in worker processes, several envs in each, which write into arrays that all share.

For environments whose step takes far longer than the half millisecond that two messages take.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import DTypeLike, NDArray

from learnloop.core.arrays import F32
from learnloop.core.errors import LearnloopError
from learnloop.core.spaces import ActionSpace, Spaces
from learnloop.core.stepping import EnvStep
from learnloop.envs.registry import EnvMaker, MadeEnv, make_env, register_envs
from learnloop.envs.spaces import check_num_actions
from learnloop.envs.streams.stream import EnvStream, StepBlock
from learnloop.envs.streams.sync_stream import SyncEnvs, spaces_of
from learnloop.nn.encoders.observation_encoder import ObservationEncoder
from learnloop.system.shared_arrays import SharedArrays
from learnloop.system.worker import Channel, Worker

if TYPE_CHECKING:
    from learnloop.core.stepping import Actions, Masks

_CLOSE_SECONDS = 10.0
_TARGET = "learnloop.envs.streams.subprocess_stream:work"
_HINT = (
    "The processes of the envs run what is above the script's if __name__ == '__main__': register it there, or give "
    "'module:Id'"
)

_MASKED, _FREE = b"m", b"f"
"""What a worker answers: whether its envs have told masks."""

Shapes = list[tuple[DTypeLike, tuple[int, ...]]]


class _Job(msgspec.Struct, frozen=True):
    """What a worker is told first."""

    made_by: bytes
    """The function that makes an environment, as any process can read it."""
    label: str
    first: int
    stop: int
    num_envs: int
    handle: int
    """The open file of two blocks."""


class _Order(msgspec.Struct, frozen=True, array_like=True):
    """What a worker is told then."""

    turn: int
    """Which block is written to."""
    has_masks: bool
    """Whether an env of any worker has told a mask so far."""
    seed: int = 0
    dtype: str = ""
    """Of the actions; empty: envs are reset."""
    shape: tuple[int, ...] = ()
    actions: bytes = b""


class SubprocessStream(EnvStream):
    """Envs in worker processes; an ended env begins again in the same step.

    Workers are started afresh (not forked from this process, whose threads may hold locks), so a script that makes
    such a stream must do it under ``if __name__ == "__main__":``.
    """

    def __init__(
        self,
        env: str | EnvMaker,
        num_envs: int,
        label: str,
        spaces: Spaces,
        env_kwargs: Mapping[str, Any],
        findings: Sequence[str] = (),
    ) -> None:
        size = ObservationEncoder(spaces.observation).size
        self._shared, arrays = _shared_arrays(num_envs, size, spaces.action)
        super().__init__(label, spaces, num_envs, findings, lambda shape, dtype: next(arrays))
        self._has_masks = False
        self._workers: list[Worker] = []
        self._parts: list[slice] = []
        maker: Any = partial(make_env, env, dict(env_kwargs))
        made_by = CloudpickleWrapper(maker).__getstate__()
        num_workers = min(num_envs, os.cpu_count() or 1)
        for number in range(num_workers):
            first, stop = number * num_envs // num_workers, (number + 1) * num_envs // num_workers
            name = f"{label}: the process of envs {first} to {stop - 1}"
            worker = Worker(_TARGET, name, handles=[self._shared.handle], one_thread=False, script=True, hint=_HINT)
            job = _Job(made_by, label, first, stop, num_envs, self._shared.handle)
            worker.send(msgspec.msgpack.encode(job))
            self._workers.append(worker)
            self._parts.append(slice(first, stop))

    def reset(self, seed: int) -> tuple[F32, Masks | None]:
        """Begins new episodes in all envs; see ``EnvStream.reset``."""
        block = self._ask(lambda part: {"seed": seed})
        self._log.begin(range(self.num_envs))
        return block.observations, block.masks if self._has_masks else None

    def step(self, actions: Actions) -> EnvStep:
        """Steps all envs; see ``EnvStream.step``.

        Raises:
            LearnloopError: a worker ended, or its environment failed; the message names its envs.
        """
        check_num_actions(actions, self.num_envs)
        given = np.asarray(actions)
        block = self._ask(lambda part: _pack_actions(given[part]))
        self._log.count(block.rewards, self.num_envs)
        ended = np.flatnonzero(block.terminated | block.truncated).tolist()
        if ended:
            self._log.end(ended, block.terminated, block.truncated)
            self._log.begin(ended)
        return block.env_step(has_ended=bool(ended), has_masks=self._has_masks)

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            worker.ask_to_end()
        for worker in self._workers:
            worker.close(_CLOSE_SECONDS)
        self._shared.close()

    def _ask(self, fields: Callable[[slice], Mapping[str, Any]]) -> StepBlock:
        """Lets all workers do what ``fields`` says for their envs, and returns the block that they wrote."""
        block = self._next_block()
        try:
            for worker, part in zip(self._workers, self._parts, strict=True):
                worker.send(msgspec.msgpack.encode(_Order(self._turn, self._has_masks, **fields(part))))
            told = [worker.receive() == _MASKED for worker in self._workers]
        except LearnloopError:
            self.close()
            raise
        self._has_masks = any(told)
        for part, has_masks in zip(self._parts, told, strict=True):
            if self._has_masks and not has_masks:  # told elsewhere for the first time: here all is allowed
                block.masks[part] = True
                block.final_masks[part] = True
        return block


def _pack_actions(actions: NDArray[Any]) -> dict[str, Any]:
    return {"dtype": actions.dtype.str, "shape": actions.shape, "actions": actions.tobytes()}


def _shared_arrays(
    num_envs: int, size: int, space: ActionSpace, handle: int | None = None
) -> tuple[SharedArrays, Iterator[NDArray[Any]]]:
    """Returns shared memory, new or that of the open file ``handle``, and the arrays in it that two blocks ask for."""
    shapes: Shapes = []

    def note(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        shapes.append((dtype, shape))
        return np.empty(shape, dtype)

    for _ in range(2):
        StepBlock(num_envs, size, space, note)
    shared = SharedArrays({str(number): each for number, each in enumerate(shapes)}, handle)
    return shared, iter(shared.arrays.values())


def work(channel: Channel) -> None:
    """Makes envs as the first message says, then resets or steps them at each message."""
    job = msgspec.msgpack.decode(channel.receive(), type=_Job)
    envs, blocks = _prepare(job)
    decoder = msgspec.msgpack.Decoder(_Order)
    try:
        while True:
            order = decoder.decode(channel.receive())
            envs.has_masks = envs.has_masks or order.has_masks
            block = blocks[order.turn]
            if order.dtype:  # observations must be whole also here, where another worker's env may have ended
                actions = np.frombuffer(order.actions, order.dtype).reshape(order.shape)
                envs.restart(block, envs.advance(block, actions))
            else:
                envs.reset(block, order.seed)
            channel.send(_MASKED if envs.has_masks else _FREE)
    finally:
        envs.close()


def _prepare(job: _Job) -> tuple[SyncEnvs, list[StepBlock]]:
    register_envs()
    maker: Any = CloudpickleWrapper.__new__(CloudpickleWrapper)
    maker.__setstate__(job.made_by)
    made: list[MadeEnv] = [maker.fn() for _ in range(job.first, job.stop)]
    envs = SyncEnvs(made, job.label, spaces_of(made[0].env), job.first)
    size, space = envs.encoder.size, envs.spaces.action
    _, arrays = _shared_arrays(job.num_envs, size, space, job.handle)
    blocks = [StepBlock(job.num_envs, size, space, lambda shape, dtype: next(arrays)) for _ in range(2)]
    return envs, [block.part(job.first, job.stop) for block in blocks]
