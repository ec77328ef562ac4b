"""Ridge regression of the reward on the context, one for each action, learned one reward at a time.

For action a with contexts x_1 ... x_n and rewards y_1 ... y_n: precision A = l2 I + sum x x^T, target b = sum y x,
weights = A^-1 b. The inverse is kept by rank-1 updates that are gathered in blocks of ``BLOCK``: inside a block
A^-1 = M - U^T U, where M is a plain matrix and the rows of U are the gathered updates. So an update costs a few
products of a matrix and a vector, and the d x d work is done once a block by a matrix product.

Source: Li et al. 2010, A Contextual-Bandit Approach to Personalized News Article Recommendation, algorithm 1 (the
disjoint linear model); Sherman and Morrison 1950, equation 1 (the inverse after a rank-1 update).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F64, I64, Indices
from learnloop.core.errors import CorruptError

BLOCK = 16
"""Updates of one action that are gathered before its matrices change."""
REFRESH = 4096
"""After so many updates of one action its inverse is computed again, which ends the growth of rounding errors."""

SMALL = 8192
"""Up to so many entries a product of vector and matrix starts no threads (OpenBLAS: 9216); ``np.vecdot`` never does."""
_LIMIT = 2**18
"""Up to about so many multiplications OpenBLAS stays on one thread in a product of matrices."""
_DEPTH = 64
_PIVOTS = 32


class _State(NamedTuple):
    """The arrays, one row an action; capacity beyond the rows in use is zero."""

    counts: I64
    weights: F64
    targets: F64
    """Without the gathered rewards."""
    precisions: F64
    """Without the gathered contexts."""
    inverses: F64
    """Without the gathered updates."""
    inputs: F64
    """The gathered contexts."""
    rewards: F64
    """The gathered rewards."""
    updates: F64
    """The gathered updates of the inverse."""


class Ridge:
    """The regressions of all actions, in arrays with one row an action; row 0 is an action never learned from.

    Attributes:
        dimension: the length of a context vector.
        actions: the names of rows 1, 2, ...
    """

    def __init__(self, dimension: int, l2_weight: float) -> None:
        self.dimension = dimension
        self.l2_weight = l2_weight
        self.actions: list[str] = []
        self._rows: dict[str, int] = {}
        self._state = _allocate(4, dimension)
        self._clear(0)

    @property
    def num_rows(self) -> int:
        """How many rows are in use."""
        return len(self.actions) + 1

    @property
    def counts(self) -> I64:
        """How many rewards each row has learned from, shape ``(num_rows,)``."""
        return self._state.counts[: self.num_rows]

    @property
    def weights(self) -> F64:
        """The weights of each row, shape ``(num_rows, dimension)``."""
        return self._state.weights[: self.num_rows]

    def rows(self, actions: Sequence[str]) -> Indices:
        """Returns the row of each action, shape ``(len(actions),)``; 0 for one that was never learned from."""
        return np.array([self._rows.get(action, 0) for action in actions], dtype=np.intp)

    def means(self, x: F64) -> F64:
        """Returns the predicted reward of each row in context ``x``, shape ``(num_rows,)``."""
        means: F64 = np.vecdot(self._state.weights[: self.num_rows], x)
        return means

    def widths(self, x: F64) -> F64:
        """Returns x^T A^-1 x of each row, shape ``(num_rows,)``: the squared width of its confidence interval."""
        num_rows = self.num_rows
        inverses = self._state.inverses[:num_rows]
        support = x.nonzero()[0]
        if 2 * len(support) < self.dimension:  # the quadratic form needs only these entries
            values = x[support]
            plain = np.vecdot(np.vecdot(inverses[:, support[:, None], support], values), values)
        else:
            plain = np.vecdot(np.vecdot(inverses, x), x)
        gathered = np.vecdot(self._state.updates[:num_rows], x)
        widths: F64 = np.maximum(plain - np.vecdot(gathered, gathered), 0.0)
        return widths

    def update(self, action: str, x: F64, y: float) -> None:
        """Learns that ``action`` earned ``y`` in context ``x``.

        Source: Sherman and Morrison 1950: with u = A^-1 x and s = 1 + x^T u, the inverse becomes A^-1 - u u^T / s
        and the weights w become w + u (y - w^T x) / s.
        """
        row = self._row(action)
        state = self._state
        u = self._solve(row, x)
        s = 1.0 + float(x.dot(u))
        weights = state.weights[row]
        weights += u * ((y - float(weights.dot(x))) / s)
        gathered = int(state.counts[row]) % BLOCK
        np.multiply(u, 1.0 / math.sqrt(s), out=state.updates[row, gathered])
        state.inputs[row, gathered] = x
        state.rewards[row, gathered] = y
        state.counts[row] += 1
        if gathered == BLOCK - 1:
            self._flush(row)

    def correct(self, action: str, x: F64, delta: float) -> None:
        """Learns that a reward of ``action`` in context ``x`` that was learned before was too small by ``delta``."""
        row = self._row(action)
        self._state.weights[row] += self._solve(row, x) * delta
        self._state.targets[row] += delta * x

    def update_many(self, action: str, inputs: F64, rewards: F64) -> None:
        """Learns ``rewards``, shape ``(n,)``, of ``action`` in contexts ``inputs``, shape ``(n, dimension)``, at once.

        The weights are those of ``n`` calls of ``update``, but for rounding.
        """
        row = self._row(action)
        self._gather(row)
        self._state.precisions[row] += gram(inputs)
        self._state.targets[row] += np.vecdot(inputs.T, rewards)
        self._state.counts[row] += len(rewards)
        self._refresh(row)

    def to_tensors(self) -> dict[str, NDArray[np.generic]]:
        """Returns copies of all arrays: what ``from_tensors`` goes on from, bit for bit."""
        return {name: array[: self.num_rows].copy() for name, array in self._state._asdict().items()}

    @classmethod
    def from_tensors(
        cls, dimension: int, l2_weight: float, actions: Sequence[str], tensors: Mapping[str, NDArray[np.generic]]
    ) -> Ridge:
        """Returns the regressions that ``to_tensors`` described.

        Raises:
            CorruptError: an array is missing or does not have the shape that ``actions`` and ``dimension`` imply.
        """
        ridge = cls(dimension, l2_weight)
        ridge._state = _allocate(len(actions) + 1, dimension)
        for name, wanted in ridge._state._asdict().items():
            found = tensors.get(name)
            if found is None or found.shape != wanted.shape or found.dtype != wanted.dtype:
                stored = None if found is None else (found.dtype.name, found.shape)
                raise CorruptError(f"stored {name} are {stored}, not {(wanted.dtype.name, wanted.shape)}")
            wanted[...] = found
        ridge.actions = list(actions)
        ridge._rows = {action: row for row, action in enumerate(actions, start=1)}
        return ridge

    def _clear(self, row: int) -> None:
        """Sets ``row`` to an action never learned from: weights 0, precision l2 I."""
        diagonal = np.arange(self.dimension)
        self._state.precisions[row, diagonal, diagonal] = self.l2_weight
        self._state.inverses[row, diagonal, diagonal] = 1.0 / self.l2_weight

    def _row(self, action: str) -> int:
        row = self._rows.get(action)
        if row is None:
            row = self.num_rows
            if row == len(self._state.counts):
                self._grow()
            self._clear(row)
            self.actions.append(action)
            self._rows[action] = row
        return row

    def _grow(self) -> None:
        """Doubles the capacity, so that adding an action costs the same on average however many there are."""
        old = self._state
        self._state = _allocate(2 * self.num_rows, self.dimension)
        for wider, array in zip(self._state, old, strict=True):
            wider[: self.num_rows] = array

    def _solve(self, row: int, x: F64) -> F64:
        """Returns A^-1 x."""
        support = x.nonzero()[0]
        inverse = self._state.inverses[row]
        if len(support) * self.dimension <= SMALL:
            solved: F64 = x[support].dot(inverse.take(support, axis=0))
        else:
            solved = np.vecdot(inverse, x)
        updates = self._state.updates[row]
        solved -= updates.dot(x).dot(updates)
        return solved

    def _flush(self, row: int) -> None:
        """Moves what was gathered into the matrices."""
        updates = self._state.updates[row]
        self._gather(row)
        if int(self._state.counts[row]) % REFRESH == 0:
            self._refresh(row)
        else:
            self._state.inverses[row] -= gram(updates)
            updates[...] = 0.0

    def _gather(self, row: int) -> None:
        """Moves the gathered contexts and rewards into precision and target; zeros take their places."""
        inputs, rewards = self._state.inputs[row], self._state.rewards[row]
        self._state.precisions[row] += gram(inputs)
        self._state.targets[row] += rewards.dot(inputs)
        inputs[...] = 0.0
        rewards[...] = 0.0

    def _refresh(self, row: int) -> None:
        """Computes inverse and weights from precision and target."""
        self._state.inverses[row] = spd_inverse(self._state.precisions[row])
        self._state.weights[row] = np.vecdot(self._state.inverses[row], self._state.targets[row])
        self._state.updates[row] = 0.0


def _allocate(capacity: int, dimension: int) -> _State:
    square, block = (capacity, dimension, dimension), (capacity, BLOCK, dimension)
    return _State(
        counts=np.zeros(capacity, dtype=np.int64),
        weights=np.zeros((capacity, dimension)),
        targets=np.zeros((capacity, dimension)),
        precisions=np.zeros(square),
        inverses=np.zeros(square),
        inputs=np.zeros(block),
        rewards=np.zeros(block[:2]),
        updates=np.zeros(block),
    )


def gram(a: F64) -> F64:
    """Returns a^T a, shape ``(n, n)``, of ``a`` with shape ``(k, n)``.

    In pieces so small that the linear algebra library starts no threads for them: at the sizes of a bandit (some
    hundred columns) waking threads costs more than the work, on a busy machine 17 times as much.
    """
    total = np.zeros((a.shape[1], a.shape[1]))
    for start in range(0, a.shape[0], _DEPTH):
        rows = a[start : start + _DEPTH]
        add_product(total, rows.T, rows)
    return total


def add_product(total: F64, a: F64, b: F64) -> None:
    """Adds a b to ``total``, for ``a`` with shape ``(m, k)`` and ``b`` with shape ``(k, n)``, k at most 64."""
    width = max(1, _LIMIT // max(1, a.shape[0] * a.shape[1]))
    for start in range(0, b.shape[1], width):
        total[:, start : start + width] += a @ b[:, start : start + width]


def spd_inverse(matrix: F64) -> F64:
    """Returns the inverse of a symmetric positive definite ``matrix``, shape ``(n, n)``.

    Source: Goodnight 1979, A Tutorial on the SWEEP Operator, section 3; here it sweeps blocks of pivots.
    """
    swept = matrix.copy()
    for start in range(0, len(matrix), _PIVOTS):
        block = slice(start, start + _PIVOTS)
        pivot = np.linalg.inv(swept[block, block]).astype(np.float64, copy=False)
        columns = swept[:, block].copy()
        scaled = np.zeros_like(columns)
        add_product(scaled, columns, pivot)
        np.negative(columns, out=columns)
        add_product(swept, columns, scaled.T)
        swept[:, block] = scaled
        swept[block, :] = scaled.T
        swept[block, block] = -pivot
    return -(swept + swept.T) / 2
