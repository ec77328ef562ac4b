"""Matrix products and inverses in pieces so small that the linear algebra library starts no threads for them.

At the sizes of a bandit (some hundred columns) waking threads costs more than the work; on a busy machine it made an
update 17 times slower. OpenBLAS stays on one thread up to about 2^18 multiplications in a product of matrices.
"""

from __future__ import annotations

import numpy as np

from learnloop.core.arrays import F64

_LIMIT = 2**18
_DEPTH = 64
_PIVOTS = 32


def gram(a: F64) -> F64:
    """Returns a^T a, shape ``(n, n)``, of ``a`` with shape ``(k, n)``."""
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
