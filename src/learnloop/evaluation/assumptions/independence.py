"""Are the units of a log independent of each other, as every test over them takes for granted?

A user who keeps one arm, a session whose choices repeat, a record that was written twice: they have right propensities
on average, and each repetition counts as new evidence. Given their contexts, the draws of different units are
independent where the propensities are those of each draw. So one takes the action of another as often as its own
propensities say, whatever policy drew them, and pairs that should differ and do not give dependence away.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from learnloop.core.arrays import Indices
from learnloop.core.protocols import Sample
from learnloop.evaluation.assumptions.assumption import ERROR_RATE, Assumption, AssumptionState
from learnloop.evaluation.assumptions.log_table import LogTable, content_of

NAME = "independence"
MAX_DISTINCT = 0.6
"""A feature with more different values, as a share of the rows, hardly ever comes again."""
MIN_PAIRS = 20
"""Of fewer pairs nothing is said."""


class _Pairs(NamedTuple):
    """Rows that are compared, each at most once."""

    about: str
    first: Indices
    second: Indices


def check_independence(table: LogTable, error_rate: float = ERROR_RATE) -> Assumption:
    """Returns whether units that should have nothing to do with each other chose alike more often than by chance.

    Compared are units that follow each other in equal contexts, units that follow each other in time, and those that
    follow each other with one value of a feature, such as the name of a user. Given the
    first and all before it, 1{a_j = a_i} / p_j - 1 has mean 0 for the second if it could take a_i, and mean -1 if its
    propensity is 0; the sum over pairs divided by the root of the sum of squares is about standard normal. One-sided.
    """
    kinds = [_in_equal_contexts(table), *([_in_time(table)] if table.has_times else []), *_by_feature(table)]
    limit = NormalDist().inv_cdf(1 - error_rate / len(kinds))
    for pairs in kinds:
        z = _alikeness(table, pairs)
        if z is not None and z > limit:
            detail = (
                f"{pairs.about} chose the same more often than their propensities say ({z:.1f} standard errors): they "
                f"are not independent, and {table.num_units:,} units are fewer than they seem. Name what belongs "
                "together (unit: task, session, user, or a feature of contexts)"
            )
            return Assumption(name=NAME, finding=AssumptionState.BROKEN, detail=detail)
    num = num_equal(table.samples)
    counts = f"{table.num_units:,} units with {len(table):,} decisions, {num:,} of them equal to one of another unit"
    detail = f"{counts}; that nothing else ties units together cannot be seen from a log"
    return Assumption(
        name=NAME, finding=AssumptionState.HOLDS if len(table) else AssumptionState.UNKNOWN, detail=detail
    )


def num_equal(samples: Sequence[Sample]) -> int:
    """Returns how many samples have the context, action and reward of an earlier one of another unit."""
    seen: dict[tuple[Any, ...], str] = {}
    number = 0
    for each in samples:
        key = (content_of(each), each.action, each.reward)
        number += seen.setdefault(key, each.unit) != each.unit
    return number


def _in_equal_contexts(table: LogTable) -> _Pairs:
    """Returns pairs of rows that follow each other among those with one context, of different units."""
    waiting: dict[bytes, int] = {}
    first, second = [], []
    counts = Counter(map(content_of, table.samples))
    for row, each in enumerate(table.samples):
        key = content_of(each)
        if counts[key] < 2:
            continue
        earlier = waiting.pop(key, None)
        if earlier is None or table.units[earlier] == table.units[row]:
            waiting[key] = row
        else:
            first.append(earlier)
            second.append(row)
    return _Pairs("units in equal contexts", np.array(first, dtype=np.intp), np.array(second, dtype=np.intp))


def _by_feature(table: LogTable) -> list[_Pairs]:
    """Returns for each feature whose values come again pairs of rows that follow each other with one value."""
    found = []
    num_contexts = len(set(map(content_of, table.samples)))
    for name, values in table.features.items():
        keys = [repr(value) for value in values]
        number = len(set(keys))
        if number < 2 or number > MAX_DISTINCT * len(keys) or number == num_contexts:  # the last: pairs as by context
            continue
        waiting: dict[str, int] = {}
        pairs = []
        for row, key in enumerate(keys):
            earlier = waiting.pop(key, None)
            if earlier is None or table.units[earlier] == table.units[row]:
                waiting[key] = row
            else:
                pairs.append((earlier, row))
        first, second = (np.array([pair[side] for pair in pairs], dtype=np.intp) for side in (0, 1))
        found.append(_Pairs(f"units with the same {name}", first, second))
    return found


def _in_time(table: LogTable) -> _Pairs:
    """Returns pairs of rows of different units that follow each other in time, one of each two units."""
    rows = np.arange(max(len(table) - 1, 0), dtype=np.intp)
    both = np.sort(np.stack([table.units[rows], table.units[rows + 1]], axis=1), axis=1)
    rows = rows[both[:, 0] != both[:, 1]]
    rows = rows[np.unique(both[rows], axis=0, return_index=True)[1]] if rows.size else rows
    return _Pairs("units that follow each other in time", rows, rows + 1)


def _alikeness(table: LogTable, pairs: _Pairs) -> float | None:
    """Returns by how many standard errors pairs are more alike than by chance; None: there are too few pairs."""
    if pairs.first.size < MIN_PAIRS:
        return None
    earlier = table.taken[pairs.first]
    known = earlier >= 0
    alike = known & (earlier == table.taken[pairs.second])
    due = known & table.offered[pairs.second, earlier]
    excess = np.where(alike, table.weights[pairs.second], 0.0) - due
    scale = table.importance / table.importance.mean() if len(table) else table.importance
    excess *= scale[pairs.first] * scale[pairs.second]
    size = float(np.sum(excess**2))
    return float(np.sum(excess)) / math.sqrt(size) if size > 0 else None
