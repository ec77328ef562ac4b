"""How far a judge agrees with people: kappa with intervals, and the biases that can be counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F64, I64
from learnloop.core.errors import UsageError
from learnloop.core.records import Record
from learnloop.core.seeding import generator
from learnloop.rewards.judge.pairwise import PairComparison
from learnloop.rewards.learned.score_quality import rank_correlation

MIN_PAIRS = 3
"""For a correlation: two pairs are always on a line."""
MIN_TASKS = 20
"""A bootstrap over fewer tasks says too little to judge by."""
MAX_BIAS = 0.2
"""From which on a bias is told as a warning."""


class Judgement(Record, frozen=True, kw_only=True):
    """What a judge gave one attempt, to be held against a person's label."""

    attempt_id: str
    task_id: str | None = None
    """Attempts at one task are not independent; the interval takes them together. None: a task of its own."""
    score: float | None
    """0 to 1; None: the judge gave none."""
    num_characters: int | None = None
    """Of the output; None: not known, and the attempt does not count where scores are compared with lengths."""


class Figure(Record, frozen=True, kw_only=True):
    """A figure with its interval."""

    value: float | None
    lower: float | None = None
    upper: float | None = None
    reason: str | None = None
    """Why the value, or its interval, is None."""


class CalibrationReport(Record, frozen=True, kw_only=True):
    """How far a judge agrees with labels."""

    verdict: Literal["agrees", "disagrees", "inconclusive"]
    """Whether the whole interval of ``kappa`` lies from ``min_kappa`` up, below it, or neither can be said."""
    min_kappa: float
    warnings: list[str]
    num_pairs: int
    """Attempts with a score and a label."""
    num_tasks: int
    num_unscored: int
    """Attempts with a label to which the judge gave no score."""
    num_unlabelled: int
    """Attempts with a score and without a label."""
    agreement: Figure
    """Share of attempts that both took for good, or both for bad."""
    kappa: Figure
    """Cohen's, of good and bad."""
    weighted_kappa: Figure
    """Cohen's with quadratic weights, of ``num_levels`` levels."""
    length_correlation: Figure
    """Spearman's, of the judge's score and the output's length."""
    label_length_correlation: Figure
    """The same of the labels: what of the above is no bias."""
    position_bias: Figure
    """Share of pairwise votes that went to a place and not to an answer."""


# Kappa ---------------------------------------------------------------------------------------------------------------


def nominal(num_levels: int) -> F64:
    """Returns weights by which each disagreement is as bad as any other."""
    return 1.0 - np.eye(num_levels)


def quadratic(num_levels: int) -> F64:
    """Returns weights by which a disagreement is as bad as the square of its distance."""
    levels = np.arange(num_levels, dtype=np.float64)
    return np.square(levels[:, None] - levels)


def kappas(tables: F64, weights: F64) -> F64:
    """Returns how much better than chance two raters agree: 1 is always, 0 is chance, NaN: chance alone does it.

    Source: Cohen 1960, "A coefficient of agreement for nominal scales"; with weights Cohen 1968, "Weighted kappa".

    Args:
        tables: ``(b, k, k)``, how often the first rater gave the row and the second the column.
        weights: ``(k, k)``, how bad it is that one says the row and the other the column; 0 on the diagonal.
    """
    totals = tables.sum(axis=(1, 2))
    by_chance = np.einsum("bi,bj,ij->b", tables.sum(axis=2), tables.sum(axis=1), weights)
    observed = (tables * weights).sum(axis=(1, 2)) * totals
    found: F64 = np.divide(by_chance - observed, by_chance, out=np.full(len(tables), np.nan), where=by_chance > 0)
    return found


def _agreements(tables: F64) -> F64:
    totals = tables.sum(axis=(1, 2))
    right = np.trace(tables, axis1=1, axis2=2)
    found: F64 = np.divide(right, totals, out=np.full(len(tables), np.nan), where=totals > 0)
    return found


# The report ----------------------------------------------------------------------------------------------------------


