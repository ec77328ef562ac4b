"""Linear Thompson sampling from a stated number of posterior draws, so that the propensity is known exactly.

Source: Agrawal and Goyal 2013, Thompson Sampling for Contextual Bandits with Linear Payoffs, algorithm 1.
"""

from __future__ import annotations

import numpy as np

from learnloop.algorithms.bandits.config import BanditConfig, check_range
from learnloop.core.arrays import F64, Bools


class ThompsonConfig(BanditConfig, frozen=True, kw_only=True, tag="thompson"):
    """The config of linear Thompson sampling."""

    num_draws: int = 100
    """How many posterior draws a decision makes. The action is drawn from their empirical distribution."""
    posterior_scale: float = 0.3
    """The factor v on the posterior's standard deviation, for rewards of standard deviation 1."""
    epsilon: float = 0.01
    """The share of decisions that are drawn uniformly from the allowed actions."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        BanditConfig.__post_init__(self)
        check_range("num_draws", self.num_draws, 1, 100_000)
        check_range("posterior_scale", self.posterior_scale, 0.0, 1e6)
        check_range("epsilon", self.epsilon, 1e-6, 1.0)


def thompson_probabilities(
    means: F64,
    widths: F64,
    allowed: Bools,
    num_updates: int,
    config: ThompsonConfig,
    rng: np.random.Generator,
) -> F64:
    """Returns the probability of each action, shape ``(num_actions,)``; 0 where not ``allowed``.

    A draw of the weights from N(w, v^2 A^-1) enters a decision only by its product with x, and the actions' weights
    are independent; so the predictions are drawn, from N(mean, v^2 x^T A^-1 x). Each action gets (1 - epsilon) x the
    share of draws that it wins, and all allowed actions share epsilon. ``num_updates`` is not used.

    Source: Agrawal and Goyal 2013, algorithm 1, lines 3 and 4; the empirical distribution and the floor are ours.
    """
    scores = np.where(allowed, means, -np.inf)
    draws = scores + config.posterior_scale * np.sqrt(widths) * rng.standard_normal((config.num_draws, len(means)))
    wins = np.bincount(draws.argmax(axis=1), minlength=len(means))
    floor: F64 = config.epsilon / np.count_nonzero(allowed) * allowed
    return floor + (1.0 - config.epsilon) / config.num_draws * wins
