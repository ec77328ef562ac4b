"""Historical transitions, which may come from anywhere: checked, and brought to the types that are computed with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.on_policy.rollout import Segment, action_array, mask_array
from learnloop.algorithms.replay.transitions import Transitions
from learnloop.core.errors import UsageError
from learnloop.core.spaces import ActionSpace, Box, MultiDiscrete, num_choices
from learnloop.core.stepping import Actions, Masks

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
    found = segment._replace(**_columns(segment, "a historical segment", space, (count, size)))
    if not isinstance(space, Box):
        if (found.log_probs > 0).any():
            raise UsageError("a historical segment has log probabilities above 0; discrete actions have none")
        _check_choices("a historical segment has", space, found.actions, found.masks)
    return found


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
    found = transitions._replace(**_columns(transitions, "historical transitions", space, (count, size)))
    if not isinstance(space, Box):
        _check_choices("historical transitions have", space, found.actions, found.masks)
    return found._replace(truncated=found.truncated & ~found.terminated)


def _columns(
    record: Segment | Transitions, what: str, space: ActionSpace, shape: tuple[int, int]
) -> dict[str, NDArray[Any]]:
    """Returns the arrays of ``record``, whose observations have ``shape``, in the types that are computed with."""
    flat, choices = shape[:1], mask_array(space, shape[0]).shape
    forms = {
        "observations": (shape, "fiub"),
        "actions": (action_array(space, shape[0]).shape, "f" if isinstance(space, Box) else "iu"),
        "masks": (choices, "b"),
        "log_probs": (flat, "f"),
        "rewards": (flat, "fiub"),
        "last_observation": (shape[1:], "fiub"),
        "next_observations": (shape, "fiub"),
        "terminated": (flat, "b"),
        "truncated": (flat, "b"),
        "next_masks": (choices, "b"),
    }
    given = {name: value for name, value in record._asdict().items() if value is not None or name not in _OPTIONAL}
    found = {name: _array(value, f"{name} of {what}", *forms[name]) for name, value in given.items()}
    for name, column in found.items():
        looked_at = column[~found["terminated"]] if name == "next_observations" else column
        if column.dtype.kind == "f" and not (np.abs(looked_at) <= _LARGEST).all():
            raise UsageError(f"{name} of {what} are not finite in 32 bits; leave out what is not known")
        with np.errstate(over="ignore", invalid="ignore"):  # of rows that nobody looks at
            found[name] = column.astype(_TYPES[forms[name][1]], copy=False)
    return found


_OPTIONAL = ("masks", "next_masks", "last_observation")
_TYPES = {"f": np.float32, "iu": np.int64, "b": np.bool_, "fiub": np.float32}


def _array(value: object, name: str, shape: tuple[int, ...], kinds: str) -> NDArray[Any]:
    try:
        found = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise UsageError(f"{name} are no array: {error}") from error
    if found.shape != shape or found.dtype.kind not in kinds:
        raise UsageError(f"{name} have shape {found.shape} and type {found.dtype}, not {shape} and {_KINDS[kinds]}")
    return found


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
