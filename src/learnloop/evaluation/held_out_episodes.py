"""What a policy earns in episodes that it was not trained on, from the log of what another one did in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learnloop.core.arrays import F64, Indices
from learnloop.core.protocols import Policy, Sample
from learnloop.evaluation.overlap import Overlap, overlap_of
from learnloop.evaluation.policies import logged_probabilities


class LoggedEpisodes:
    """Held-out episodes of which only what was done is known: a per-decision importance-sampled estimate.

    The value of an episode is sum_t [w_{t-1} c_t + w_t (r_t - c_t)] with w_t = prod_{k<=t} pi(a_k | x_k) / p_k and a
    constant model c_t of the reward of the t-th step: unbiased for any c that does not come from these episodes.

    Source: Jiang & Li 2016, Doubly Robust Off-policy Value Evaluation for Reinforcement Learning, equation 10, with a
    model that is constant in each step and no discount.
    """

    def __init__(self, samples: Sequence[Sample], reward_models: Sequence[float]) -> None:
        """Keeps the log.

        Args:
            samples: steps with propensities, episode by episode, none of them used for training.
            reward_models: c_t by the number of the step, in practice means of the training samples.
        """
        self._samples = tuple(samples)
        self._units = tuple(dict.fromkeys(sample.unit for sample in samples))
        rows = {unit: row for row, unit in enumerate(self._units)}
        self._rows = np.array([rows[sample.unit] for sample in samples], dtype=np.intp)
        self._steps = step_numbers(samples)
        length = int(self._steps.max(initial=-1)) + 1
        models = np.zeros(length)
        models[: len(reward_models)] = list(reward_models)[:length]
        self._models = models
        self._propensities = np.array([sample.propensity for sample in samples], dtype=np.float64)
        self._rewards = np.array([sample.reward for sample in samples], dtype=np.float64)

    @property
    def units(self) -> Sequence[str]:
        """The episodes, in the order of their first step."""
        return self._units

    def rewards(self, policy: Policy) -> F64:
        """Returns the estimate of what ``policy`` earns in each episode, shape ``(num_units,)``.

        Raises:
            UsageError: the policy does not give a distribution over the allowed actions.
        """
        weights = self._weights(policy)
        before = np.ones_like(weights)
        before[1:] = np.where(self._steps[1:] > 0, weights[:-1], 1.0)
        models = self._models[self._steps]
        values = before * models + weights * (self._rewards - models)
        totals: F64 = np.bincount(self._rows, values, minlength=len(self._units)).astype(np.float64)
        return totals

    def overlap(self, policy: Policy) -> Overlap:
        """Returns how much these episodes say about ``policy``: their weights are those of whole episodes."""
        last = np.append(self._steps[1:] == 0, np.ones(min(1, len(self._steps)), dtype=np.bool_))
        weights = self._weights(policy)[last]
        return overlap_of(weights, weights - 1.0)

    def _weights(self, policy: Policy) -> F64:
        """Returns w_t of each step, shape ``(num_steps,)``."""
        if not self._samples:
            return np.zeros(0)
        weights = logged_probabilities(policy, self._samples) / self._propensities
        for row in np.flatnonzero(self._steps > 0).tolist():
            weights[row] *= weights[row - 1]
        return weights


def step_numbers(samples: Sequence[Sample]) -> Indices:
    """Returns the number of each step within its episode, from 0, shape ``(num_samples,)``."""
    numbers = np.zeros(len(samples), dtype=np.intp)
    for row in range(1, len(samples)):
        if samples[row].unit == samples[row - 1].unit:
            numbers[row] = numbers[row - 1] + 1
    return numbers


def step_means(samples: Sequence[Sample]) -> list[float]:
    """Returns the mean reward of each step of episodes by its number."""
    if not samples:
        return []
    numbers = step_numbers(samples)
    sums = np.bincount(numbers, [sample.reward for sample in samples])
    means: list[float] = (sums / np.bincount(numbers)).tolist()
    return means
