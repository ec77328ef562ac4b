"""Held-out tasks of which only a log is known: what another policy would have earned, by importance weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from learnloop.algorithms.base.samples import checked_rewards
from learnloop.core.arrays import F64, Bools, Indices
from learnloop.core.errors import UsageError
from learnloop.core.protocols import HeldOut, Policy, Sample
from learnloop.evaluation.context_model import ContextModel
from learnloop.evaluation.overlap import Overlap, overlap_of
from learnloop.evaluation.policies import DecisionPoint, distributions, logged_probabilities


@runtime_checkable
class LoggedHeldOut(HeldOut, Protocol):
    """Held-out tasks known only through a log, so that overlap has to be asked for."""

    @property
    def samples(self) -> Sequence[Sample]:
        """The decisions whose reward is known."""
        ...

    @property
    def missing(self) -> Sequence[Sample]:
        """Those whose reward is missing; it is NaN."""
        ...

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

    def __init__(self, samples: Sequence[Sample], missing: Sequence[Sample] = ()) -> None:
        super().__init__(samples)
        self.missing: Sequence[Sample] = tuple(missing)
        check_offered(samples)
        self._logged_rewards = checked_rewards(samples)
        self._propensities = checked_propensities([sample.propensity for sample in samples])

    @property
    def samples(self) -> Sequence[Sample]:
        """The decisions whose reward is known."""
        return self._samples

    def _ratios(self, policy: Policy) -> F64:
        """Returns pi(a_i | x_i) / p_i of each sample."""
        return logged_probabilities(policy, self._samples) / self._propensities


class LoggedDecisions(_LoggedSamples):
    """Held-out tasks of which only the logged action's reward is known: a doubly robust estimate from propensities.

    value_i = q_i + w_i (r_i - q_i) with w_i = pi(a_i | x_i) / p_i and a baseline q_i = q(x_i) that does not depend on
    the action, then averaged within each unit. It is unbiased for any q that does not come from these samples, if the
    propensities are right and the log tried every action that the policy chooses; a ``ContextModel`` of the training
    samples makes it less noisy than their mean does, and less wrong where propensities are wrong.

    Decisions that share one reward were rewarded for all of them together: w_i is then the product over them, the
    weight of the whole, and the value what the policy would earn if it made each of them.

    Source: Dudik, Langford & Li 2011, Doubly Robust Policy Evaluation and Learning, equation 2, with a model that no
    action changes; Precup, Sutton & Singh 2000, Eligibility traces for off-policy policy evaluation, equation 3 (the
    product).
    """

    def __init__(
        self, samples: Sequence[Sample], reward_model: float | ContextModel, missing: Sequence[Sample] = ()
    ) -> None:
        """Keeps the log.

        Args:
            samples: logged decisions with propensities, none of them used for training.
            reward_model: q, made of the training samples, or their mean reward.
            missing: further such decisions, whose rewards are missing; what they say they earned is not read.

        Raises:
            RewardError: a reward is missing or not finite.
            UsageError: a propensity is missing or outside (0, 1], an unknown action, or q is not finite.
        """
        if not isinstance(reward_model, ContextModel) and not np.isfinite(reward_model):
            raise UsageError(f"reward_model is {reward_model}; give the mean reward of the training samples")
        super().__init__(samples, missing)
        self._reward_model = reward_model
        self._shared = shared_rows(samples)
        self._is_first = _first_of_each(self._shared)
        self._importance = np.array([each.importance for each in samples], dtype=np.float64)
        self._model = self._baseline()

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions that any sample offered, in the order of their first appearance."""
        return tuple(dict.fromkeys(action for sample in self._samples for action in sample.actions))

    @property
    def num_shared(self) -> int:
        """How many decisions share their reward with another one."""
        return int(np.sum(np.bincount(self._shared)[self._shared] > 1)) if self._shared.size else 0

    def rewards(self, policy: Policy) -> F64:
        """Returns the estimate of what ``policy`` earns on each unit, shape ``(num_units,)``.

        Raises:
            UsageError: the policy does not give a distribution over the allowed actions.
        """
        values = self._model + self._weights(policy) * (self._logged_rewards - self._model)
        return _means_by_importance(values, self._importance, self._rows)

    def least_differences(self, first: Policy, second: Policy, reward_range: tuple[float, float]) -> F64:
        """Returns by how much ``first`` earns more than ``second`` if each missing reward is the worst for it.

        One of each unit, those of which every reward is missing among them, shape ``(num_all_units,)``.

        Args:
            first: what is judged.
            second: what it is compared with.
            reward_range: the lowest and the highest reward that a decision can have.
        """
        known = (self._weights(first) - self._weights(second)) * (self._logged_rewards - self._model)
        if not self.missing:
            return _means_by_importance(known, self._importance, self._rows)
        others = LoggedDecisions([each._replace(reward=0.0) for each in self.missing], self._reward_model)
        gap = others._weights(first) - others._weights(second)
        worst = np.minimum(*(gap * (each - others._model) for each in reward_range))
        _, rows = unit_rows([*self._samples, *self.missing])
        importance = np.concatenate([self._importance, others._importance])
        return _means_by_importance(np.concatenate([known, worst]), importance, rows)

    def overlap(self, policy: Policy) -> Overlap:
        """Returns how much these samples say about ``policy``."""
        weights = self._weights(policy)
        scaled = weights * self._importance / self._importance.mean() if weights.size else weights
        excess = _means_by_importance(weights - 1.0, self._importance, self._rows)
        return overlap_of(scaled[self._is_first], excess)

    def _baseline(self) -> F64:
        """Returns q of each sample; of those that share a reward that of the first, before anything was chosen."""
        if not isinstance(self._reward_model, ContextModel):
            return np.full(len(self._samples), float(self._reward_model))
        firsts = np.flatnonzero(self._is_first)
        found: F64 = self._reward_model.predict([self._samples[row] for row in firsts.tolist()])[self._shared]
        return found

    def _weights(self, policy: Policy) -> F64:
        """Returns the weight of each sample, which it has in common with those that it shares its reward with."""
        return products_of(self._ratios(policy), self._shared)


