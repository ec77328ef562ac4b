"""Transitions of one policy, env by env, until there are enough to learn from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.base.states import put_array
from learnloop.algorithms.live.episodes import LiveStep
from learnloop.core.arrays import F32, I64, Bools, Indices
from learnloop.core.spaces import ActionSpace, Box, MultiDiscrete
from learnloop.core.stepping import Actions, Masks
from learnloop.nn.encoders.action_codec import mask_width


class Batch(NamedTuple):
    """Transitions to learn from, in no order that matters."""

    observations: F32
    """Shape ``(batch, size)``."""
    actions: Actions
    log_probs: F32
    """Of the actions under the policy that chose them, shape ``(batch,)``."""
    values: F32
    """Of the observations when the actions were chosen, shape ``(batch,)``."""
    advantages: F32
    """Shape ``(batch,)``."""
    returns: F32
    """What the values are to become, shape ``(batch,)``."""
    masks: Masks | None = None
    dropout: I64 | None = None
    weights: F32 | None = None
    """Truncated importance weights of historical transitions, shape ``(batch,)``; None: all 1."""

    def rows(self, index: Indices | slice) -> Batch:
        """Returns some of its transitions."""
        return Batch._make([None if each is None else each[index] for each in self])

    @property
    def size(self) -> int:
        """How many transitions it has."""
        return len(self.observations)


def action_array(space: ActionSpace, *shape: int) -> Actions:
    """Returns zeros for actions of ``space``, with ``shape`` in front."""
    if isinstance(space, Box):
        return np.zeros((*shape, space.size), dtype=np.float32)
    if isinstance(space, MultiDiscrete):
        return np.zeros((*shape, len(space.nvec)), dtype=np.int64)
    return np.zeros(shape, dtype=np.int64)


def mask_array(space: ActionSpace, *shape: int) -> Masks:
    """Returns masks that allow all, with ``shape`` in front; of width 0 for a box."""
    return np.ones((*shape, mask_width(space)), dtype=np.bool_)


class Rollout:
    """``num_steps`` transitions of each env.

    Attributes:
        position: how many steps of each env are in.
    """

    def __init__(self, num_steps: int, num_envs: int, observation_size: int, space: ActionSpace) -> None:
        shape = (num_steps, num_envs)
        self.num_steps = num_steps
        self.position = 0
        self.observations = np.zeros((*shape, observation_size), dtype=np.float32)
        self.actions = action_array(space, *shape)
        self.masks = mask_array(space, *shape)
        self.log_probs = np.zeros(shape, dtype=np.float32)
        self.values = np.zeros(shape, dtype=np.float32)
        self.dropout = np.zeros(shape, dtype=np.int64)
        self.rewards = np.zeros(shape, dtype=np.float32)
        self.bootstraps = np.zeros(shape, dtype=np.float32)
        """The value of the last observation of an episode that was truncated; 0 of one that terminated."""
        self.ended = np.zeros(shape, dtype=np.bool_)
        self.valid = np.ones(shape, dtype=np.bool_)
        self.has_masks = False
        self.has_invalid = False

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another step."""
        return self.position == self.num_steps

    def clear(self) -> None:
        """Makes room for the next ``num_steps``."""
        self.position = 0
        if self.has_masks:
            self.masks[:] = True
        if self.has_invalid:
            self.valid[:] = True
        self.bootstraps[:] = 0
        self.has_masks = self.has_invalid = False

    def next_values(self, last_values: F32) -> F32:
        """Returns the value of what each action led to, shape ``(num_steps, num_envs)``."""
        following = np.concatenate([self.values[1:], last_values[None]])
        return np.where(self.ended, self.bootstraps, following)

    def batch(self, advantages: F32, *, with_dropout: bool) -> Batch:
        """Returns its valid transitions with their advantages, shape ``(num_steps, num_envs)``."""

        def flat(array: NDArray[Any]) -> NDArray[Any]:
            joined = array.reshape(-1, *array.shape[2:])
            return joined[self.valid.reshape(-1)] if self.has_invalid else joined

        return Batch(
            observations=flat(self.observations),
            actions=flat(self.actions),
            log_probs=flat(self.log_probs),
            values=flat(self.values),
            advantages=flat(advantages),
            returns=flat(advantages + self.values),
            masks=flat(self.masks) if self.has_masks else None,
            dropout=flat(self.dropout) if with_dropout else None,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of what is in it."""
        return {name: getattr(self, name)[: self.position].copy() for name in _ARRAYS} | {
            "flags": np.array([self.position, self.has_masks, self.has_invalid], dtype=np.int64)
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Holds what ``state`` says."""
        self.clear()
        position, has_masks, has_invalid = (int(each) for each in state["flags"])
        for name in _ARRAYS:
            put_array(f"{name} of the rollout", getattr(self, name)[:position], state[name])
        self.position, self.has_masks, self.has_invalid = position, bool(has_masks), bool(has_invalid)


_ARRAYS = (
    "observations",
    "actions",
    "masks",
    "log_probs",
    "values",
    "dropout",
    "rewards",
    "bootstraps",
    "ended",
    "valid",
)


class Segment(NamedTuple):
    """Consecutive transitions of one episode, as a batch of one env: arrays of shape ``(num_steps, ...)``."""

    observations: F32
    actions: Actions
    masks: Masks | None
    log_probs: F32
    """Under the policy that chose the actions."""
    rewards: F32
    last_observation: F32 | None
    """What the last action led to, shape ``(size,)``; None: the episode terminated, nothing came."""


class Steps(NamedTuple):
    """Transitions of whole segments, one segment after the other; arrays have the shape ``(num_steps, ...)``."""

    observations: F32
    actions: Actions
    log_probs: F32
    """As the policy that chose the actions had them."""
    rewards: F32
    ended: Bools
    """Whether it is the last of its segment."""
    cut: Indices
    """The rows whose episode goes on after the segment, or was truncated: what comes then is worth the value of
    ``next_observations``. Each is the last of its segment."""
    next_observations: F32
    """Shape ``(len(cut), size)``."""
    values: F32 | None = None
    """Of the observations, as the policy that chose had them; None: nobody knows."""
    masks: Masks | None = None
    """Which choices were allowed; None: all."""
    dropout: I64 | None = None
    """Which dropout mask each observation is seen through; None: there is no dropout."""

    @property
    def size(self) -> int:
        """How many transitions there are."""
        return len(self.observations)


def last_rows(lengths: Sequence[int]) -> Bools:
    """Returns which rows are the last of segments of these lengths, laid one after the other."""
    ended = np.zeros(sum(lengths), dtype=np.bool_)
    ended[np.cumsum(np.asarray(lengths, dtype=np.intp)) - 1] = True
    return ended


def joined_segments(segments: Sequence[Segment], space: ActionSpace) -> Steps:
    """Returns the transitions of several segments; where one has masks, the others allow all."""

    def column(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(segment, name) for segment in segments])

    lengths = [len(segment.rewards) for segment in segments]
    masks = None
    if any(segment.masks is not None for segment in segments):
        masks = np.concatenate([
            mask_array(space, count) if segment.masks is None else segment.masks
            for segment, count in zip(segments, lengths, strict=True)
        ])  # fmt: skip
    ended, observations = last_rows(lengths), column("observations")
    is_cut = [segment.last_observation is not None for segment in segments]
    following = [segment.last_observation for segment in segments if segment.last_observation is not None]
    return Steps(
        observations=observations,
        actions=column("actions"),
        masks=masks,
        log_probs=column("log_probs"),
        rewards=column("rewards"),
        ended=ended,
        cut=np.flatnonzero(ended)[is_cut],
        next_observations=np.array(following, dtype=np.float32).reshape(len(following), observations.shape[1]),
    )


