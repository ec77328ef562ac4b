"""Transitions of one policy, lane by lane, until there are enough to learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.live.episodes import LiveStep
from learnloop.core.arrays import F32, I64, Indices
from learnloop.core.spaces import ActionSpace, Box, MultiDiscrete, num_choices
from learnloop.core.stepping import Actions, Masks


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
    masks: Masks | None
    dropout: I64 | None
    weights: F32 | None = None
    """Truncated importance weights of historical transitions, shape ``(batch,)``; None: all 1."""

    def rows(self, index: Indices | slice) -> Batch:
        """Returns some of its transitions."""
        return Batch(
            self.observations[index],
            self.actions[index],
            self.log_probs[index],
            self.values[index],
            self.advantages[index],
            self.returns[index],
            None if self.masks is None else self.masks[index],
            None if self.dropout is None else self.dropout[index],
            None if self.weights is None else self.weights[index],
        )

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
    width = 0 if isinstance(space, Box) else num_choices(space)
    return np.ones((*shape, width), dtype=np.bool_)


class Rollout:
    """``num_steps`` transitions of each lane.

    Attributes:
        position: how many steps of each lane are in.
    """

    def __init__(self, num_steps: int, num_lanes: int, observation_size: int, space: ActionSpace) -> None:
        shape = (num_steps, num_lanes)
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
        """Returns the value of what each action led to, shape ``(num_steps, num_lanes)``."""
        following = np.concatenate([self.values[1:], last_values[None]])
        return np.where(self.ended, self.bootstraps, following)

    def batch(self, advantages: F32, *, with_dropout: bool) -> Batch:
        """Returns its valid transitions with their advantages, shape ``(num_steps, num_lanes)``."""

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
            rows = getattr(self, name)[:position]
            if state[name].shape != rows.shape or state[name].dtype != rows.dtype:
                raise ValueError(
                    f"{name} of the rollout has shape {state[name].shape} and type {state[name].dtype}, not "
                    f"{rows.shape} and {rows.dtype}"
                )
            rows[...] = state[name]
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
    """Consecutive transitions of one episode, as a batch of one lane: arrays of shape ``(num_steps, ...)``."""

    observations: F32
    actions: Actions
    masks: Masks | None
    log_probs: F32
    """Under the policy that chose the actions."""
    rewards: F32
    last_observation: F32 | None
    """What the last action led to, shape ``(size,)``; None: the episode terminated, nothing came."""


class LiveSegment(NamedTuple):
    """A segment that this very policy chose, with what it knew then."""

    segment: Segment
    values: F32
    dropout: I64
    num_updates: I64
    """Gradient steps before each action was chosen."""


def segment_of(steps: Sequence[LiveStep], space: ActionSpace) -> LiveSegment:
    """Returns the transitions of one live episode as arrays."""
    count = len(steps)
    actions, masks = action_array(space, count), mask_array(space, count)
    has_masks = False
    for row, step in enumerate(steps):
        actions[row] = step.chosen.actions[0]
        if step.mask is not None:
            masks[row], has_masks = step.mask, True
    last = steps[-1]
    return LiveSegment(
        Segment(
            observations=np.stack([step.observation for step in steps]),
            actions=actions,
            masks=masks if has_masks else None,
            log_probs=_first(steps, "log_probs", np.float32),
            rewards=np.array([step.reward for step in steps], dtype=np.float32),
            last_observation=None if last.terminated else last.next_observation,
        ),
        values=_first(steps, "values", np.float32),
        dropout=_first(steps, "dropout", np.int64),
        num_updates=np.array([step.chosen.num_updates for step in steps], dtype=np.int64),
    )


def _first(steps: Sequence[LiveStep], name: str, dtype: Any) -> NDArray[Any]:
    found = [getattr(step.chosen, name) for step in steps]
    return np.array([0 if each is None else each[0] for each in found], dtype=dtype)


def join(batches: Sequence[Batch], space: ActionSpace) -> Batch:
    """Returns the transitions of several batches as one; where one has masks, the others allow all."""
    if len(batches) == 1:
        return batches[0]
    has_masks = any(batch.masks is not None for batch in batches)
    has_weights = any(batch.weights is not None for batch in batches)
    has_dropout = any(batch.dropout is not None for batch in batches)

    def column(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(batch, name) for batch in batches])

    return Batch(
        observations=column("observations"),
        actions=column("actions"),
        log_probs=column("log_probs"),
        values=column("values"),
        advantages=column("advantages"),
        returns=column("returns"),
        masks=np.concatenate([mask_array(space, each.size) if each.masks is None else each.masks for each in batches])
        if has_masks
        else None,
        dropout=column("dropout") if has_dropout else None,
        weights=np.concatenate(
            [np.ones(each.size, dtype=np.float32) if each.weights is None else each.weights for each in batches]
        )
        if has_weights
        else None,
    )
