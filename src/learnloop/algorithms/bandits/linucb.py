"""LinUCB with disjoint linear models.

Source: Li et al. 2010, A Contextual-Bandit Approach to Personalized News Article Recommendation, algorithm 1.
"""

from __future__ import annotations

import numpy as np

from learnloop.algorithms.bandits.config import ExplorationConfig
from learnloop.core.arrays import F64, Bools


def linucb_probabilities(
    means: F64,
    widths: F64,
    allowed: Bools,
    num_updates: int,
    config: ExplorationConfig,
    rng: np.random.Generator,
) -> F64:
    """Returns the probability of each action, shape ``(num_actions,)``; 0 where not ``allowed``.

    The actions with the highest upper bound mean + alpha sqrt(x^T A^-1 x) share 1 evenly (the paper breaks ties
    arbitrarily). ``num_updates`` and ``rng`` are not used.

    Source: Li et al. 2010, algorithm 1, lines 9 and 11.
    """
    bounds = np.where(allowed, means + config.alpha * np.sqrt(widths), -np.inf)
    top = bounds == bounds.max()
    probabilities: F64 = top / np.count_nonzero(top)
    return probabilities
