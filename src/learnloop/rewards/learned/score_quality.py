"""How good scores are, measured on labels that the scorer has not seen: order, calibration, and their uncertainty.

And what becomes of the true reward when ever more of a proxy is asked for: best-of-n on labelled attempts. Source: Gao,
Schulman and Hilton 2022, "Scaling Laws for Reward Model Overoptimization", section 2 (the distance of best-of-n:
KL = log n - (n - 1) / n) and figure 1 (proxy against gold); Nakano et al. 2021, "WebGPT", appendix I (the unbiased
estimate of best-of-n from N samples).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from learnloop.core.arrays import F64, Indices
from learnloop.core.records import Record
from learnloop.core.seeding import generator
from learnloop.rewards.learned.logistic import fit_logistic

_BATCH = 100
_NUM_BINS = 10
MIN_TASKS = 5
"""Tasks with enough attempts for the largest n; where there are fewer, all attempts count as tries at one task."""


class AucInterval(Record, frozen=True, kw_only=True):
    """An estimate with its bounds; None: it cannot be computed."""

    value: float | None
    low: float | None
    high: float | None


def auc(scores: F64, labels: F64) -> float | None:
    """Returns how often of two attempts with different labels the better one has the higher score; a tie counts half.

    With labels of 0 and 1 this is the area under the ROC curve; labels between are compared as they are. None where all
    labels are alike.

    Source: Hanley and McNeil 1982, "The Meaning and Use of the Area under a ROC Curve"; Harrell et al. 1996, section 5
    (the concordance index, for labels between).
    """
    wins, pairs = _pairs(scores, labels)
    total = float(pairs.sum())
    return float(wins.sum()) / total if total else None


def auc_interval(
    scores: F64, labels: F64, groups: Indices, seed: int, confidence: float, num_resamples: int = 1000
) -> AucInterval:
    """Returns the AUC with a percentile interval over resampled groups; rows of one group are not independent.

    Args:
        scores: shape ``(num_rows,)``.
        labels: shape ``(num_rows,)``.
        groups: which group each row is of, counted from 0.
        seed: of the resampling.
        confidence: of the two-sided interval, such as 0.95.
        num_resamples: of the groups, with replacement.

    Source: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", sections 13.3 (percentiles) and 8.5 (groups).
    """
    wins, pairs = _pairs(scores, labels)
    total = float(pairs.sum())
    if not total:
        return AucInterval(value=None, low=None, high=None)
    num_groups = int(groups.max()) + 1
    rng = generator(seed, "auc")
    found: list[F64] = []
    for start in range(0, num_resamples, _BATCH):
        size = min(_BATCH, num_resamples - start)
        counts = rng.multinomial(num_groups, np.full(num_groups, 1.0 / num_groups), size=size).astype(np.float64)
        weights = counts[:, groups]
        above = np.einsum("ri,ri->r", weights @ wins, weights)
        below = np.einsum("ri,ri->r", weights @ pairs, weights)
        found.append(above[below > 0] / below[below > 0])
    drawn = np.concatenate(found)
    tail = (1.0 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return AucInterval(value=float(wins.sum()) / total, low=float(low), high=float(high))


def brier(chances: F64, labels: F64) -> float:
    """Returns the mean squared difference of chances and labels; 0 is the best.

    Source: Brier 1950, "Verification of Forecasts Expressed in Terms of Probability".
    """
    return float(np.mean((chances - labels) ** 2))


def calibration_error(chances: F64, labels: F64, num_bins: int = _NUM_BINS) -> float:
    """Returns the mean distance of chances and labels in bins of equal numbers of rows (ECE); 0 is the best.

    Source: Naeini et al. 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning", section 4 (ECE);
    Nguyen and O'Connor 2015, section 3 (bins of equal numbers).
    """
    order = np.argsort(chances, kind="stable")
    total = 0.0
    for part in np.array_split(order, min(num_bins, len(order))):
        total += len(part) * abs(float(np.mean(chances[part]) - np.mean(labels[part])))
    return total / len(order)


def platt(logits: F64, labels: F64) -> tuple[float, float]:
    """Returns slope and shift that make ``sigmoid(slope * logit + shift)`` calibrated; the slope is never negative.

    Source: Platt 1999, "Probabilistic Outputs for Support Vector Machines", section 2.1; Niculescu-Mizil and Caruana
    2005, section 4.4 (better than isotonic regression below about a thousand labels).
    """
    spread = float(np.std(logits)) or 1.0
    fit = fit_logistic(logits[:, None] / spread, labels, 1e-3)
    slope = float(fit.coefficients[0]) / spread
    if slope > 0.0:
        return slope, fit.intercept
    mean = float(np.clip(np.mean(labels), 1e-6, 1.0 - 1e-6))  # the order of the scores is noise: all are the mean
    return 0.0, float(np.log(mean / (1.0 - mean)))


def rank_correlation(first: F64, second: F64) -> float | None:
    """Returns Spearman's correlation of the ranks, ties sharing theirs; None where one is constant.

    Source: Spearman 1904, "The Proof and Measurement of Association between Two Things"; with ties, Pearson's
    correlation of mid-ranks (Kendall 1948, chapter 3).
    """
    ranks = [_ranks(values) for values in (first, second)]
    spreads = [float(np.std(each)) for each in ranks]
    if not all(spreads):
        return None
    return float(np.mean((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())) / (spreads[0] * spreads[1]))


def _ranks(values: F64) -> F64:
    """Returns the rank of each value; equal ones have the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts).astype(np.float64)
    found: F64 = (ends - (counts - 1) / 2.0)[places]
    return found


def _pairs(scores: F64, labels: F64) -> tuple[F64, F64]:
    """Returns for each pair whether the first has the better label, and how much of this its score says."""
    pairs = (labels[:, None] > labels[None, :]).astype(np.float64)
    said = np.sign(scores[:, None] - scores[None, :]) / 2.0 + 0.5
    return pairs * said, pairs


# Over-optimisation ----------------------------------------------------------------------------------------------------


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
