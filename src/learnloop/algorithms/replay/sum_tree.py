"""Draws entries in proportion to their priorities: a tree of sums, two levels deep and wide."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F64, I64
from learnloop.core.errors import UsageError

WIDTH, LARGE_WIDTH = 16, 64
"""Leaves under one node, of a small and of a large tree. A draw costs a pass over the sums of all nodes and one over
the leaves of a node: few calls of numpy on some thousand numbers. A deep tree of narrow nodes needs more of both."""
BELOW_ONE = 1 - 2.0**-52
"""A positive number times this is less than the number, by one or two of the smallest steps there are."""
MOST_CHANGES = 1024
"""After so many calls of ``set`` sums are brought up to date, even if nothing is drawn."""
LARGE = 250_000
"""From so many entries on a tree is large."""


class SumTree:
    """Priorities of ``capacity`` entries; an entry of priority 0 is never drawn.

    Sums are added up again from the leaves wherever one has changed, so rounding errors do not add up.

    Attributes:
        capacity: how many entries there are.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise UsageError(f"a sum tree has the capacity {capacity}; at least 1 is needed")
        self.capacity = capacity
        self._width = WIDTH if capacity < LARGE else LARGE_WIDTH
        num_nodes = -(-capacity // self._width)
        self._leaves = np.zeros((num_nodes, self._width))
        self._flat = self._leaves.reshape(-1)
        self._padded_sums = np.zeros(-(-num_nodes // self._width) * self._width)
        self._sums = self._padded_sums[:num_nodes]
        self._triangle = np.triu(np.ones((self._width, self._width)))
        self._ones = np.ones(self._width)
        self._changed: list[I64] = []
        self._replaced: list[F64] = []
        self._minimum = np.inf
        self._num_minimal = 0

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        self._refresh()
        return float(self._sums.sum())

    @property
    def minimum(self) -> float:
        """The least priority above 0; infinity where all are 0."""
        self._refresh()
        if not self._num_minimal:
            self._find_minimum()
        return self._minimum

    def get(self, rows: I64) -> F64:
        """Returns the priorities of entries, shape ``(batch,)``."""
        result: F64 = self._flat.take(rows)
        return result

    def set(self, rows: I64, priorities: F64 | float) -> None:
        """Gives entries new priorities; of an entry that is named twice the last one counts.

        Args:
            rows: from 0 to ``capacity`` - 1, shape ``(batch,)``.
            priorities: finite, at least 0; shape ``(batch,)`` or one for all.
        """
        self._replaced.append(self._flat.take(rows))
        self._flat[rows] = priorities
        self._changed.append(rows)
        if len(self._changed) == MOST_CHANGES:
            self._refresh()

    def draw(self, fractions: F64) -> tuple[I64, F64]:
        """Returns an entry for each of ``fractions`` of the total, each from 0 to below 1, and their priorities.

        Raises:
            UsageError: all priorities are 0.
        """
        self._refresh()
        ends = self._node_ends()
        total = ends[-1]
        if not total > 0:
            raise UsageError("all priorities are 0; there is nothing to draw")
        places = fractions * total
        np.minimum(places, total * BELOW_ONE, out=places)
        nodes = ends.searchsorted(places, side="right")
        places -= ends.take(nodes)
        places += self._sums.take(nodes)
        leaves = self._leaves.take(nodes, axis=0) @ self._triangle
        np.minimum(places, leaves[:, -1] * BELOW_ONE, out=places)
        np.maximum(places, 0, out=places)
        rows: I64 = nodes * self._width
        rows += (leaves > places[:, None]).argmax(axis=1)
        priorities = self._flat.take(rows)
        if not priorities.min() > 0:
            self._replace_empty(rows, priorities)
        return rows, priorities

    def _node_ends(self) -> F64:
        """Returns the sums of all nodes up to each, itself included: cumulated in groups, twice as fast as in a row."""
        grouped = self._padded_sums.reshape(-1, self._width) @ self._triangle
        offsets = np.add.accumulate(grouped[:, -1])
        grouped[1:] += offsets[:-1, None]
        result: F64 = grouped.reshape(-1)[: len(self._sums)]
        return result

    def _replace_empty(self, rows: I64, priorities: F64) -> None:
        """Replaces entries of priority 0, which only rounding can have chosen, by the one of the highest priority."""
        empty = priorities <= 0
        rows[empty] = best = int(self._flat.argmax())
        priorities[empty] = self._flat[best]

    def _refresh(self) -> None:
        if not self._changed:
            return
        rows, replaced = _joined(self._changed), _joined(self._replaced)
        self._follow_minimum(replaced, self._flat.take(rows))
        nodes = rows // self._width
        if len(nodes) >= len(self._sums):
            nodes = np.unique(nodes)
        self._sums[nodes] = self._leaves.take(nodes, axis=0) @ self._ones
        self._changed.clear()
        self._replaced.clear()

    def _follow_minimum(self, replaced: F64, priorities: F64) -> None:
        """Notes that ``replaced`` have become ``priorities``.

        At least ``_num_minimal`` entries have the minimum: those that get it later are not counted, and one that is
        named twice may be taken off twice. At 0 it must be looked for, which a pass over all for each draw would cost.
        """
        least = float(priorities.min())
        if not least > 0:
            least = float(priorities.min(where=priorities > 0, initial=np.inf))
        if least < self._minimum:
            self._minimum, self._num_minimal = least, 1
        else:
            self._num_minimal = max(0, self._num_minimal - int(np.count_nonzero(replaced == self._minimum)))

    def _find_minimum(self) -> None:
        self._minimum = float(self._flat.min(where=self._flat > 0, initial=np.inf))
        self._num_minimal = int(np.count_nonzero(self._flat == self._minimum))


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
