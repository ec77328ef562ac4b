"""Actions for a batch of observations, with what their algorithm keeps until it learns what came of them."""

from __future__ import annotations

from typing import NamedTuple

from learnloop.core.arrays import F32, I64
from learnloop.core.stepping import Actions


class Chosen(NamedTuple):
    """Actions for a batch of observations, with what the algorithm wants to know of them when their reward comes."""

    actions: Actions
    log_probs: F32 | None = None
    """Of the actions under the policy that chose them, shape ``(batch,)``; None: the algorithm has no use for it."""
    values: F32 | None = None
    """Of the observations, as the algorithm judged them then, shape ``(batch,)``."""
    dropout: I64 | None = None
    """Which dropout mask each row was seen through, shape ``(batch,)``."""
    seen: F32 | None = None
    """The observations as the network saw them, if that is not as they were given."""
    num_updates: int = 0
    """Gradient steps before they were chosen: which policy it was."""
