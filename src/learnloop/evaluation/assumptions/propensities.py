"""Are the logged propensities those with which actions were really taken?

With right propensities E[1{a_i = a} / p_i | x_i, time] = 1 for each action that could be taken. That is tested for each
action over the whole log, in blocks of time and in slices of contexts: propensities that are right on average and
wrong by the hour or by the group make an estimate wrong and leave its mean weight at 1.

Only actions that were taken more often than their propensities say are looked for. Where one was taken less often than
it should have been another was taken more often; one that was never taken somewhere, with propensities that know it, is
a matter of support.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F64, Indices
from learnloop.evaluation.assumptions.assumption import ERROR_RATE, Assumption, AssumptionState
from learnloop.evaluation.assumptions.log_table import LogTable, Slicing

NAME = "propensities"
MIN_EXPECTED = 10.0
"""Slices in which an action was to be taken less often on average are not looked at."""
MIN_CELLS = 16
"""Of a way to divide the log that makes fewer slices with an action, no sum over slices is tested."""


class _Cell(NamedTuple):
    """An action in a slice."""

    action: str
    where: str
    ratio: float
    """How many times as often as its propensities say the action was taken."""
    p_value: float


def check_propensities(table: LogTable, error_rate: float = ERROR_RATE) -> Assumption:
    """Returns whether logged propensities fit the actions that were taken.

    Each action in each slice has the sum T of its excess weight, of mean 0 and variance V, the larger of what the
    slice and what the log say; p = P(Z > T / sqrt(V + b T / 3)) for a standard normal Z and terms up to b: that of
    a sum of many, with Bernstein's allowance for few and large ones. Besides,
    for each way to divide the log into many slices, the sum over slices of max(0, z)^2 finds small faults that change
    from slice to slice. All of it at ``error_rate`` together (Bonferroni).

    Source: Bernstein 1924; Maurer & Pontil 2009, theorem 3 (the inequality in this form).
    """
    if len(table) == 0 or bool(np.all(table.weights == 1.0)):
        detail = "the log tried nothing: every propensity is 1, or none is known"
        return Assumption(name=NAME, finding=AssumptionState.UNKNOWN, detail=detail)
    everything = Slicing("", [""], np.zeros(len(table), dtype=np.intp))
    cells: list[_Cell] = []
    sums: list[_Cell] = []
    for slicing in (everything, *table.slicings):
        found, over_all = _cells(table, slicing)
        cells += found
        sums += over_all
    limit, limit_of_sums = (error_rate / 2 / max(len(each), 1) for each in (cells, sums))
    worst = min(cells, key=lambda cell: cell.p_value, default=None)
    if worst is not None and worst.p_value <= limit:
        return _broken(worst)
    worst_sum = min(sums, key=lambda cell: cell.p_value, default=None)
    if worst_sum is not None and worst_sum.p_value <= limit_of_sums:
        return _broken(worst_sum)
    detail = (
        f"actions were taken as often as their propensities say, in {len(cells)} combinations of action, block of time "
        "and slice of context; that they are right within those cannot be seen"
    )
    return Assumption(name=NAME, finding=AssumptionState.HOLDS, detail=detail)


def _broken(cell: _Cell) -> Assumption:
    how = f"{cell.ratio:.3g} times as often as" if cell.ratio else "more often in some and less often in others than"
    detail = (
        f"{cell.where}action {cell.action!r} was taken {how} its propensities say (p = {cell.p_value:.2g}): they are "
        "wrong there, and so is any estimate. Log the probability with which each action was really drawn; the share "
        "of decisions in which an action was seen is no propensity"
    )
    return Assumption(name=NAME, finding=AssumptionState.BROKEN, detail=detail)


def _cells(table: LogTable, slicing: Slicing) -> tuple[list[_Cell], list[_Cell]]:
    """Returns each action in each slice, and each action over all slices where these are many."""
    num_parts = len(slicing.labels)
    inside = slicing.parts >= 0
    parts = slicing.parts[inside]
    if num_parts == 0 or parts.size == 0:
        return [], []
    cells, sums = [], []
    is_apart = _num_pairs(parts, table.units[inside]) == np.unique(table.units[inside]).size  # else slices depend
    for place, action in enumerate(table.actions):
        excess, offered = table.excess[inside, place], table.offered[inside, place]
        sizes = np.bincount(parts, offered, minlength=num_parts)
        taken = float(np.mean((table.taken[inside] == place)[offered])) if offered.any() else 0.0
        usable = np.flatnonzero(sizes * taken >= MIN_EXPECTED)
        if usable.size == 0:
            continue
        total = np.bincount(parts, excess, minlength=num_parts)
        by_unit = _squares_of_units(parts, table.units[inside], excess, num_parts)
        pooled = sizes * (by_unit.sum() / max(sizes.sum(), 1.0))
        variance = np.maximum(by_unit, pooled)
        bound = _largest_of_units(parts, table.units[inside], excess)
        for part in usable.tolist():
            where = f"where {slicing.name} is {slicing.labels[part]}, " if slicing.name else ""
            p_value = _tail(float(total[part]), float(variance[part]), bound)
            cells.append(_Cell(action, where, 1 + float(total[part] / sizes[part]), p_value))
        if usable.size >= MIN_CELLS and is_apart:
            z = np.maximum(total[usable], 0) / np.sqrt(variance[usable])
            sums.append(_Cell(action, f"over slices of {slicing.name} ", 0.0, _half_chi_square(z)))
    return cells, sums


def _num_pairs(parts: Indices, units: Indices) -> int:
    return int(np.unique(parts * (int(units.max()) + 1) + units).size)


def _squares_of_units(parts: Indices, units: Indices, excess: F64, num_parts: int) -> F64:
    """Returns the sum over units of the square of their sum, in each part."""
    keys, places = np.unique(parts * (int(units.max()) + 1) + units, return_inverse=True)
    squares = np.bincount(places, excess) ** 2
    return np.bincount(keys // (int(units.max()) + 1), squares, minlength=num_parts).astype(np.float64)


def _largest_of_units(parts: Indices, units: Indices, excess: F64) -> float:
    _, places = np.unique(parts * (int(units.max()) + 1) + units, return_inverse=True)
    return float(np.max(np.abs(np.bincount(places, excess))))


def _tail(total: float, variance: float, bound: float) -> float:
    if total <= 0:
        return 1.0
    return 1 - NormalDist().cdf(total / math.sqrt(variance + bound * total / 3))


def _half_chi_square(z: F64) -> float:
    """Returns P(sum of max(0, z)^2 >= the observed) for independent standard normal z, about.

    Each term has mean 1/2 and variance 5/4; a gamma distribution with the same mean and variance takes the place of the
    sum's. Source: Wilson & Hilferty 1931 (its cube root is about normal).
    """
    mean, variance = z.size / 2, 5 * z.size / 4
    shape = mean**2 / variance
    cube = (float(np.sum(z**2)) / mean) ** (1 / 3)
    return 1 - NormalDist().cdf((cube - (1 - 1 / (9 * shape))) * math.sqrt(9 * shape))
