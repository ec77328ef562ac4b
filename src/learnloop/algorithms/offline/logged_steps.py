"""The steps of a data set, checked against the spaces of who learns from them, and drawn as minibatches."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.on_policy.historical import check_transitions
from learnloop.algorithms.replay.transitions import Transitions
from learnloop.core.arrays import F32, I64
from learnloop.core.datasets import Dataset
from learnloop.core.errors import UsageError
from learnloop.core.spaces import Box, Spaces
from learnloop.core.stepping import Actions, Masks
from learnloop.nn.encoders.action_codec import ActionCodec
from learnloop.nn.encoders.observation_encoder import ObservationEncoder


class Minibatch(NamedTuple):
    """Steps that were drawn; the arrays are written over by the next draw."""

    rows: I64
    """Which steps of the data set they are, shape ``(batch,)``."""
    observations: F32
    """Shape ``(batch, size)``."""
    actions: Actions
    """As they were logged."""
    rewards: F32
    next_observations: F32
    discounts: F32
    """What the value of ``next_observations`` is worth: gamma, and 0 where the episode terminated. A truncated one is
    bootstrapped."""
    masks: Masks | None
    next_masks: Masks | None
    """Each row allows something, also where the episode terminated."""

    def targets(self, worth: F32) -> F32:
        """Returns r + gamma ``worth``, shape ``(batch,)``; r alone where the episode terminated, whatever it is worth.

        Args:
            worth: of ``next_observations``, shape ``(batch,)``.
        """
        found: F32 = np.where(self.discounts > 0, worth, np.float32(0))
        found *= self.discounts
        found += self.rewards
        return found


class LoggedSteps:
    """All steps of a data set. Its arrays are kept as they are, but for rewards, which become float32.

    Attributes:
        dataset: where they are from.
        observations: shape ``(num_steps, size)``.
        next_observations: the same shape.
    """

    def __init__(self, dataset: Dataset, spaces: Spaces, batch_size: int, gamma: float) -> None:
        """Checks them.

        Args:
            dataset: the steps.
            spaces: of the algorithm that learns from them.
            batch_size: of a minibatch.
            gamma: the discount.

        Raises:
            UsageError: spaces, shapes or types are others; a number is not finite; an action is outside its space or
                was not allowed; a mask allows nothing.
        """
        checked = _checked(dataset, spaces)
        self.dataset = dataset
        self.observations = checked.observations
        self.next_observations = checked.next_observations
        self._columns: list[NDArray[Any] | None] = [
            checked.observations,
            checked.actions,
            checked.rewards.astype(np.float32, copy=False),
            checked.next_observations,
            np.where(checked.terminated, np.float32(0), np.float32(gamma)),
            checked.masks,
            _some_allowed(checked, dataset.source),
        ]
        self._drawn = [
            None if column is None else np.empty((batch_size, *column.shape[1:]), dtype=column.dtype)
            for column in self._columns
        ]
        self._batch_size = batch_size

    def __len__(self) -> int:
        return len(self.observations)

    def draw(self, rng: np.random.Generator) -> Minibatch:
        """Returns ``batch_size`` steps, each as likely, with replacement."""
        rows = rng.integers(len(self.observations), size=self._batch_size)
        for column, drawn in zip(self._columns, self._drawn, strict=True):
            if column is not None:
                column.take(rows, axis=0, out=drawn, mode="clip")  # the mode that writes straight into ``out``
        return Minibatch(rows, *self._drawn)  # type: ignore[arg-type]

    def has_one_action(self) -> bool:
        """Returns whether the same action was taken in each step."""
        actions = self.dataset.actions
        return bool((actions == actions[0]).all())

    def some_observations(self, count: int) -> F32:
        """Returns up to ``count`` observations from all over the data set."""
        return np.ascontiguousarray(self.observations[:: max(1, len(self) // count)][:count])


def _checked(dataset: Dataset, spaces: Spaces) -> Transitions:
    size, theirs = ObservationEncoder(spaces.observation).size, ObservationEncoder(dataset.spaces.observation).size
    if dataset.spaces.action != spaces.action or theirs != size:
        raise UsageError(
            f"the data set of {dataset.source} shows {theirs} numbers and logs {dataset.spaces.action}; this algorithm "
            f"sees {size} and acts in {spaces.action}. Build it for the data set's spaces"
        )
    transitions = Transitions(*(getattr(dataset, name) for name in Transitions._fields))
    try:
        checked = check_transitions(transitions, spaces.action, size)
    except UsageError as error:
        raise UsageError(f"the data set of {dataset.source} cannot be learned from: {error}") from error
    if isinstance(spaces.action, Box):
        inside = checked.actions == ActionCodec(spaces.action).clip(checked.actions)
        if not inside.all():
            step = int(np.argmin(inside.all(axis=1)))
            raise UsageError(
                f"the action of step {step} of the data set of {dataset.source} is {checked.actions[step].tolist()}, "
                f"outside {spaces.action}; log what was done, after clipping"
            )
    return checked


def _some_allowed(checked: Transitions, source: str) -> Masks | None:
    """Returns the masks of what came next, with all allowed where nothing does: softmax and argmax need something."""
    masks = checked.next_masks
    if masks is None:
        return None
    empty = ~masks.any(axis=1)
    if (empty & ~checked.terminated).any():
        step = int(np.argmax(empty & ~checked.terminated))
        raise UsageError(f"the data set of {source} goes on after step {step}, and next_masks allow no action there")
    return masks | checked.terminated[:, None] if empty.any() else masks
