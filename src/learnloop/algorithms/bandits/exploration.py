"""From predicted rewards to a distribution that explores: the same ways for every model that predicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from learnloop.algorithms.bandits.config import NEEDS_WIDTHS, ExplorationConfig
from learnloop.algorithms.bandits.linucb import linucb_probabilities
from learnloop.algorithms.bandits.squarecb import squarecb_probabilities
from learnloop.algorithms.bandits.thompson import thompson_probabilities
from learnloop.core.arrays import F64, Bools
from learnloop.core.errors import UsageError

_FEW = 32
_Explore = Callable[[F64, F64, Bools, int, ExplorationConfig, np.random.Generator], F64 | list[float]]


def explore(
    scores: F64,
    allowed: Bools,
    num_updates: int,
    config: ExplorationConfig,
    rng: np.random.Generator,
    widths: F64 | None = None,
) -> F64:
    """Returns the probability of each action, shape ``(num_actions,)``; 0 where not ``allowed``.

    What the algorithm of ``config`` says of the ``scores``, with a share of ``epsilon`` drawn uniformly from the
    allowed actions instead, so that every propensity is positive.

    Args:
        scores: predicted rewards in standard deviations, shape ``(num_actions,)``.
        allowed: which actions may be chosen, shape ``(num_actions,)``; at least one.
        num_updates: the rewards learned from.
        config: how.
        rng: for the posterior draws of thompson; the others use none.
        widths: the predictions' variances x^T A^-1 x, shape ``(num_actions,)``; linucb and thompson need them.

    Raises:
        UsageError: the algorithm needs widths and there are none.
    """
    if widths is None:
        if config.algorithm in NEEDS_WIDTHS:
            raise UsageError(f"{config.algorithm} explores by how sure a prediction is, which this model does not know")
        widths = scores  # not looked at
    chosen = _EXPLORE[config.algorithm](scores, widths, allowed, num_updates, config, rng)
    return explore_distribution(chosen, allowed, config.epsilon)


def explore_distribution(probabilities: F64 | list[float], allowed: Bools, epsilon: float) -> F64:
    """Returns ``probabilities`` with a share of ``epsilon`` drawn uniformly from the ``allowed`` actions instead."""
    if epsilon == 0.0:
        return np.asarray(probabilities)
    if len(allowed) <= _FEW:  # lists, which for a handful of actions take half the time of arrays
        each = allowed.tolist()
        kept, shared = 1.0 - epsilon, epsilon / each.count(True)
        chosen = probabilities if isinstance(probabilities, list) else probabilities.tolist()
        return np.array([kept * p + shared if ok else kept * p for p, ok in zip(chosen, each, strict=True)])
    mixed: F64 = (1.0 - epsilon) * np.asarray(probabilities) + (epsilon / np.count_nonzero(allowed)) * allowed
    return mixed


def epsilon_greedy_probabilities(
    means: F64,
    widths: F64,
    allowed: Bools,
    num_updates: int,
    config: ExplorationConfig,
    rng: np.random.Generator,
) -> F64:
    """Returns 1 shared by the best allowed actions, shape ``(num_actions,)``; ``explore`` adds the epsilon."""
    shown = np.where(allowed, means, -np.inf)
    top = shown == shown.max()
    probabilities: F64 = top / np.count_nonzero(top)
    return probabilities


def softmax_probabilities(
    means: F64,
    widths: F64,
    allowed: Bools,
    num_updates: int,
    config: ExplorationConfig,
    rng: np.random.Generator,
) -> F64:
    """Returns probabilities in proportion to exp(mean / temperature), shape ``(num_actions,)``; 0 where not allowed.

    Source: Sutton and Barto 2018, Reinforcement Learning, section 2.8 (Boltzmann exploration).
    """
    shown = np.where(allowed, means, -np.inf)
    weights = np.exp((shown - shown.max()) / config.temperature)
    probabilities: F64 = weights / weights.sum()
    return probabilities


_EXPLORE: Mapping[str, _Explore] = {
    "squarecb": squarecb_probabilities,
    "linucb": linucb_probabilities,
    "thompson": thompson_probabilities,
    "epsilon_greedy": epsilon_greedy_probabilities,
    "softmax": softmax_probabilities,
}
