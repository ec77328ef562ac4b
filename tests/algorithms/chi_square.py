"""Whether counts are those of a distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def fits(counts: Any, probabilities: Any) -> bool:
    """Returns whether ``counts`` could be draws of ``probabilities`` (chi-squared test, p > .001).

    What is expected fewer than 5 times is counted together. Source: Wilson and Hilferty 1931, The Distribution of
    Chi-Square: the cube root of chi-squared is nearly normal.
    """
    observed = np.asarray(counts, dtype=float)
    expected = np.asarray(probabilities, dtype=float) * observed.sum()
    if observed[expected == 0].any():
        return False
    often = expected > 5
    observed = np.append(observed[often], observed[~often].sum())
    expected = np.append(expected[often], expected[~often].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    statistic = float(((observed - expected) ** 2 / expected).sum())
    freedom = len(expected) - 1
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread) < 3.09