def calibration_report(
    judgements: Iterable[Judgement],
    labels: Mapping[str, float],
    comparisons: Iterable[PairComparison] = (),
    *,
    threshold: float = 0.5,
    num_levels: int = 5,
    min_kappa: float = 0.6,
    num_resamples: int = 2000,
    seed: int = 0,
) -> CalibrationReport:
    """Returns how far a judge's scores agree with people's labels, with 95 % intervals by a bootstrap over tasks.

    Args:
        judgements: what the judge gave.
        labels: what people gave, from 0 to 1, by attempt.
        comparisons: of the same judge, for its position bias.
        threshold: a score or label from here up is good.
        num_levels: into how many equal steps 0 to 1 is cut for the weighted kappa.
        min_kappa: what the judge must reach; 0.61 and above is "substantial" (Landis & Koch 1977).
        num_resamples: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        UsageError: a score or label is not from 0 to 1, an attempt was judged twice, or a parameter has no meaning.
    """
    if not (0.0 < threshold <= 1.0 and num_levels >= 2 and num_resamples >= 1):
        raise UsageError("threshold lies above 0 and up to 1, num_levels from 2 up, num_resamples from 1 up")
    judged = list(judgements)
    _check(judged, labels)
    pairs = [each for each in judged if each.score is not None and each.attempt_id in labels]
    scores = np.array([each.score for each in pairs], dtype=np.float64)
    given = np.array([labels[each.attempt_id] for each in pairs], dtype=np.float64)
    places = _task_places(pairs)
    sample = _Resampler(places, num_resamples, seed)
    goods = sample.tables(scores >= threshold, given >= threshold, 2)
    levels = sample.tables(_levels(scores, num_levels), _levels(given, num_levels), num_levels)
    kappa = sample.estimate(goods, lambda tables: kappas(tables, nominal(2)), _ONE_CLASS)
    correlations = [_length_correlation(pairs, values) for values in (scores, given)]
    position = _position_bias(comparisons)
    return CalibrationReport(
        verdict=_verdict(kappa, sample.num_tasks, min_kappa),
        min_kappa=min_kappa,
        warnings=_warnings(kappa, sample.num_tasks, correlations, position),
        num_pairs=len(pairs),
        num_tasks=sample.num_tasks,
        num_unscored=sum(each.score is None and each.attempt_id in labels for each in judged),
        num_unlabelled=sum(each.score is not None and each.attempt_id not in labels for each in judged),
        agreement=sample.estimate(goods, _agreements, _NO_PAIRS),
        kappa=kappa,
        weighted_kappa=sample.estimate(levels, lambda tables: kappas(tables, quadratic(num_levels)), _ONE_CLASS),
        length_correlation=correlations[0],
        label_length_correlation=correlations[1],
        position_bias=position,
    )


_NO_PAIRS = "no attempt has both a score and a label"
_ONE_CLASS = "judge and labels know one class only, and the same, so that chance alone agrees"
_MIN_DEFINED = 0.9
"""Share of resamples in which a figure must be defined for its interval."""


class _Resampler:
    """Tasks drawn with replacement, as often as there are tasks."""

    def __init__(self, places: I64, num_resamples: int, seed: int) -> None:
        """``places`` ``(n,)`` tells the task of each pair, counted from 0."""
        self._places = places
        self.num_tasks = int(places.max()) + 1 if len(places) else 0
        rng = generator(seed, "agreement")
        draws = rng.integers(0, max(1, self.num_tasks), (num_resamples, self.num_tasks))
        self._counts = np.zeros((num_resamples, self.num_tasks))
        np.add.at(self._counts, (np.arange(num_resamples)[:, None], draws), 1.0)

    def tables(self, first: NDArray[np.generic], second: NDArray[np.generic], num_levels: int) -> F64:
        """Returns ``(tasks, k, k)``: the confusion of each task."""
        found = np.zeros((self.num_tasks, num_levels, num_levels))
        np.add.at(found, (self._places, first.astype(np.int64), second.astype(np.int64)), 1.0)
        return found

    def estimate(self, by_task: F64, figure: Callable[[F64], F64], undefined: str) -> Figure:
        """Returns a figure of all pairs, and its 2.5 % and 97.5 % points over the resamples."""
        if self.num_tasks == 0:
            return Figure(value=None, reason=_NO_PAIRS)
        value = _finite(figure(by_task.sum(axis=0)[None])[0])
        if value is None:
            return Figure(value=None, reason=undefined)
        found = figure((self._counts @ by_task.reshape(self.num_tasks, -1)).reshape(-1, *by_task.shape[1:]))
        defined = found[np.isfinite(found)]
        if len(defined) < _MIN_DEFINED * len(found):
            share = f"in {len(found) - len(defined)} of {len(found)} resamples it is not defined"
            return Figure(value=value, reason=f"no interval: {share}")
        lower, upper = np.quantile(defined, [0.025, 0.975])
        return Figure(value=value, lower=float(lower), upper=float(upper))


