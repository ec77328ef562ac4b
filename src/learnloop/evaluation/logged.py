"""Held-out tasks of which only a log is known: what another policy would have earned, by importance weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from learnloop.algorithms.base.samples import checked_rewards
from learnloop.core.arrays import F64, Indices
from learnloop.core.errors import UsageError
from learnloop.core.protocols import HeldOut, Policy, Sample
from learnloop.evaluation.overlap import Overlap, overlap_of
from learnloop.evaluation.policies import DecisionPoint, distributions, logged_probabilities


@runtime_checkable
class LoggedHeldOut(HeldOut, Protocol):
    """Held-out tasks known only through a log, so that overlap has to be asked for."""

    def overlap(self, policy: Policy) -> Overlap:
        """Returns how much the log says about ``policy``."""
        ...


class _SamplesOfUnits:
    """Samples, of which several may be of one unit."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = tuple(samples)
        self._units, self._rows = unit_rows(samples)

    @property
    def units(self) -> Sequence[str]:
        """The episodes, in the order of their first sample."""
        return self._units

    def _unit_sums(self, values: F64) -> F64:
        return np.bincount(self._rows, values, minlength=len(self._units)).astype(np.float64)

    def _unit_means(self, values: F64) -> F64:
        return self._unit_sums(values) / np.bincount(self._rows, minlength=len(self._units))


class MatchedDecisions(_SamplesOfUnits):
    """Held-out decisions of which it is known what should be chosen: what a policy earns is how surely it does so.

    Args:
        samples: what is asked; what they earned is not looked at.
        matches: what should be chosen in each.
    """

    def __init__(self, samples: Sequence[Sample], matches: Sequence[str]) -> None:
        super().__init__(samples)
        self._points = [DecisionPoint(each.unit, each.context, each.actions, each.mask) for each in samples]
        self._positions = [each.actions.index(match) for each, match in zip(samples, matches, strict=True)]

    def rewards(self, policy: Policy) -> F64:
        """Returns the probability of what should be chosen, averaged within each unit, shape ``(num_units,)``."""
        rows = distributions(policy, self._points)
        matched = [row[at] for row, at in zip(rows, self._positions, strict=True)]
        return self._unit_means(np.array(matched, dtype=np.float64))


class _LoggedSamples(_SamplesOfUnits):
    """Checked samples as numbers."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__(samples)
        check_offered(samples)
        self._logged_rewards = checked_rewards(samples)
        self._propensities = checked_propensities([sample.propensity for sample in samples])

    def _ratios(self, policy: Policy) -> F64:
        """Returns pi(a_i | x_i) / p_i of each sample."""
        return logged_probabilities(policy, self._samples) / self._propensities


class LoggedDecisions(_LoggedSamples):
    """Held-out tasks of which only the logged action's reward is known: a doubly robust estimate from propensities.

    value_i = c + w_i (r_i - c) with w_i = pi(a_i | x_i) / p_i and the constant reward model c, then averaged within
    each unit. It is unbiased for any c that does not come from these samples, if the propensities are right and the
    log tried every action that the policy chooses; c = the mean reward of the training samples makes it less noisy.

    Source: Dudik, Langford & Li 2011, Doubly Robust Policy Evaluation and Learning, equation 2, with a constant model.
    """

    def __init__(self, samples: Sequence[Sample], reward_model: float) -> None:
        """Keeps the log.

        Args:
            samples: logged decisions with propensities, none of them used for training.
            reward_model: c, in practice the mean reward of the training samples.

        Raises:
            RewardError: a reward is missing or not finite.
            UsageError: a propensity is missing or outside (0, 1], an unknown action, or c is not finite.
        """
        if not np.isfinite(reward_model):
            raise UsageError(f"reward_model is {reward_model}; give the mean reward of the training samples")
        super().__init__(samples)
        self._model = float(reward_model)

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions that any sample offered, in the order of their first appearance."""
        return tuple(dict.fromkeys(action for sample in self._samples for action in sample.actions))

    def rewards(self, policy: Policy) -> F64:
        """Returns the estimate of what ``policy`` earns on each unit, shape ``(num_units,)``.

        Raises:
            UsageError: the policy does not give a distribution over the allowed actions.
        """
        return self._unit_means(self._model + self._ratios(policy) * (self._logged_rewards - self._model))

    def overlap(self, policy: Policy) -> Overlap:
        """Returns how much these samples say about ``policy``."""
        weights = self._ratios(policy)
        return overlap_of(weights, self._unit_means(weights) - 1.0)


class LoggedEpisodes(_LoggedSamples):
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
            reward_models: c_t by the number of the step, in practice means of the training samples; 0 beyond them.

        Raises:
            RewardError: a reward is missing or not finite.
            UsageError: a propensity is missing or outside (0, 1], or an unknown action.
        """
        super().__init__(samples)
        self._steps = step_numbers(samples)
        models = np.zeros(max(len(reward_models), int(self._steps.max(initial=-1)) + 1))
        models[: len(reward_models)] = reward_models
        self._models: F64 = models[self._steps]

    def rewards(self, policy: Policy) -> F64:
        """Returns the estimate of what ``policy`` earns in each episode, shape ``(num_units,)``.

        Raises:
            UsageError: the policy does not give a distribution over the allowed actions.
        """
        weights = self._weights(policy)
        before = np.ones_like(weights)  # w_{t-1}; 1 at the first step of an episode
        before[1:] = np.where(self._steps[1:] > 0, weights[:-1], 1.0)
        return self._unit_sums(before * self._models + weights * (self._logged_rewards - self._models))

    def overlap(self, policy: Policy) -> Overlap:
        """Returns how much these episodes say about ``policy``: their weights are those of whole episodes."""
        is_last = np.append(self._steps[1:] == 0, True)[: self._steps.size]
        weights = self._weights(policy)[is_last]
        return overlap_of(weights, weights - 1.0)

    def _weights(self, policy: Policy) -> F64:
        """Returns w_t of each step, shape ``(num_steps,)``."""
        weights = self._ratios(policy)
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


def unit_rows(samples: Sequence[Sample]) -> tuple[tuple[str, ...], Indices]:
    """Returns the units in the order of their first sample, and the number of each sample's unit."""
    numbers: dict[str, int] = {}
    rows = np.array([numbers.setdefault(sample.unit, len(numbers)) for sample in samples], dtype=np.intp)
    return tuple(numbers), rows


def checked_propensities(values: Sequence[float | None]) -> F64:
    """Returns propensities as an array.

    Raises:
        UsageError: some are missing, or not above 0 and at most 1; the message has the counts.
    """
    num_missing = sum(value is None for value in values)
    numbers = np.array(values, dtype=np.float64)
    num_bad = int(np.sum(~((numbers > 0) & (numbers <= 1)))) - num_missing
    if num_missing or num_bad:
        raise UsageError(
            f"of {len(values)} decisions {num_missing} have no propensity and {num_bad} one that is not above 0 and at "
            "most 1; without the probability of the logged action a log says nothing about other policies. Leave them "
            "out, or log decisions with propensities"
        )
    return numbers


def check_offered(samples: Sequence[Sample]) -> None:
    """Returns if each sample took an action that it was offered.

    Raises:
        UsageError: some did not; the message has the count.
    """
    num_unknown = sum(sample.action not in sample.actions for sample in samples)
    if num_unknown:
        raise UsageError(f"{num_unknown} of {len(samples)} samples took an action that was not offered")
