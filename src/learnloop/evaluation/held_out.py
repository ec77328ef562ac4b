"""What a policy earns on tasks that it was not trained on: from tried outcomes, or from logged decisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from learnloop.core.arrays import F64, Bools
from learnloop.core.decoding import decode_json
from learnloop.core.errors import FormatError, RewardError, UsageError
from learnloop.core.protocols import Context, HeldOut, Policy, Sample
from learnloop.evaluation.overlap import Overlap, overlap_of
from learnloop.evaluation.policies import Choice, distributions, logged_probabilities

OUTCOMES_SCHEMA = "learnloop.outcomes/v1"


class FixedChoice(NamedTuple):
    """An action taken everywhere and what it earns."""

    action: str
    rewards: F64
    """One a unit, shape ``(num_units,)``."""


@runtime_checkable
class LoggedHeldOut(HeldOut, Protocol):
    """Held-out tasks known only through a log, so that overlap has to be asked for."""

    def overlap(self, policy: Policy) -> Overlap:
        """Returns how much the log says about ``policy``."""
        ...


class _OutcomesFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: str
    units: list[str]
    contexts: list[dict[str, Any]]
    actions: list[str]
    rewards: list[list[float | None]]
    masks: list[list[bool]] | None


class OutcomeTable:
    """Held-out tasks on which every action was tried, so that any policy's expected reward is known exactly."""

    def __init__(
        self,
        units: Sequence[str],
        contexts: Sequence[Context],
        actions: Sequence[str],
        rewards: ArrayLike,
        masks: ArrayLike | None = None,
    ) -> None:
        """Keeps what each action earned on each unit.

        Args:
            units: the episodes, all different.
            contexts: one a unit.
            actions: the actions, in the order of the columns.
            rewards: shape ``(num_units, num_actions)``; not read where an action is not allowed.
            masks: which actions are allowed, shape ``(num_units, num_actions)``; None: all.

        Raises:
            RewardError: a reward of an allowed action is missing or not finite.
            UsageError: sizes that do not fit, a unit or an action twice, or a unit without an allowed action.
        """
        self._units = tuple(units)
        self.contexts: tuple[Context, ...] = tuple(contexts)
        self.actions = tuple(actions)
        shape = (len(self._units), len(self.actions))
        try:
            table = np.array(rewards, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise RewardError(f"held-out rewards must be a table of numbers of shape {shape}: {error}") from error
        if shape[1] == 0 or table.shape != shape or len(self.contexts) != shape[0]:
            raise UsageError(
                f"{shape[0]} units and {shape[1]} actions need {shape[0]} contexts and rewards of shape {shape}; "
                f"there are {len(self.contexts)} contexts and rewards of shape {table.shape}"
            )
        for kind, names in (("unit", self._units), ("action", self.actions)):
            if len(set(names)) != len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise UsageError(f"{kind} {twice!r} is there more than once; each {kind} may appear once")
        self.masks: Bools | None = None if masks is None else _checked_masks(masks, shape, self._units)
        allowed = np.ones(shape, dtype=bool) if self.masks is None else self.masks
        num_bad = int(np.sum(allowed & ~np.isfinite(table)))
        if num_bad:
            raise RewardError(
                f"{num_bad} of {int(allowed.sum())} held-out rewards are missing or not finite; leave those units out"
            )
        table[~allowed] = np.nan  # unknown, and never read
        self._rewards, self._allowed = table, allowed
        masks_by_row = [None] * shape[0] if self.masks is None else self.masks.tolist()
        self._choices = [
            Choice(unit, context, self.actions, mask)
            for unit, context, mask in zip(self._units, self.contexts, masks_by_row, strict=True)
        ]

    @property
    def units(self) -> Sequence[str]:
        """The episodes, one a row."""
        return self._units

    def without(self, units: Collection[str]) -> OutcomeTable:
        """Returns the table less the rows of ``units``."""
        rows = [row for row, unit in enumerate(self._units) if unit not in units]
        return OutcomeTable(
            [self._units[row] for row in rows],
            [self.contexts[row] for row in rows],
            self.actions,
            self._rewards[rows],
            None if self.masks is None else self.masks[rows],
        )

    def rewards(self, policy: Policy) -> F64:
        """Returns sum_a pi(a | x) r(x, a) for each unit, shape ``(num_units,)``.

        Raises:
            UsageError: the policy does not give a distribution over the allowed actions.
        """
        chosen = np.reshape(distributions(policy, self._choices), self._rewards.shape)
        earned: F64 = np.sum(chosen * self._rewards, axis=1, where=self._allowed)
        return earned

    def best_fixed(self) -> FixedChoice:
        """Returns the action that, taken on every unit, earns most: known only in hindsight.

        Raises:
            UsageError: no action is allowed on every unit, or there is no unit.
        """
        everywhere = np.flatnonzero(self._allowed.all(axis=0))
        if everywhere.size == 0 or not self._units:
            raise UsageError(f"none of the {len(self.actions)} actions is allowed on all {len(self._units)} units")
        best = everywhere[np.argmax(self._rewards[:, everywhere].mean(axis=0))]
        return FixedChoice(self.actions[best], self._rewards[:, best].copy())

    def optimum(self) -> F64:
        """Returns what the best allowed action of each unit earns, shape ``(num_units,)``."""
        best: F64 = np.max(self._rewards, axis=1, where=self._allowed, initial=-np.inf)
        return best

    def random(self) -> F64:
        """Returns what a uniformly random allowed action is expected to earn on each unit, shape ``(num_units,)``."""
        mean: F64 = np.mean(self._rewards, axis=1, where=self._allowed)
        return mean

    def to_bytes(self) -> bytes:
        """Returns the table as JSON; rewards of forbidden actions are null."""
        return msgspec.json.encode(
            _OutcomesFile(
                schema=OUTCOMES_SCHEMA,
                units=list(self._units),
                contexts=[dict(context) for context in self.contexts],
                actions=list(self.actions),
                rewards=self._rewards.tolist(),  # msgspec writes NaN as null
                masks=None if self.masks is None else self.masks.tolist(),
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> OutcomeTable:
        """Returns the table that ``to_bytes`` wrote.

        Raises:
            FormatError: ``data`` is something else.
        """
        file = decode_json(data, f"these {len(data)} bytes are no table of outcomes", _OutcomesFile)
        if file.schema != OUTCOMES_SCHEMA:
            raise FormatError(f"a table of outcomes has the schema {OUTCOMES_SCHEMA!r}, this one has {file.schema!r}")
        rewards = [[np.nan if value is None else value for value in row] for row in file.rewards]
        width = len(file.actions)
        if any(len(row) != width for row in rewards) or any(len(row) != width for row in file.masks or []):
            raise FormatError(f"a table of outcomes with {width} actions has a row of another length")
        return cls(file.units, file.contexts, file.actions, np.reshape(rewards, (len(rewards), width)), file.masks)


def _checked_masks(masks: ArrayLike, shape: tuple[int, int], units: tuple[str, ...]) -> Bools:
    allowed = np.array(masks, dtype=bool)
    if allowed.shape != shape:
        raise UsageError(f"masks have shape {allowed.shape}; one row a unit and one column an action make {shape}")
    empty = np.flatnonzero(~allowed.any(axis=1))
    if empty.size:
        raise UsageError(f"the mask of unit {units[empty[0]]!r} allows no action; allow at least one")
    return allowed


class LoggedDecisions:
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
        self._samples = tuple(samples)
        self._model = float(reward_model)
        num_unknown = sum(sample.action not in sample.actions for sample in self._samples)
        if num_unknown:
            raise UsageError(f"{num_unknown} of {len(samples)} held-out samples took an action that was not offered")
        self._logged_rewards = checked_rewards(self._samples)
        self._propensities = _checked_propensities(self._samples)
        rows: Mapping[str, int] = {unit: row for row, unit in enumerate(dict.fromkeys(s.unit for s in self._samples))}
        self._units = tuple(rows)
        self._rows = np.array([rows[sample.unit] for sample in self._samples], dtype=np.intp)

    @property
    def units(self) -> Sequence[str]:
        """The episodes, in the order of their first sample."""
        return self._units

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions that any sample offered, in the order of their first appearance."""
        return tuple(dict.fromkeys(action for sample in self._samples for action in sample.actions))

    def rewards(self, policy: Policy) -> F64:
        """Returns the estimate of what ``policy`` earns on each unit, shape ``(num_units,)``.

        Raises:
            UsageError: the policy does not give a distribution over the allowed actions.
        """
        values = self._model + self._weights(policy) * (self._logged_rewards - self._model)
        return self._unit_means(values)

    def overlap(self, policy: Policy) -> Overlap:
        """Returns how much these samples say about ``policy``."""
        weights = self._weights(policy)
        return overlap_of(weights, self._unit_means(weights) - 1.0)

    def _weights(self, policy: Policy) -> F64:
        return logged_probabilities(policy, self._samples) / self._propensities

    def _unit_means(self, values: F64) -> F64:
        size = len(self._units)
        return np.bincount(self._rows, values, minlength=size) / np.bincount(self._rows, minlength=size)


def checked_rewards(samples: Sequence[Sample]) -> F64:
    """Returns the samples' rewards, shape ``(num_samples,)``.

    Raises:
        RewardError: one is missing or not finite; it is never read as 0.
    """
    rewards = np.array([sample.reward for sample in samples], dtype=np.float64)  # None becomes NaN
    num_bad = int(np.sum(~np.isfinite(rewards)))
    if num_bad:
        raise RewardError(f"{num_bad} of {len(samples)} samples have no finite reward; leave samples without one out")
    return rewards


def _checked_propensities(samples: Sequence[Sample]) -> F64:
    num_missing = sum(sample.propensity is None for sample in samples)
    if num_missing:
        raise UsageError(
            f"{num_missing} of {len(samples)} held-out samples have no propensity; without the probability of the "
            "logged action a log says nothing about other policies. Leave them out, or log decisions with propensities"
        )
    values = np.array([sample.propensity for sample in samples], dtype=np.float64)
    num_bad = int(np.sum(~((values > 0) & (values <= 1))))
    if num_bad:
        raise UsageError(f"{num_bad} of {len(samples)} held-out propensities are not above 0 and at most 1")
    return values
