"""From predicted rewards to a distribution that explores."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from learnloop.algorithms.bandits.config import check_range
from learnloop.core.arrays import F64, Bools


class ExplorationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a policy tries actions that it does not prefer."""

    algorithm: Literal["squarecb", "epsilon_greedy", "softmax"] = "squarecb"
    epsilon: float = 0.05
    """The share of decisions that is drawn uniformly from the allowed actions, whichever the algorithm."""
    gamma_scale: float = 0.15
    """Of squarecb: gamma is ``gamma_scale`` x t ^ ``gamma_exponent`` after t learned samples."""
    gamma_exponent: float = 0.85
    temperature: float = 0.25
    """Of softmax, in standard deviations of the reward."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        check_range("epsilon", self.epsilon, 0, 1)
        check_range("gamma_scale", self.gamma_scale, 1e-6, 1e9)
        check_range("gamma_exponent", self.gamma_exponent, 0, 1)
        check_range("temperature", self.temperature, 1e-6, 1e6)


def explore(scores: F64, allowed: Bools, num_updates: int, config: ExplorationConfig) -> F64:
    """Returns the probability of each action, shape ``(num_actions,)``; 0 where not ``allowed``.

    squarecb: 1 / (K + gamma (y_b - y_a)) for the K allowed actions other than the best b, which gets the rest (Foster
    and Rakhlin 2020, algorithm 1). softmax: proportional to exp(score / temperature) (Boltzmann exploration, Sutton &
    Barto 2018, section 2.8). epsilon_greedy: the best, ties shared. Then all allowed actions share ``epsilon``.

    Args:
        scores: predicted rewards in standard deviations, shape ``(num_actions,)``.
        allowed: which actions may be chosen, shape ``(num_actions,)``; at least one.
        num_updates: the samples learned from.
        config: how.
    """
    shown = np.where(allowed, scores, -np.inf)
    best = int(shown.argmax())
    highest = shown[best]
    if config.algorithm == "squarecb":
        gamma = config.gamma_scale * max(1, num_updates) ** config.gamma_exponent
        chosen = 1.0 / (np.count_nonzero(allowed) + gamma * (highest - shown))
        chosen[best] = 0.0
        chosen[best] = 1.0 - chosen.sum()
    elif config.algorithm == "softmax":
        chosen = np.exp((shown - highest) / config.temperature)
        chosen /= chosen.sum()
    else:
        chosen = (shown == highest).astype(np.float64)
        chosen /= chosen.sum()
    return explore_distribution(chosen, allowed, config.epsilon)


def explore_distribution(probabilities: F64, allowed: Bools, epsilon: float) -> F64:
    """Returns ``probabilities`` with a share of ``epsilon`` drawn uniformly from the ``allowed`` actions instead."""
    if epsilon == 0.0:
        return probabilities
    mixed: F64 = (1.0 - epsilon) * probabilities + (epsilon / np.count_nonzero(allowed)) * allowed
    return mixed
