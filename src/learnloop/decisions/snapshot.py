"""A network as it chooses between two updates, for a few rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learnloop.decisions.segment_ppo import dropout_of
from learnloop.nn.network import Network

Floats = NDArray[np.float32]

MIN_BATCH = 3
"""Fewer rows go through the network one by one."""
BATCH_STEP = 4
"""Others go in batches of this size, or of a multiple of it."""


class Snapshot(NamedTuple):
    """The network that chooses."""

    network: Network
    num_updates: int
    """Gradient steps behind it."""

    def outputs(self, states: Sequence[Floats]) -> Floats:
        """Returns the network's outputs for observations of shape ``(size,)``, shape ``(len(states), output_size)``.

        BLAS takes less time for four rows than for three, and for two apart than for two together: batches are filled
        up.
        """
        number = len(states)
        if number < MIN_BATCH:
            return np.concatenate([self._passed(state[None]).copy() for state in states])
        rows = np.zeros((-(-number // BATCH_STEP) * BATCH_STEP, self.network.input_size), dtype=np.float32)
        np.stack(states, out=rows[:number])
        return self._passed(rows)[:number]

    def _passed(self, rows: Floats) -> Floats:
        return self.network.predict(rows, dropout_of(rows, self.num_updates, self.network.num_masks))
