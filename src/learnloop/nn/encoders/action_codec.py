"""Actions at the edge: from the arrays that algorithms use to what an environment or an agent is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32, Bools
from learnloop.core.errors import ActionError, UsageError
from learnloop.core.spaces import ActionSpace, Box, Discrete, num_choices


def bounds_of(box: Box) -> tuple[F32, F32]:
    """Returns the low and the high bounds, each of shape ``(size,)``; infinite where there is none."""
    low = [-np.inf if each is None else each for each in box.low]
    high = [np.inf if each is None else each for each in box.high]
    return np.array(low, dtype=np.float32), np.array(high, dtype=np.float32)


def mask_width(space: ActionSpace) -> int:
    """Returns the length of a mask; 0 for a box, which has no choices."""
    return 0 if isinstance(space, Box) else num_choices(space)


class ActionCodec:
    """Converts actions and masks of one space.

    Attributes:
        space: the action space.
    """

    def __init__(self, space: ActionSpace) -> None:
        self.space = space
        if isinstance(space, Box):
            self._low, self._high = bounds_of(space)

    def to_outside(self, action: Any) -> Any:
        """Returns one action as the space says: an int, an int64 array, or a float32 array clipped to the bounds."""
        if isinstance(self.space, Discrete):
            return int(action) + self.space.start
        if isinstance(self.space, Box):
            return np.clip(action, self._low, self._high).reshape(self.space.shape)
        return np.array(action, dtype=np.int64)

    def clip(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Returns a batch of actions of a Box within its bounds; others as they are."""
        return np.clip(actions, self._low, self._high) if isinstance(self.space, Box) else actions

    def check_mask(self, mask: Sequence[bool] | NDArray[Any] | None) -> Bools | None:
        """Returns ``mask`` as an array of shape ``(num_choices,)``; None: all is allowed.

        Raises:
            ActionError: its length is wrong, it holds something else than booleans, or it allows nothing.
            UsageError: the space has no choices to mask.
        """
        if mask is None:
            return None
        if isinstance(self.space, Box):
            raise UsageError("a box of continuous actions cannot be masked; leave the mask out")
        try:
            allowed = np.asarray(mask)
        except ValueError as error:  # rows of different lengths
            raise ActionError(f"the mask {mask!r} is no flat list of True and False") from error
        if allowed.dtype != np.bool_ and not np.isin(allowed, (0, 1)).all():
            raise ActionError(f"the mask {mask!r} holds something else than True and False (or 1 and 0)")
        allowed = allowed.astype(np.bool_)
        if allowed.shape != (num_choices(self.space),):
            raise ActionError(f"the mask has shape {allowed.shape}; {num_choices(self.space)} choices are needed")
        choices = [self.space.n] if isinstance(self.space, Discrete) else list(self.space.nvec)
        for number, part in enumerate(np.split(allowed, np.cumsum(choices)[:-1])):
            if not part.any():
                raise ActionError(f"the mask {allowed.tolist()} allows no action (choice {number})")
        return allowed
