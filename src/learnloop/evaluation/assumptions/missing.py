"""Are the rewards that are missing like those that are known?

Nobody can say from a log what is missing. It can be seen whether it is missing more often after some action, in some
context or at some time, and it can be asked whether a verdict would still hold if all that is missing were as bad for
it as rewards can be.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import Bools
from learnloop.evaluation.assumptions.assumption import ERROR_RATE, Assumption, AssumptionState
from learnloop.evaluation.assumptions.log_table import LogTable, Slicing

NAME = "missing_rewards"
MAX_MISSING = 0.01
"""Up to so large a share of missing rewards a verdict is as it is without them."""
MIN_EXPECTED = 5.0


class _Excess(NamedTuple):
    where: str
    share: float
    share_elsewhere: float
    z: float


def check_missing(num_known: int, num_missing: int, table: LogTable, error_rate: float = ERROR_RATE) -> Assumption:
    """Returns what is known of the decisions whose reward is missing.

    Args:
        num_known: decisions with a reward.
        num_missing: decisions without one, whose reward is not to be waited for any more.
        table: of both; rewards that are missing are NaN.
        error_rate: of all comparisons together.
    """
    total = num_known + num_missing
    if not num_missing:
        return Assumption(
            name=NAME, finding=AssumptionState.HOLDS, detail=f"all {num_known:,} decisions have their reward"
        )
    counts = f"{num_missing:,} of {total:,} decisions have no reward ({num_missing / total:.1%})"
    excess = _largest_excess(table, error_rate)
    if excess is not None:
        tied = f"{counts}, and not by chance: {excess.share:.1%} {excess.where}, {excess.share_elsewhere:.1%} elsewhere"
    else:
        tied = f"{counts}; that has nothing to do with action, context or time, and with the reward it cannot be seen"
    if num_missing <= MAX_MISSING * total:
        return Assumption(name=NAME, finding=AssumptionState.HOLDS, detail=tied)
    return Assumption(name=NAME, finding=AssumptionState.BROKEN, detail=tied)


def _largest_excess(table: LogTable, error_rate: float) -> _Excess | None:
    """Returns the action or slice in which rewards are missing most surely more often than elsewhere, or None."""
    missing = np.array([math.isnan(each.reward) for each in table.samples], dtype=bool)
    if not missing.any() or missing.all():
        return None
    by_action = Slicing("action", [repr(each) for each in table.actions], table.taken)
    found = [each for slicing in (by_action, *table.slicings) for each in _excesses(slicing, missing)]
    worst = max(found, key=lambda each: each.z, default=None)
    if worst is None or worst.z < NormalDist().inv_cdf(1 - error_rate / len(found)):
        return None
    return worst


def _excesses(slicing: Slicing, missing: Bools) -> list[_Excess]:
    """Returns how often rewards are missing in each part, against all other parts: the z of two shares, pooled."""
    found = []
    overall = float(missing.mean())
    for part, label in enumerate(slicing.labels):
        inside = slicing.parts == part
        sizes = int(inside.sum()), int((~inside).sum())
        if min(sizes) * overall < MIN_EXPECTED:
            continue
        here, elsewhere = float(missing[inside].mean()), float(missing[~inside].mean())
        z = (here - elsewhere) / math.sqrt(overall * (1 - overall) * (1 / sizes[0] + 1 / sizes[1]))
        found.append(_Excess(f"where {slicing.name} is {label}", here, elsewhere, z))
    return found
