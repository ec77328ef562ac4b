"""Statistics over seeds: what several trainings of one algorithm say together, and how sure that is.

Fewer than 20 seeds give no interval: bootstrap intervals of few values are narrower than their level says (95 % ones
cover .77 of the time with 3 seeds, .83 with 5, .89 with 10, .94 with 20). Every seed's own value is always kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from learnloop.core.arrays import F64
from learnloop.core.checks import check_range
from learnloop.core.errors import UsageError
from learnloop.core.seeding import generator
from learnloop.evaluation.intervals import MIN_INTERVAL_UNITS, Interval, percentile_interval
from learnloop.evaluation.permutation import chunks

_METHOD = "stratified_bootstrap_percentile"


class TaskSeeds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values of one task."""

    values: tuple[float, ...]
    """One a seed, in the order given."""
    mean: float
    std: float | None
    """Sample standard deviation over seeds (divided by one less than their number); None: one seed has none."""


class SeedStatistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an algorithm's values over seeds, and tasks, say together."""

    tasks: dict[str, TaskSeeds]
    num_seeds: int
    """Of each task."""
    mean: float
    """Over all values; equal to the mean of the tasks' means."""
    iqm: float
    """The interquartile mean of all values."""
    mean_interval: Interval | None
    iqm_interval: Interval | None
    reason: str | None
    """Why there is no interval; None where there is one."""


