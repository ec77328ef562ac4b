"""How the shuffled control of a proof is kept from learning: what belongs to a step is dealt to others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32
from learnloop.core.errors import UsageError


def deal(values: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Returns ``values``, shape ``(batch, ...)``, each at another row than its own.

    A permutation would leave each in its place with a probability of 1 / batch: of small batches a shuffled control
    learns that.

    Raises:
        UsageError: there is but one, which no other row can get: such a shuffled control would learn the truth.
    """
    if len(values) < 2:
        raise UsageError(
            "the shuffled control of a proof deals what belongs to a step to others of its batch, and this one has a "
            "single step; train with a batch_size of at least 2"
        )
    order = rng.permutation(len(values))
    dealt = np.empty_like(values)
    dealt[order] = values[np.roll(order, 1)]
    return dealt


def deal_centred(advantages: F32, rng: np.random.Generator) -> F32:
    """Returns ``advantages`` less their mean, shape ``(batch,)``, in any order.

    What each action may get is then 0 on the average, its own included: the policy's gradient is 0 in expectation over
    the order, whatever the batch. Had it never its own, it would get a little of the opposite.
    """
    centred: F32 = rng.permutation(advantages - advantages.mean(dtype=np.float64)).astype(np.float32)
    return centred
