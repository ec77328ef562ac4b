"""What logged samples earned, as an array that can be computed with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.errors import RewardError
from learnloop.core.protocols import Sample


def checked_rewards(samples: Sequence[Sample]) -> F64:
    """Returns the samples' rewards, shape ``(num_samples,)``.

    Raises:
        RewardError: one is missing or not finite; it is never read as 0.
    """
    rewards = np.array([sample.reward for sample in samples], dtype=np.float64)  # None becomes NaN
    num_bad = int(np.sum(~np.isfinite(rewards)))
    if num_bad:
        raise RewardError(f"{num_bad} of {len(samples)} samples have no finite reward; leave samples without one out")
    return rewards
