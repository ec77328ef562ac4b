"""Historical transitions, which may come from anywhere: checked, and brought to the types that are computed with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.on_policy.rollout import Segment, action_array, mask_array
from learnloop.algorithms.replay.transitions import Transitions
from learnloop.core.arrays import F32
from learnloop.core.errors import UsageError
from learnloop.core.spaces import ActionSpace, Box, MultiDiscrete, num_choices
from learnloop.core.stepping import Actions, Masks

Shape = tuple[int, ...]

_SEGMENT = "a historical segment"
_TRANSITIONS = "historical transitions"
_LARGEST = float(np.finfo(np.float32).max)


def check_segment(segment: Segment, space: ActionSpace, size: int) -> Segment:
    """Returns ``segment`` with arrays of the types that are computed with.

    Args:
        segment: what is checked.
        space: of its actions.
        size: how many numbers its encoded observations have.

    Raises:
        UsageError: it is empty, an array has another shape, an action or a number is not allowed, or an action was
            masked.
    """
    count = len(segment.observations)
    if not count:
        raise UsageError("a historical segment has no transition; leave it out")

    def column(name: str, shape: Shape, kinds: str) -> NDArray[Any]:
        return _column(getattr(segment, name), f"{name} of {_SEGMENT}", shape, kinds)

    actions = column("actions", action_array(space, count).shape, _action_kinds(space))
    log_probs = column("log_probs", (count,), "f")
    masks = None if segment.masks is None else column("masks", mask_array(space, count).shape, "b")
    if not isinstance(space, Box):
        if (log_probs > 0).any():
            raise UsageError("a historical segment has log probabilities above 0; discrete actions have none")
        _check_choices("a historical segment has", space, actions, masks)
    return Segment(
        observations=column("observations", (count, size), "fiub"),
        actions=actions,
        masks=masks,
        log_probs=log_probs,
        rewards=column("rewards", (count,), "fiub"),
        last_observation=None if segment.last_observation is None else column("last_observation", (size,), "fiub"),
    )


def check_transitions(transitions: Transitions, space: ActionSpace, size: int) -> Transitions:
    """Returns ``transitions`` with arrays of the types that are computed with.

    Args:
        transitions: what is checked.
        space: of the actions.
        size: how many numbers an encoded observation has.

    Raises:
        UsageError: there are none, an array has another shape or type, an action or a number is not allowed, or an
            action was masked.
    """
    count = len(transitions.rewards)
    if not count:
        raise UsageError("there are no historical transitions; at least 1 is needed")

    def column(name: str, shape: Shape, kinds: str) -> NDArray[Any]:
        return _column(getattr(transitions, name), f"{name} of {_TRANSITIONS}", shape, kinds)

    terminated = column("terminated", (count,), "b")
    actions = column("actions", action_array(space, count).shape, _action_kinds(space))
    shape = mask_array(space, count).shape
    masks = None if transitions.masks is None else column("masks", shape, "b")
    if not isinstance(space, Box):
        _check_choices("historical transitions have", space, actions, masks)
    following = _array(transitions.next_observations, f"next_observations of {_TRANSITIONS}", (count, size), "fiub")
    _check_finite(following[~terminated], f"next_observations of {_TRANSITIONS}")
    return Transitions(
        observations=column("observations", (count, size), "fiub"),
        actions=actions,
        rewards=column("rewards", (count,), "fiub"),
        next_observations=_narrow(following),
        terminated=terminated,
        truncated=column("truncated", (count,), "b") & ~terminated,
        masks=masks,
        next_masks=None if transitions.next_masks is None else column("next_masks", shape, "b"),
    )


def _action_kinds(space: ActionSpace) -> str:
    return "f" if isinstance(space, Box) else "iu"


def _column(value: object, name: str, shape: Shape, kinds: str) -> NDArray[Any]:
    found = _array(value, name, shape, kinds)
    _check_finite(found, name)
    if kinds == "b":
        return found
    return found.astype(np.int64, copy=False) if kinds == "iu" else _narrow(found)


def _array(value: object, name: str, shape: Shape, kinds: str) -> NDArray[Any]:
    try:
        found = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise UsageError(f"{name} are no array: {error}") from error
    if found.shape != shape or found.dtype.kind not in kinds:
        raise UsageError(f"{name} have shape {found.shape} and type {found.dtype}, not {shape} and {_KINDS[kinds]}")
    return found


def _check_finite(values: NDArray[Any], name: str) -> None:
    if values.dtype.kind == "f" and not (np.abs(values) <= _LARGEST).all():
        raise UsageError(f"{name} are not finite in 32 bits; leave out what is not known")


def _narrow(values: NDArray[Any]) -> F32:
    with np.errstate(over="ignore", invalid="ignore"):  # of rows that nobody looks at
        return values.astype(np.float32, copy=False)


_KINDS = {"f": "float", "iu": "integers", "b": "booleans", "fiub": "numbers"}


def _check_choices(what: str, space: ActionSpace, actions: Actions, masks: Masks | None) -> None:
    """Raises UsageError where a discrete action does not exist or was not allowed."""
    counts = np.array(space.nvec if isinstance(space, MultiDiscrete) else [num_choices(space)])  # type: ignore[arg-type]
    chosen = actions.reshape(len(actions), -1)
    if (chosen < 0).any() or (chosen >= counts).any():
        raise UsageError(
            f"{what} actions from {chosen.min()} to {chosen.max()}; they count from 0 to below {counts.tolist()}"
        )
    if masks is not None:
        columns = np.concatenate([[0], np.cumsum(counts)[:-1]]) + chosen
        if not np.take_along_axis(masks, columns, axis=1).all():
            raise UsageError(f"{what} an action that its mask does not allow")
