"""How good scores are, measured on labels that the scorer has not seen: order, calibration, and their uncertainty."""

from __future__ import annotations

import numpy as np

from learnloop.core.arrays import F64, Indices
from learnloop.core.records import Record
from learnloop.core.seeding import generator
from learnloop.rewards.learned.logistic import fit_logistic

_BATCH = 100
_NUM_BINS = 10


class Interval(Record, frozen=True, kw_only=True):
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
) -> Interval:
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
        return Interval(value=None, low=None, high=None)
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
    return Interval(value=float(wins.sum()) / total, low=float(low), high=float(high))


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
