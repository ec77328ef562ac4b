"""Logged episodes as arrays: what offline algorithms learn from, and where logs, environments and algorithms meet."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from learnloop.core.errors import UsageError
from learnloop.core.spaces import Spaces
from learnloop.core.stepping import Actions, Masks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from learnloop.core.arrays import F32, F64, I64, Bools


@dataclass(frozen=True)
class Dataset:
    """Whole episodes, one after the other, each in the order of its steps. Nothing in it may be written to.

    What an observation shows was known before its action was chosen: never what came of it.

    Attributes:
        spaces: what was seen, and what could be done.
        observations: what each action was chosen on, encoded, float32 of shape ``(num_steps, size)``.
        actions: those that were logged; int64 ``(num_steps,)`` for Discrete, int64 ``(num_steps, choices)`` for
            MultiDiscrete, float32 ``(num_steps, size)`` for Box, in the units of the space.
        rewards: float64 ``(num_steps,)``, all known.
        next_observations: what each action led to, shaped as ``observations``; rows where ``terminated`` are not
            looked at.
        terminated: the episode ended in the task itself, bool ``(num_steps,)``.
        truncated: the episode was cut from outside, or its log ends there, bool ``(num_steps,)``.
        masks: which choices were allowed, bool ``(num_steps, num_choices)``; None: all.
        next_masks: which choices ``next_observations`` allow; None: all.
        episodes: the episode of each step, int64 ``(num_steps,)``, counted from 0 and never falling.
        goals: of each episode, or empty texts where there is none.
        action_names: of each discrete action; None: they have none.
        source: where it is from, for messages and lineage.
    """

    spaces: Spaces
    observations: F32
    actions: Actions
    rewards: F64
    next_observations: F32
    terminated: Bools
    truncated: Bools
    episodes: I64
    goals: Sequence[str]
    masks: Masks | None = None
    next_masks: Masks | None = None
    action_names: Sequence[str] | None = None
    source: str = "logs"

    def __post_init__(self) -> None:
        """Refuses arrays that do not belong together, and episodes that are not whole."""
        num_steps = len(self.rewards)
        if not num_steps:
            raise UsageError(f"the data set of {self.source} holds no step; at least one whole episode is needed")
        for name in ("observations", "actions", "next_observations", "terminated", "truncated", "episodes"):
            if len(getattr(self, name)) != num_steps:
                raise UsageError(
                    f"{name} of the data set of {self.source} has {len(getattr(self, name))} rows; as many as rewards "
                    f"({num_steps}) are needed"
                )
        steps = self.episodes[1:] - self.episodes[:-1]
        if self.episodes[0] != 0 or not ((steps == 0) | (steps == 1)).all():
            raise UsageError(f"episodes of the data set of {self.source} must be numbered from 0, one after the other")
        ends = self.terminated | self.truncated
        if not ends[-1] or not (ends[:-1] == (steps == 1)).all():
            raise UsageError(
                f"an episode of the data set of {self.source} goes on after its end, or has none; its last step alone "
                "is terminated or truncated"
            )
        if len(self.goals) != self.num_episodes:
            raise UsageError(
                f"the data set of {self.source} has {len(self.goals)} goals for {self.num_episodes} episodes"
            )

    @property
    def num_steps(self) -> int:
        """How many steps it holds."""
        return len(self.rewards)

    @property
    def num_episodes(self) -> int:
        """How many episodes it holds."""
        return int(self.episodes[-1]) + 1

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns its arrays by the names of the attributes, those that are None left out."""
        names = ("observations", "actions", "rewards", "next_observations", "terminated", "truncated", "episodes")
        found = {name: getattr(self, name) for name in names}
        optional = {"masks": self.masks, "next_masks": self.next_masks}
        return found | {name: value for name, value in optional.items() if value is not None}

    def fingerprint(self) -> str:
        """Returns the SHA-256 of its arrays: the lineage of what is learned from it."""
        digest = hashlib.sha256()
        for name, array in self.arrays().items():
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()
