"""One step of several environments at once: how collection hands it to an algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from learnloop.core.arrays import F32, F64, Bools

Actions: TypeAlias = "NDArray[Any]"
"""int64 of shape ``(num_envs,)`` for Discrete (counted from 0), int64 ``(num_envs, choices)`` for MultiDiscrete,
float32 ``(num_envs, size)`` for Box, in the units of the space."""
Masks: TypeAlias = "Bools"
"""Shape ``(num_envs, num_choices)``; True: allowed."""


class EnvStep(NamedTuple):
    """What came of one action in each of several environments that run side by side: each env."""

    observations: F32
    """What the next action is chosen on, encoded, shape ``(num_envs, size)``: after an end the first observation of
    the next episode."""
    final_observations: F32
    """What the action led to, shape ``(num_envs, size)``: after an end the last observation of the ended episode, else
    equal to ``observations`` (and then it may be the same array)."""
    rewards: F64
    """Shape ``(num_envs,)``."""
    terminated: Bools
    """The episode ended in the task itself: nothing comes after, its value is 0."""
    truncated: Bools
    """The episode was cut from outside: what would have come is worth the value of ``final_observations``.
    Where ``terminated`` is True too, ``terminated`` counts."""
    valid: Bools | None
    """False where the env only reset itself and ignored the action (gymnasium's autoreset mode ``NEXT_STEP``):
    nothing may be learned from it. None: all are valid."""
    masks: Masks | None
    """Which choices are allowed in ``observations``; None: all."""
    final_masks: Masks | None
    """Which choices are allowed in ``final_observations``; None: all."""
    resetting: Bools | None = None
    """True where the episode ended and the env will only reset itself in the next step: ``observations`` are then the
    last ones of that episode, and nothing is chosen on them. None: nowhere."""
