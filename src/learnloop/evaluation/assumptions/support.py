"""Did the log try, in contexts like these, what the policy would do there?

An action that was logged somewhere else says nothing of contexts in which it was never taken, and neither weights nor
intervals notice: where it was not tried, no weight is large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from learnloop.core.arrays import F64, Bools, Indices
from learnloop.core.protocols import Policy, Sample
from learnloop.evaluation.assumptions.assumption import ERROR_RATE, Assumption, AssumptionState
from learnloop.evaluation.assumptions.log_table import NUM_BINS, LogTable, content_of, is_number
from learnloop.evaluation.policies import DecisionPoint, distributions

NAME = "support"
MAX_UNSUPPORTED = 0.01
"""A policy of which a larger share is not supported is not judged."""
MAX_ROWS = 2_000
"""So many contexts are asked about, spread over the log."""
MAX_NEIGHBOURS = 20_000
"""Of more contexts, so many are looked at for near ones, spread over the log."""
CERTAINTY = 0.002
"""An action counts as never tried somewhere if, tried as rarely as ever, it would be missed there so seldom."""


class Support:
    """What a log tried, by context; made once and asked for each policy.

    Args:
        samples: all of the log, trained on and held out: what was tried does not depend on rewards.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._table = LogTable(samples)
        rows = np.linspace(0, max(len(self._table) - 1, 0), min(len(self._table), MAX_ROWS)).astype(np.intp)
        self._rows = np.unique(rows)
        self._apart = _rows_apart(self._table)
        self._stretches = _stretches(self._table)
        self._untried = self._find_untried() if len(self._table) else np.zeros((0, 0), dtype=bool)

    def unsupported_mass(self, policy: Policy) -> float | None:
        """Returns the share of the policy's decisions that the log never tried in contexts like theirs.

        An action is tried in a context if it was taken in one of the contexts nearest to it, and in each slice by a
        feature, of which there must be enough to see it: ln(1 / CERTAINTY) / p of them, where p is the propensity that
        it has at the least in all but one in twenty of the contexts in which it has any. It is not tried between two
        values of a number, either, that have many contexts between them and it in none. None: there is no log.
        """
        asked = [self._table.samples[row] for row in self._rows.tolist()]
        choices = [DecisionPoint(each.unit, each.context, each.actions, each.mask) for each in asked]
        return self._mass(asked, distributions(policy, choices))

    def mass_of(self, rows: Sequence[F64]) -> float | None:
        """Returns the same of a policy whose distribution at each of the samples is known, one row a sample."""
        asked = [self._table.samples[row] for row in self._rows.tolist()]
        return self._mass(asked, [rows[place] for place in self._table.places[self._rows].tolist()])

    def _mass(self, asked: Sequence[Sample], rows: Sequence[F64]) -> float | None:
        if not asked:
            return None
        places = {action: place for place, action in enumerate(self._table.actions)}
        taken = {each.action for each in self._table.samples}
        mass = 0.0
        for place, (sample, row) in enumerate(zip(asked, rows, strict=True)):
            for action, probability in zip(sample.actions, row.tolist(), strict=True):
                at = places.get(action)
                untried = action not in taken if at is None else bool(self._untried[place, at])
                mass += probability * untried
        return mass / len(asked)

    def _find_untried(self) -> Bools:
        """Returns which action was never tried in contexts like each one asked about, (num_asked, num_actions)."""
        table = self._table
        numbers = [_number_needed(table.weights[table.taken == place]) for place in range(len(table.actions))]
        near = self._nearest(_points(table.features, len(table)), max(numbers))
        untried = np.zeros((self._rows.size, len(table.actions)), dtype=bool)
        for place, number in enumerate(numbers):
            untried[:, place] = self._none_near(near, place, number) | self._none_in_slice(place, number)
            untried[:, place] |= self._none_in_stretch(place, number)
            untried[:, place] &= table.offered[self._rows, place]
        return untried

    def _nearest(self, points: F64, number: int) -> Indices:
        """Returns the rows of the nearest contexts to each one asked about, the nearest first.

        Shape ``(num_asked, number)``, or fewer: what is as far as half of the log is not near.
        """
        step = -(-self._apart.size // MAX_NEIGHBOURS)
        rows = self._apart[::step]
        number = min(number, rows.size // 2)
        if number == 0:
            return np.zeros((self._rows.size, 0), dtype=np.intp)
        others = points[rows]
        squares = np.einsum("ij,ij->i", others, others)
        found = np.zeros((self._rows.size, number), dtype=np.intp)
        for start in range(0, self._rows.size, 256):
            asked = points[self._rows[start : start + 256]]
            distances = squares - 2 * asked @ others.T
            near = np.argpartition(distances, number - 1, axis=1)[:, :number]
            order = np.argsort(np.take_along_axis(distances, near, axis=1), axis=1)
            found[start : start + 256] = rows[np.take_along_axis(near, order, axis=1)]
        return found

    def _none_near(self, near: Indices, place: int, number: int) -> Bools:
        """Returns where the action was taken in none of the ``number`` nearest contexts that offered it."""
        offered = self._table.offered[near, place]
        counted = offered & (np.cumsum(offered, axis=1) <= number)
        taken = (counted & (self._table.taken[near] == place)).any(axis=1)
        found: Bools = ~taken & (counted.sum(axis=1) == number)
        return found

    def _none_in_slice(self, place: int, number: int) -> Bools:
        table = self._table
        found = np.zeros(self._rows.size, dtype=bool)
        able = self._apart[table.offered[self._apart, place]]
        num_slices = sum(len(slicing.labels) for slicing in table.slicings)
        # An action of propensity 1 / weight is missed in n contexts with probability e^(-n / weight), in many slices.
        weight = number / math.log(1 / CERTAINTY)
        needed = max(float(number), weight * math.log(max(num_slices, 1) / ERROR_RATE))
        for slicing in table.slicings:
            if slicing.name == "time" or not slicing.labels:
                continue
            parts = slicing.parts[able]
            sizes = np.bincount(parts[parts >= 0], minlength=len(slicing.labels))
            taken = np.bincount(parts[(parts >= 0) & (table.taken[able] == place)], minlength=len(slicing.labels))
            empty = (taken == 0) & (sizes >= needed)
            inside = slicing.parts[self._rows]
            found |= (inside >= 0) & empty[inside]
        return found

    def _none_in_stretch(self, place: int, number: int) -> Bools:
        """Returns where a feature's value lies in a stretch without the action.

        A stretch has n p e^(-l p) times at least l contexts without an action of propensity p by chance, of n in all;
        l makes that ``ERROR_RATE`` over all features.
        """
        table = self._table
        weight = number / math.log(1 / CERTAINTY)
        found = np.zeros(self._rows.size, dtype=bool)
        for values, rows in self._stretches:
            able = rows[table.offered[rows, place]]
            every = values[able]
            ends = np.concatenate([[-np.inf], values[able[table.taken[able] == place]], [np.inf]])
            length = weight * math.log(max(every.size * len(self._stretches) / (ERROR_RATE * weight), 1.0))
            asked = np.nan_to_num(values[self._rows])
            after = np.searchsorted(ends, asked, side="right")
            between = np.searchsorted(every, ends[after], "left") - np.searchsorted(every, ends[after - 1], "right")
            found |= np.isfinite(values[self._rows]) & (ends[after - 1] < asked) & (between > length)
        return found


def _stretches(table: LogTable) -> list[tuple[F64, Indices]]:
    """Returns the values of each feature that is a number, and rows in their order, one of each unit and action."""
    found = []
    for values in table.features.values():
        numbers = np.array([float(value) if is_number(value) else np.nan for value in values])  # type: ignore[arg-type]
        keys = np.stack([numbers, table.units, table.taken])
        rows = np.flatnonzero(np.isfinite(numbers))
        rows = rows[np.unique(keys[:, rows], axis=1, return_index=True)[1]]
        if np.unique(numbers[rows]).size > NUM_BINS:
            found.append((numbers, rows))
    return found


def _rows_apart(table: LogTable) -> Indices:
    """Returns the rows without those that repeat one of their own unit, in the same context with the same action.

    A user who meets the same context ten times and takes the same action each time tried it once.
    """
    contents = [content_of(each) for each in table.samples]
    keys = zip(table.units.tolist(), table.taken.tolist(), contents, strict=True)
    first: dict[object, int] = {}
    for row, key in enumerate(keys):
        first.setdefault(key, row)
    return np.array(list(first.values()), dtype=np.intp)


def check_support(name: str, mass: float | None) -> Assumption:
    """Returns whether the log tried what the policy ``name`` does, of which ``mass`` is not supported."""
    if mass is None:
        return Assumption(name=NAME, finding=AssumptionState.UNKNOWN, detail="there is no log with propensities")
    if mass <= MAX_UNSUPPORTED:
        detail = f"{mass:.1%} of what {name!r} would do was never tried in contexts like these"
        return Assumption(name=NAME, finding=AssumptionState.HOLDS, detail=detail)
    detail = (
        f"{mass:.1%} of what {name!r} would do was never tried in contexts like these, and nothing is known of it: let "
        "every allowed action be tried in every context (such as epsilon=0.1)"
    )
    return Assumption(name=NAME, finding=AssumptionState.BROKEN, detail=detail)


def _number_needed(weights: F64) -> int:
    """Returns how many contexts must be near for an action of these weights to be seen in them, if it was tried.

    A row of weight w stands for w contexts in which the action could be taken, w - 1 of them with another action.
    """
    ordered = np.sort(weights)
    contexts = np.cumsum(ordered)
    rarest = ordered[np.searchsorted(contexts, 0.95 * contexts[-1])]
    return math.ceil(math.log(1 / CERTAINTY) * float(rarest))


def _points(features: Mapping[str, list[object]], size: int) -> F64:
    """Returns contexts as points: numbers scaled to a deviation of 1, all else 0 or 1 for each of its values."""
    columns: list[F64] = []
    for values in features.values():
        numbers = np.array([_number(value) for value in values])
        if np.isfinite(numbers).all():
            spread = float(numbers.std())
            columns.append((numbers - numbers.mean()) / spread if spread > 0 else np.zeros(size))
            continue
        keys = np.array([repr(value) for value in values])
        columns += [(keys == key).astype(np.float64) for key in np.unique(keys)[:64]]
    return np.stack(columns, axis=1) if columns else np.zeros((size, 1))


def _number(value: object) -> float:
    if isinstance(value, bool) or is_number(value):
        return float(value)  # type: ignore[arg-type]
    return math.nan
