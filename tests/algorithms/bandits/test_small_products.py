"""Products and inverses in pieces equal numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from learnloop.algorithms.bandits.small_products import gram, spd_inverse


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (1, 1), (16, 188), (64, 33), (200, 65), (300, 300)])
def test_gram_and_inverse(rows: int, columns: int) -> None:
    a = np.random.default_rng(rows).standard_normal((rows, columns))
    product = gram(a)
    np.testing.assert_allclose(product, a.T @ a, atol=1e-11)
    precision = product + np.eye(columns)
    inverse = spd_inverse(precision)
    np.testing.assert_allclose(inverse, np.linalg.inv(precision), atol=1e-11)
    np.testing.assert_array_equal(inverse, inverse.T)
    np.testing.assert_allclose(inverse @ precision, np.eye(columns), atol=1e-9)