def _check(judged: Sequence[Judgement], labels: Mapping[str, float]) -> None:
    ids = {each.attempt_id for each in judged}
    if len(ids) < len(judged):
        raise UsageError(f"{len(judged) - len(ids)} judgements are of attempts that were judged already; give one each")
    given = [(each.attempt_id, each.score) for each in judged if each.score is not None]
    for attempt_id, value in (*given, *labels.items()):
        if not 0.0 <= value <= 1.0:
            raise UsageError(f"{attempt_id} has the score or label {value}; it must be from 0 to 1")


def _task_places(pairs: Sequence[Judgement]) -> I64:
    known: dict[tuple[bool, str], int] = {}
    keys = [(each.task_id is None, each.task_id or each.attempt_id) for each in pairs]
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def _levels(values: F64, num_levels: int) -> I64:
    rounded = values * num_levels + 1e-9  # 0.29 x 100 is 29, whatever floating point makes of it
    return np.minimum(rounded.astype(np.int64), num_levels - 1)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _verdict(kappa: Figure, num_tasks: int, min_kappa: float) -> Literal["agrees", "disagrees", "inconclusive"]:
    if kappa.lower is None or kappa.upper is None or num_tasks < MIN_TASKS:
        return "inconclusive"
    if kappa.lower >= min_kappa:
        return "agrees"
    return "disagrees" if kappa.upper < min_kappa else "inconclusive"


def _warnings(kappa: Figure, num_tasks: int, correlations: Sequence[Figure], position: Figure) -> list[str]:
    found = []
    if num_tasks < MIN_TASKS:
        found.append(f"{num_tasks} tasks with scores and labels are too few; label attempts at {MIN_TASKS} or more")
    if kappa.reason is not None:
        found.append(f"kappa: {kappa.reason}")
    judge, people = (each.value for each in correlations)
    if judge is not None and people is not None and judge - people > MAX_BIAS:
        found.append(f"the judge's scores grow with length ({judge:.2f}) more than the labels do ({people:.2f})")
    if position.value is not None and position.value > MAX_BIAS:
        found.append(f"{position.value:.0%} of pairwise votes went to a place and not to an answer")
    return found


# Biases --------------------------------------------------------------------------------------------------------------


def _length_correlation(pairs: Sequence[Judgement], values: F64) -> Figure:
    known = [place for place, each in enumerate(pairs) if each.num_characters is not None]
    lengths = np.array([pairs[place].num_characters for place in known], dtype=np.float64)
    value = rank_correlation(values[known], lengths) if len(known) >= MIN_PAIRS else None
    return Figure(value=value, reason=None if value is not None else f"fewer than {MIN_PAIRS} pairs, or no differences")


def _position_bias(comparisons: Iterable[PairComparison]) -> Figure:
    counted = [each for each in comparisons if each.num_valid]
    num_valid = sum(each.num_valid for each in counted)
    if num_valid == 0:
        return Figure(value=None, reason="no pairwise votes")
    return Figure(value=sum(each.num_front + each.num_back for each in counted) / num_valid)
