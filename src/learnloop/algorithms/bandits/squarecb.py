"""SquareCB: inverse-gap weighting.

Source: Foster and Rakhlin 2020, Beyond UCB: Optimal and Efficient Contextual Bandits with Regression Oracles,
algorithm 1. The oracle here is a ridge regression for each action.
"""

from __future__ import annotations

import numpy as np

from learnloop.algorithms.bandits.config import BanditConfig, check_range
from learnloop.core.arrays import F64, Bools


class SquareCBConfig(BanditConfig, frozen=True, kw_only=True, tag="squarecb"):
    """The config of SquareCB."""

    gamma_scale: float = 0.15
    """The exploration parameter gamma is ``gamma_scale`` x t ^ ``gamma_exponent`` after t learned rewards (Vowpal
    Wabbit's schedule), for rewards of standard deviation 1; larger explores less."""
    gamma_exponent: float = 0.85
    """See ``gamma_scale``. The paper's theorem 1 has a constant of the order of the square root of the horizon."""

    epsilon: float = 0.0
    """The share of decisions that are drawn uniformly from the allowed actions. The algorithm explores without it; a
    share keeps the log informative about policies that choose otherwise."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        BanditConfig.__post_init__(self)
        check_range("gamma_scale", self.gamma_scale, 1e-6, 1e9)
        check_range("gamma_exponent", self.gamma_exponent, 0.0, 1.0)
        check_range("epsilon", self.epsilon, 0.0, 1.0)


def squarecb_probabilities(
    means: F64,
    widths: F64 | None,
    allowed: Bools,
    num_updates: int,
    config: SquareCBConfig,
    rng: np.random.Generator,
) -> F64:
    """Returns the probability of each action, shape ``(num_actions,)``; 0 where not ``allowed``.

    With K allowed actions, the best prediction y_b and gamma: p_a = 1 / (K + gamma (y_b - y_a)) for a other than b,
    and b gets the rest; then all allowed actions share epsilon. Every allowed action has a positive probability.
    ``widths`` and ``rng`` are not used.

    Source: Foster and Rakhlin 2020, algorithm 1, with mu = K; the epsilon floor is ours.
    """
    gamma = config.gamma_scale * max(1, num_updates) ** config.gamma_exponent
    num_allowed = int(np.count_nonzero(allowed))
    # Lists: for a handful of actions they take a third of the time of arrays, and this is the hot path.
    scores = np.where(allowed, means, -np.inf).tolist()
    highest = max(scores)
    best = scores.index(highest)
    probabilities = [1.0 / (num_allowed + gamma * (highest - score)) for score in scores]
    probabilities[best] = 0.0
    probabilities[best] = 1.0 - sum(probabilities)
    chosen = np.array(probabilities)
    if config.epsilon:
        chosen = (1.0 - config.epsilon) * chosen + config.epsilon / num_allowed * allowed
    return chosen
