"""What becomes of the true reward when ever more of a proxy is asked for: best-of-n on labelled attempts.

Source: Gao, Schulman and Hilton 2022, "Scaling Laws for Reward Model Overoptimization", section 2 (the distance of
best-of-n: KL = log n - (n - 1) / n) and figure 1 (proxy against gold); Nakano et al. 2021, "WebGPT", appendix I (the
unbiased estimate of best-of-n from N samples).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.records import Record

MIN_TASKS = 5
"""Tasks with enough attempts for the largest n; where there are fewer, all attempts count as tries at one task."""


class OptimisationPoint(Record, frozen=True, kw_only=True):
    """What is expected of the best of ``n`` attempts by the proxy."""

    n: int
    kl: float
    """How far best-of-n is from the policy that made the attempts, in nats."""
    proxy: float
    """The proxy's mean of what it chooses."""
    gold: float
    """The labels' mean of the same."""
    gold_error: float | None
    """The standard error of ``gold`` over the tasks; None: there is one only."""


class OptimisationCurve(Record, frozen=True, kw_only=True):
    """Proxy and gold over n."""

    points: list[OptimisationPoint]
    num_tasks: int
    is_pooled: bool
    """All attempts counted as tries at one task, since few tasks have several."""

    @property
    def falls(self) -> bool:
        """Whether more of the proxy ends in less of the gold: at the last point less than at its best by two errors."""
        best = max(self.points, key=lambda point: point.gold)
        last = self.points[-1]
        errors = [error for error in (best.gold_error, last.gold_error) if error is not None]
        return best.gold - last.gold > 2.0 * math.hypot(*errors) and last.n > best.n


def best_of_n(proxy: F64, gold: F64, n: int) -> tuple[float, float]:
    """Returns the means of ``proxy`` and ``gold`` of the best by ``proxy`` among ``n`` drawn without replacement.

    This is exact: the k-th of N in rising order is the best of a draw with probability ``C(k-1, n-1) / C(N, n)``.
    Equal ones share what they have.

    Args:
        proxy: shape ``(num_attempts,)``.
        gold: shape ``(num_attempts,)``.
        n: from 1 to ``num_attempts``.
    """
    order = np.argsort(proxy, kind="stable")
    ranked, total = proxy[order], len(proxy)
    _, places, counts = np.unique(ranked, return_inverse=True, return_counts=True)
    fair = np.bincount(places, weights=gold[order]) / counts
    chances = np.array([math.comb(rank, n - 1) / math.comb(total, n) for rank in range(total)])
    return float(chances @ ranked), float(chances @ fair[places])


def optimisation_curve(proxy: F64, gold: F64, tasks: Sequence[str]) -> OptimisationCurve:
    """Returns the curve for n = 1, 2, 4 ... over held-out attempts with labels.

    Args:
        proxy: what the learned reward says, shape ``(num_attempts,)``.
        gold: the labels, shape ``(num_attempts,)``.
        tasks: which attempts are tries at the same task. Each n is measured on the same tasks.
    """
    names = np.asarray(tasks)
    groups = [np.flatnonzero(names == name) for name in dict.fromkeys(tasks)]
    largest, used = 1, groups
    while len(enough := [group for group in groups if len(group) >= 2 * largest]) >= MIN_TASKS:
        largest, used = 2 * largest, enough
    is_pooled = largest == 1
    if is_pooled:
        used = [np.arange(len(proxy))]
        largest = 2 ** int(math.log2(len(proxy)))
    points = []
    for n in (2**power for power in range(int(math.log2(largest)) + 1)):
        found = np.array([best_of_n(proxy[group], gold[group], n) for group in used])
        error = float(np.std(found[:, 1], ddof=1) / math.sqrt(len(used))) if len(used) > 1 else None
        kl = math.log(n) - (n - 1) / n
        means = found.mean(axis=0)
        points.append(OptimisationPoint(n=n, kl=kl, proxy=float(means[0]), gold=float(means[1]), gold_error=error))
    return OptimisationCurve(points=points, num_tasks=len(used), is_pooled=is_pooled)
