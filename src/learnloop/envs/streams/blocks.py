"""The arrays that a step of all lanes is written to: allocated once, used in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import Bools
from learnloop.core.stepping import LaneStep

Allocate = Callable[[tuple[int, ...], Any], NDArray[Any]]


class StepBlock:
    """What came of one step in each lane.

    Attributes:
        finals: what the actions led to, shape ``(num_lanes, size)``.
        observations: the same, but the first of the next episode where one ended; not valid where none ended.
        rewards: shape ``(num_lanes,)``.
        terminated: shape ``(num_lanes,)``.
        truncated: shape ``(num_lanes,)``.
        final_masks: shape ``(num_lanes, num_choices)``, for ``finals``.
        masks: the same for ``observations``.
    """

    def __init__(
        self,
        num_lanes: int,
        size: int,
        num_choices: int,
        allocate: Allocate = lambda shape, dtype: np.zeros(shape, dtype),
    ) -> None:
        self.observations = allocate((num_lanes, size), np.float32)
        self.finals = allocate((num_lanes, size), np.float32)
        self.rewards = allocate((num_lanes,), np.float64)
        self.terminated = allocate((num_lanes,), np.bool_)
        self.truncated = allocate((num_lanes,), np.bool_)
        self.masks = allocate((num_lanes, num_choices), np.bool_)
        self.final_masks = allocate((num_lanes, num_choices), np.bool_)
        self._list_rows()

    def _list_rows(self) -> None:
        # Views of rows, made once: indexing an array costs as much as writing four numbers.
        self.observation_rows = list(self.observations)
        self.final_rows = list(self.finals)
        self.mask_rows = list(self.masks)
        self.final_mask_rows = list(self.final_masks)

    def part(self, first: int, stop: int) -> StepBlock:
        """Returns a view of some lanes."""
        part = StepBlock.__new__(StepBlock)
        for name in ("observations", "finals", "rewards", "terminated", "truncated", "masks", "final_masks"):
            setattr(part, name, getattr(self, name)[first:stop])
        part._list_rows()
        return part

    def lane_step(
        self,
        *,
        has_ended: bool,
        has_masks: bool,
        valid: Bools | None = None,
        resetting: Bools | None = None,
    ) -> LaneStep:
        """Returns the step; its arrays are the block's own."""
        masks = self.masks if has_ended else self.final_masks
        return LaneStep(
            observations=self.observations if has_ended else self.finals,
            final_observations=self.finals,
            rewards=self.rewards,
            terminated=self.terminated,
            truncated=self.truncated,
            valid=valid,
            masks=masks if has_masks else None,
            final_masks=self.final_masks if has_masks else None,
            resetting=resetting,
        )