class Improvement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a training of one algorithm is better than one of another."""

    probability: float
    """From 0 to 1; .5 where neither is."""
    interval: Interval | None
    reason: str | None
    """Why there is no interval; None where there is one."""


def interquartile_mean(values: ArrayLike) -> float:
    """Returns the mean of the middle half: the lowest and the highest floor(n / 4) of all n values are left out.

    Less moved by single seeds than the mean, and less wasteful than the median.

    Source: Agarwal et al. 2021, Deep Reinforcement Learning at the Edge of the Statistical Precipice, section 4.3.

    Raises:
        UsageError: there is no value, or one is not finite.
    """
    return float(_trimmed(_checked(values, "values").reshape(1, -1))[0])


def summarise_seeds(
    values: Mapping[str, Sequence[float]] | Sequence[float],
    *,
    level: float = 0.95,
    num_resamples: int = 2_000,
    seed: int = 0,
) -> SeedStatistics:
    """Returns the statistics of values over seeds.

    Intervals are percentiles of ``num_resamples`` means and interquartile means of values drawn with replacement within
    each task (stratified bootstrap: seeds are drawn, tasks are not).

    Source: Agarwal et al. 2021, section 4.1 (stratified bootstrap percentile intervals) and 4.3 (IQM).

    Args:
        values: one a seed; or by task, as many seeds of each, on scales that can be averaged.
        level: of the intervals, between 0 and 1.
        num_resamples: how many draws.
        seed: of the draws.

    Raises:
        UsageError: there is no value, one is not finite, or tasks have different numbers of seeds.
    """
    named = values if isinstance(values, Mapping) else {"values": values}
    matrix = _matrix(named)
    _check_options(level, num_resamples)
    reason = _too_few(matrix.shape[1])
    intervals: list[Interval | None] = [None, None]
    if reason is None:
        draws = _bootstrap([matrix], _mean_and_iqm, num_resamples, seed)
        intervals = [percentile_interval(column, level, matrix.shape[1], _METHOD) for column in draws.T]
    return SeedStatistics(
        tasks={name: _task(row) for name, row in zip(named, matrix, strict=True)},
        num_seeds=matrix.shape[1],
        mean=float(matrix.mean()),
        iqm=interquartile_mean(matrix),
        mean_interval=intervals[0],
        iqm_interval=intervals[1],
        reason=reason,
    )


def probability_of_improvement(
    ours: Mapping[str, Sequence[float]] | Sequence[float],
    theirs: Mapping[str, Sequence[float]] | Sequence[float],
    *,
    level: float = 0.95,
    num_resamples: int = 2_000,
    seed: int = 0,
) -> Improvement:
    """Returns how likely a seed of ours is better than a seed of theirs on the same task, averaged over tasks.

    On each task the share of pairs in which ours is higher, ties for half: Mann and Whitney's U over the number of
    pairs. The interval is a stratified bootstrap of both sides.

    Source: Agarwal et al. 2021, section 4.4, equation 2.

    Args:
        ours: one value a seed, or by task.
        theirs: for the same tasks; the number of seeds may differ.
        level: of the interval, between 0 and 1.
        num_resamples: how many draws.
        seed: of the draws.

    Raises:
        UsageError: the tasks differ, there is no value, or one is not finite.
    """
    first = ours if isinstance(ours, Mapping) else {"values": ours}
    second = theirs if isinstance(theirs, Mapping) else {"values": theirs}
    if first.keys() != second.keys():
        raise UsageError(f"the tasks are {list(first)} on one side and {list(second)} on the other; give the same")
    _check_options(level, num_resamples)
    pair = [_matrix(first), _matrix({name: second[name] for name in first})]
    num_seeds = min(each.shape[1] for each in pair)
    reason = _too_few(num_seeds)
    interval = None
    if reason is None:
        draws = _bootstrap(pair, _share_better, num_resamples, seed)[:, 0]
        interval = percentile_interval(draws, level, num_seeds, _METHOD)
    return Improvement(
        probability=float(_share_better([each[None] for each in pair])[0, 0]), interval=interval, reason=reason
    )


def _checked(values: ArrayLike, name: str) -> F64:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise UsageError(f"{name} has no value; at least one seed is needed")
    if not np.isfinite(array).all():
        raise UsageError(
            f"{int((~np.isfinite(array)).sum())} of {array.size} values of {name} are not finite; say of a "
            "training that failed that it failed, not that it earned such a number"
        )
    return array


def _matrix(values: Mapping[str, Sequence[float]]) -> F64:
    """Returns the values, shape ``(num_tasks, num_seeds)``."""
    if not values:
        raise UsageError("there is no task; at least one is needed")
    counts = {name: len(each) for name, each in values.items()}
    if len(set(counts.values())) > 1:
        raise UsageError(f"the tasks have {counts} seeds; give each as many, or the tasks would not count alike")
    return np.stack([_checked(each, f"task {name!r}").reshape(-1) for name, each in values.items()])


def _check_options(level: float, num_resamples: int) -> None:
    check_range("level", level, above=0, below=1)
    check_range("num_resamples", num_resamples, 1)


def _too_few(num_seeds: int) -> str | None:
    if num_seeds >= MIN_INTERVAL_UNITS:
        return None
    return f"{num_seeds} seeds are too few for an interval; {MIN_INTERVAL_UNITS} are needed"


def _task(row: F64) -> TaskSeeds:
    return TaskSeeds(
        values=tuple(row.tolist()), mean=float(row.mean()), std=float(row.std(ddof=1)) if row.size > 1 else None
    )


def _trimmed(rows: F64) -> F64:
    """Returns the mean of the middle half of each row."""
    cut = rows.shape[1] // 4
    middle: F64 = np.sort(rows, axis=1)[:, cut : rows.shape[1] - cut].mean(axis=1)
    return middle


def _mean_and_iqm(samples: Sequence[F64]) -> F64:
    flat = samples[0].reshape(len(samples[0]), -1)
    return np.stack([flat.mean(axis=1), _trimmed(flat)], axis=1)


def _share_better(samples: Sequence[F64]) -> F64:
    """Returns for each of the resamples, shape ``(resamples, tasks, seeds)`` on both sides, the share of won pairs."""
    first, second = samples[0][:, :, :, None], samples[1][:, :, None, :]
    won: F64 = (0.5 * ((first > second).mean(axis=(1, 2, 3)) + (first >= second).mean(axis=(1, 2, 3))))[:, None]
    return won


def _bootstrap(sides: Sequence[F64], statistics: Callable[[Sequence[F64]], F64], num_resamples: int, seed: int) -> F64:
    """Returns the statistics of resamples, each task's seeds drawn with replacement, a row a resample."""
    rng = generator(seed, "bootstrap", *(each.shape for each in sides))
    found = []
    for count in chunks(num_resamples, len(sides[0]) * math.prod(each.shape[1] for each in sides)):
        picks = [rng.integers(each.shape[1], size=(count, *each.shape)) for each in sides]
        drawn = [np.take_along_axis(each[None], pick, axis=2) for each, pick in zip(sides, picks, strict=True)]
        found.append(statistics(drawn))
    return np.concatenate(found)
