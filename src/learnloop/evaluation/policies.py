"""The two policies that everything is compared with, and the check of what a policy returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.errors import ActionError, UsageError, one_of
from learnloop.core.protocols import Context, Policy, Sample

_TOLERANCE = 1e-6  # how far probabilities may be from a sum of 1: float32 policies round


class UniformPolicy:
    """Chooses each allowed action with the same probability: the random arm."""

    def probabilities(self, context: Context, actions: Sequence[str], mask: Sequence[bool] | None = None) -> F64:
        """Returns 1 / (number of allowed actions) for each allowed action, shape ``(len(actions),)``.

        Raises:
            ActionError: the mask allows no action.
        """
        allowed = np.ones(len(actions)) if mask is None else np.asarray(mask, dtype=np.float64)
        total = float(allowed.sum())
        if total == 0:
            raise ActionError(f"the mask allows none of the {len(actions)} actions; allow at least one")
        return allowed / total


class FrequentPolicy:
    """Chooses the allowed action that was chosen most often; uniform where none of them ever was."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def probabilities(self, context: Context, actions: Sequence[str], mask: Sequence[bool] | None = None) -> F64:
        """Returns the probability of each action, ties shared, shape ``(len(actions),)``."""
        uniform = UniformPolicy().probabilities(context, actions, mask)
        counts = np.array([self._counts.get(action, 0) for action in actions]) * (uniform > 0)
        best = ((counts == counts.max()) & (uniform > 0)).astype(np.float64)
        shared: F64 = best / best.sum()
        return shared


class FixedPolicy:
    """Always chooses the same action."""

    def __init__(self, action: str) -> None:
        self.action = action

    def probabilities(self, context: Context, actions: Sequence[str], mask: Sequence[bool] | None = None) -> F64:
        """Returns 1 for its action and 0 for the others, shape ``(len(actions),)``.

        Raises:
            ActionError: its action is not among ``actions`` or not allowed.
        """
        if self.action not in actions:
            raise ActionError(f"{self.action!r} is not an action here; allowed are {one_of(actions)}")
        index = list(actions).index(self.action)
        if mask is not None and not mask[index]:
            raise ActionError(f"{self.action!r} is not allowed by the mask, and this policy knows no other action")
        chosen = np.zeros(len(actions))
        chosen[index] = 1.0
        return chosen


class DecisionPoint(NamedTuple):
    """Where a policy is asked: a held-out task or a logged decision."""

    unit: str
    context: Context
    actions: Sequence[str]
    mask: Sequence[bool] | None


def distributions(policy: Policy, points: Sequence[DecisionPoint]) -> list[F64]:
    """Returns ``policy``'s probabilities for each point, each of shape ``(len(actions),)``, after checking them all.

    Points of the same objects (context, actions and mask) are asked about once, and share the array.

    Raises:
        UsageError: they are not a distribution over the allowed actions (a NaN, a wrong shape, a wrong sum); the
            message names the policy and the unit.
    """
    asked: dict[tuple[int, int, int], F64] = {}
    rows = []
    for point in points:
        key = (id(point.context), id(point.actions), id(point.mask))
        row = asked.get(key)
        if row is None:
            found = policy.probabilities(point.context, point.actions, point.mask)
            row = asked[key] = np.asarray(found, dtype=np.float64)
        rows.append(row)
    sizes = [len(point.actions) for point in points]
    fits = all(row.shape == (size,) for row, size in zip(rows, sizes, strict=True))
    if not rows or (fits and _all_sound(rows, sizes, points)):
        return rows
    for row, point in zip(rows, points, strict=True):  # slow, to find the first fault and name it
        fault = _fault(row, point)
        if fault:
            raise UsageError(
                f"the policy ({type(policy).__name__}) gave {fault} for unit {point.unit!r}; it cannot be evaluated"
            )
    return rows


def _all_sound(rows: list[F64], sizes: list[int], points: Sequence[DecisionPoint]) -> bool:
    flat = np.concatenate(rows)
    sums = np.add.reduceat(flat, np.cumsum([0, *sizes[:-1]]))
    for row, point in zip(rows, points, strict=True):
        if point.mask is not None and np.any(row[~np.asarray(point.mask, dtype=bool)]):
            return False
    return bool(np.all(flat >= 0) and np.all(np.abs(sums - 1) <= _TOLERANCE))


def _fault(row: F64, point: DecisionPoint) -> str | None:
    size = len(point.actions)
    if row.shape != (size,):
        return f"an array of shape {row.shape} instead of ({size},)"
    if not np.all(np.isfinite(row)):
        return f"a probability that is not finite ({row.tolist()})"
    if np.any(row < 0) or abs(float(row.sum()) - 1) > _TOLERANCE:
        return f"probabilities that are negative or do not sum to 1 ({row.tolist()})"
    if point.mask is not None and np.any(row[~np.asarray(point.mask, dtype=bool)] > 0):
        return f"probability to an action that the mask forbids ({row.tolist()})"
    return None


def logged_probabilities(policy: Policy, samples: Sequence[Sample]) -> F64:
    """Returns the probability that ``policy`` gives to the logged action of each sample, shape ``(num_samples,)``.

    Raises:
        UsageError: the policy does not give a distribution over the allowed actions.
    """
    points = [DecisionPoint(sample.unit, sample.context, sample.actions, sample.mask) for sample in samples]
    rows = distributions(policy, points)
    return np.array(
        [row[sample.actions.index(sample.action)] for row, sample in zip(rows, samples, strict=True)], dtype=np.float64
    )
