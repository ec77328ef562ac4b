"""A network as it chooses between two updates, for a few rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from learnloop.algorithms.on_policy.segment_ppo import dropout_of
from learnloop.core.arrays import F32
from learnloop.nn.mlp.network import MAX_BATCH_SIZES
from learnloop.nn.network import Network

MIN_BATCH = 3
"""Fewer rows go through the network one by one."""
BATCH_STEP = 4
"""Others go in batches of this size, or of a multiple of it."""
MAX_BATCH = BATCH_STEP * MAX_BATCH_SIZES
"""More go in several, so that the network keeps the buffers of each size."""


class Snapshot(NamedTuple):
    """The network that chooses."""

    network: Network
    num_updates: int
    """Gradient steps behind it."""

    def outputs(self, states: Sequence[F32]) -> F32:
        """Returns the network's outputs for observations of shape ``(size,)``, shape ``(len(states), output_size)``.

        BLAS takes less time for four rows than for three, and for two apart than for two together: batches are filled
        up.
        """
        if len(states) < MIN_BATCH:
            return np.concatenate([self._passed(state[None]).copy() for state in states])
        batches = [states[first : first + MAX_BATCH] for first in range(0, len(states), MAX_BATCH)]
        return np.concatenate([self._batch_outputs(batch) for batch in batches])

    def _batch_outputs(self, states: Sequence[F32]) -> F32:
        number = len(states)
        rows = np.zeros((-(-number // BATCH_STEP) * BATCH_STEP, self.network.input_size), dtype=np.float32)
        np.stack(states, out=rows[:number])
        return self._passed(rows)[:number].copy()

    def _passed(self, rows: F32) -> F32:
        return self.network.predict(rows, dropout_of(rows, self.num_updates, self.network.num_masks))
