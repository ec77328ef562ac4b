"""From predicted rewards to a distribution that explores: the same ways for every model that predicts."""

from __future__ import annotations

import math

import numpy as np

from learnloop.algorithms.bandits.actions import share_among_best
from learnloop.algorithms.bandits.config import NEEDS_WIDTHS, ExplorationConfig
from learnloop.core.arrays import F64, Bools
from learnloop.core.errors import UsageError

_FEW = 32


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
    if config.algorithm == "squarecb":
        gamma = config.gamma_scale * max(1, num_updates) ** config.gamma_exponent
        return explore_distribution(squarecb_probabilities(scores, allowed, gamma), allowed, config.epsilon)
    shown = np.where(allowed, scores, -np.inf)
    match config.algorithm:
        case "linucb":  # Li et al. 2010, algorithm 1, lines 9 and 11: the highest upper bound mean + alpha width
            chosen = share_among_best(shown + config.alpha * np.sqrt(widths))
        case "thompson":
            chosen = thompson_probabilities(shown, widths, config.posterior_scale, config.num_draws, rng)
        case "epsilon_greedy":
            chosen = share_among_best(shown)
        case "softmax":
            chosen = softmax_probabilities(shown, config.temperature)
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


# Each takes predicted rewards, shape ``(num_actions,)``, and returns the probability of each action. Where an action is
# not allowed, the reward is minus infinity, or ``allowed`` says so, and the probability 0.


def squarecb_probabilities(scores: F64, allowed: Bools, gamma: float) -> list[float]:
    """Returns SquareCB's probabilities: inverse-gap weighting. Every allowed action has a positive one.

    With K allowed actions, the best prediction y_b and gamma: p_a = 1 / (K + gamma (y_b - y_a)) for a other than b,
    and b gets the rest.

    Source: Foster and Rakhlin 2020, Beyond UCB: Optimal and Efficient Contextual Bandits with Regression Oracles,
    algorithm 1, with mu = K. The oracle here is whatever predicts the rewards.
    """
    # Lists: for a handful of actions they take a third of the time of arrays, and this is the hot path.
    shown = allowed.tolist()
    num_allowed = shown.count(True)
    listed = [score if ok else -math.inf for score, ok in zip(scores.tolist(), shown, strict=True)]
    highest = max(listed)
    best = listed.index(highest)
    probabilities = [1.0 / (num_allowed + gamma * (highest - score)) for score in listed]
    probabilities[best] = 0.0
    probabilities[best] = 1.0 - sum(probabilities)
    return probabilities


def thompson_probabilities(
    scores: F64, widths: F64, posterior_scale: float, num_draws: int, rng: np.random.Generator
) -> F64:
    """Returns the share of posterior draws that each action wins, so that the propensity is known exactly.

    A draw of the weights from N(w, v^2 A^-1) enters a decision only by its product with x, and the actions' weights
    are independent; so the predictions are drawn, from N(mean, v^2 x^T A^-1 x).

    Source: Agrawal and Goyal 2013, Thompson Sampling for Contextual Bandits with Linear Payoffs, algorithm 1, lines 3
    and 4; the empirical distribution of a stated number of draws is ours.
    """
    draws = scores + posterior_scale * np.sqrt(widths) * rng.standard_normal((num_draws, len(scores)))
    probabilities: F64 = np.bincount(draws.argmax(axis=1), minlength=len(scores)) / num_draws
    return probabilities


def softmax_probabilities(scores: F64, temperature: float) -> F64:
    """Returns probabilities in proportion to exp(score / temperature).

    Source: Sutton and Barto 2018, Reinforcement Learning, section 2.8 (Boltzmann exploration).
    """
    weights = np.exp((scores - scores.max()) / temperature)
    probabilities: F64 = weights / weights.sum()
    return probabilities