def live_steps(segments: Iterable[Sequence[LiveStep]], space: ActionSpace, *, with_dropout: bool) -> tuple[Steps, I64]:
    """Returns the transitions of live episodes, and how many gradient steps there were before each was chosen."""
    parts = list(segments)
    rows = [step for segment in parts for step in segment]
    actions, masks = action_array(space, len(rows)), mask_array(space, len(rows))
    has_masks = False
    for row, step in enumerate(rows):
        actions[row] = step.chosen.actions[0]
        if step.mask is not None:
            masks[row], has_masks = step.mask, True
    ended = last_rows([len(segment) for segment in parts])
    is_cut = [not segment[-1].terminated for segment in parts]
    observations = np.stack([step.observation for step in rows])
    following = [segment[-1].next_observation for segment, goes_on in zip(parts, is_cut, strict=True) if goes_on]
    steps = Steps(
        observations=observations,
        actions=actions,
        masks=masks if has_masks else None,
        log_probs=_first(rows, "log_probs", np.float32),
        values=_first(rows, "values", np.float32),
        rewards=np.array([step.reward for step in rows], dtype=np.float32),
        ended=ended,
        cut=np.flatnonzero(ended)[is_cut],
        next_observations=np.array(following, dtype=np.float32).reshape(len(following), observations.shape[1]),
        dropout=_first(rows, "dropout", np.int64) if with_dropout else None,
    )
    return steps, np.array([step.chosen.num_updates for step in rows], dtype=np.int64)


def _first(steps: Sequence[LiveStep], name: str, dtype: Any) -> NDArray[Any]:
    found = [getattr(step.chosen, name) for step in steps]
    return np.array([0 if each is None else each[0] for each in found], dtype=dtype)


def join(batches: Sequence[Batch], space: ActionSpace) -> Batch:
    """Returns the transitions of several batches as one; where one has masks, the others allow all."""
    if len(batches) == 1:
        return batches[0]
    fill: Mapping[str, Callable[[int], NDArray[Any]]] = {
        "masks": lambda size: mask_array(space, size),
        "weights": lambda size: np.ones(size, dtype=np.float32),
    }
    columns: dict[str, Any] = {}
    for name in Batch._fields:
        parts = [getattr(batch, name) for batch in batches]
        if any(part is not None for part in parts):
            sized = zip(parts, batches, strict=True)
            columns[name] = np.concatenate([fill[name](batch.size) if part is None else part for part, batch in sized])
    return Batch(**columns)