class LoggedEpisodes(_LoggedSamples):
    """Held-out episodes of which only what was done is known: a per-decision importance-sampled estimate.

    The value of an episode is sum_t [w_{t-1} c_t + w_t (r_t - c_t)] with w_t = prod_{k<=t} pi(a_k | x_k) / p_k and a
    constant model c_t of the reward of the t-th step: unbiased for any c that does not come from these episodes.

    Source: Jiang & Li 2016, Doubly Robust Off-policy Value Evaluation for Reinforcement Learning, equation 10, with a
    model that is constant in each step and no discount.
    """

    def __init__(
        self, samples: Sequence[Sample], reward_models: Sequence[float], missing: Sequence[Sample] = ()
    ) -> None:
        """Keeps the log.

        Args:
            samples: steps with propensities, episode by episode, none of them used for training.
            reward_models: c_t by the number of the step, in practice means of the training samples; 0 beyond them.
            missing: steps of further episodes, in which rewards are missing.

        Raises:
            RewardError: a reward is missing or not finite.
            UsageError: a propensity is missing or outside (0, 1], or an unknown action.
        """
        super().__init__(samples, missing)
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


def _means_by_importance(values: F64, importance: F64, units: Indices) -> F64:
    """Returns the mean of each unit's values, drawn together or apart so that their own mean counts each by importance.

    A unit of mean importance v (in means of it) that has x where the mean of all is m has m + v (x - m): their mean is
    m, and they vary as a mean by importance does (a ratio, linearised).
    """
    totals = np.bincount(units, importance)
    found: F64 = np.bincount(units, importance * values) / totals
    share = totals / np.bincount(units)
    if not share.size or bool(np.all(share == share[0])):
        return found
    share = share / share.mean()
    mean = float((share * found).mean())
    spread: F64 = mean + share * (found - mean)
    return spread


def products_of(ratios: F64, shared: Indices) -> F64:
    """Returns the product of the ratios of all that share a reward, for each of them, shape ``(num_samples,)``."""
    products = np.ones(int(shared.max(initial=-1)) + 1)
    np.multiply.at(products, shared, ratios)
    found: F64 = products[shared]
    return found


def shared_rows(samples: Sequence[Sample]) -> Indices:
    """Returns the number of the reward that each sample has, the same for those that share one."""
    numbers: dict[object, int] = {}
    keys = [row if each.shared is None else each.shared for row, each in enumerate(samples)]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)


def _first_of_each(numbers: Indices) -> Bools:
    found = np.zeros(numbers.size, dtype=bool)
    found[np.unique(numbers, return_index=True)[1]] = True
    return found


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
