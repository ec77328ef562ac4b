"""LinUCB with disjoint linear models, and a floor of uniform exploration so that every propensity is positive.

Source: Li et al. 2010, A Contextual-Bandit Approach to Personalized News Article Recommendation, algorithm 1.
"""

from __future__ import annotations

import numpy as np

from learnloop.algorithms.bandits.config import BanditConfig, check_range
from learnloop.core.arrays import F64, Bools


class LinUCBConfig(BanditConfig, frozen=True, kw_only=True, tag="linucb"):
    """The config of LinUCB."""

    alpha: float = 1.0
    """How many standard errors of the prediction are added to it, for rewards of standard deviation 1."""
    epsilon: float = 0.02
    """The share of decisions that are drawn uniformly from the allowed actions."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        BanditConfig.__post_init__(self)
        check_range("alpha", self.alpha, 0.0, 1e6)
        check_range("epsilon", self.epsilon, 1e-6, 1.0)


def linucb_probabilities(
    means: F64,
    widths: F64,
    allowed: Bools,
    num_updates: int,
    config: LinUCBConfig,
    rng: np.random.Generator,
) -> F64:
    """Returns the probability of each action, shape ``(num_actions,)``; 0 where not ``allowed``.

    The actions with the highest upper bound mean + alpha sqrt(x^T A^-1 x) share 1 - epsilon evenly (the paper breaks
    ties arbitrarily), and all allowed actions share epsilon. ``num_updates`` and ``rng`` are not used.

    Source: Li et al. 2010, algorithm 1, lines 9 and 11; the epsilon floor is ours.
    """
    bounds = np.where(allowed, means + config.alpha * np.sqrt(widths), -np.inf)
    top = bounds == bounds.max()
    probabilities: F64 = (1.0 - config.epsilon) / np.count_nonzero(top) * top
    probabilities += config.epsilon / np.count_nonzero(allowed) * allowed
    return probabilities
