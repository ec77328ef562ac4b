"""Linear Thompson sampling from a stated number of posterior draws, so that the propensity is known exactly.

Source: Agrawal and Goyal 2013, Thompson Sampling for Contextual Bandits with Linear Payoffs, algorithm 1.
"""

from __future__ import annotations

import numpy as np

from learnloop.algorithms.bandits.config import ExplorationConfig
from learnloop.core.arrays import F64, Bools


def thompson_probabilities(
    means: F64,
    widths: F64,
    allowed: Bools,
    num_updates: int,
    config: ExplorationConfig,
    rng: np.random.Generator,
) -> F64:
    """Returns the probability of each action, shape ``(num_actions,)``; 0 where not ``allowed``.

    A draw of the weights from N(w, v^2 A^-1) enters a decision only by its product with x, and the actions' weights
    are independent; so the predictions are drawn, from N(mean, v^2 x^T A^-1 x). Each action gets the share of draws
    that it wins. ``num_updates`` is not used.

    Source: Agrawal and Goyal 2013, algorithm 1, lines 3 and 4; the empirical distribution is ours.
    """
    scores = np.where(allowed, means, -np.inf)
    draws = scores + config.posterior_scale * np.sqrt(widths) * rng.standard_normal((config.num_draws, len(means)))
    wins = np.bincount(draws.argmax(axis=1), minlength=len(means))
    probabilities: F64 = wins / config.num_draws
    return probabilities
