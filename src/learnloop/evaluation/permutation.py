"""Tests of the mean of per-unit differences: sign flips, rare losses, two samples, Holm.

One difference a unit: units are independent of each other, what lies within a unit is not, so callers average
within a unit first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from learnloop.core.checks import check_range
from learnloop.core.errors import UsageError
from learnloop.core.seeding import generator
from learnloop.evaluation.intervals import check_values

EXACT_UNITS = 12
"""Up to so many units all 2^n sign patterns are tried."""
_CHUNK_CELLS = 1 << 21  # 16 MB of float64 at a time
_TIE = 1e-12  # sums of the same numbers in another order differ by less than this share of their size


def sign_flip_p_value(differences: ArrayLike, *, seed: int = 0, num_permutations: int = 10_000) -> float:
    """Returns the one-sided p-value against "the mean difference is not above 0", for symmetric differences.

    Under the null each difference is as likely to have the other sign. The statistic is the sum. With at most
    ``EXACT_UNITS`` units all sign patterns are enumerated and p is exact: the share of patterns, the observed one
    among them, whose sum is at least the observed. Else ``num_permutations`` patterns are drawn and
    p = (1 + b) / (1 + num_permutations), which is never 0, and whose level is exact however few are drawn.

    Differences whose mean is 0 but that are not symmetric around it are not this null: where small gains pay for a
    rare large loss, a sample without the loss looks certain. ``rare_loss_p_value`` is for that.

    Source: Fisher 1935, The Design of Experiments, section 21 (sign flips of paired differences); Phipson & Smyth 2010,
    Permutation p-values should never be zero, equation 2 (the add-one rule).

    Args:
        differences: one a unit, shape ``(num_units,)``.
        seed: of the drawn patterns.
        num_permutations: how many patterns are drawn.

    Raises:
        UsageError: no differences, one that is not finite, or no permutations.
    """
    values = check_values(differences)
    check_range("num_permutations", num_permutations, 1)
    # Flipping the set S changes the sum by -2 sum(S): the flipped sum is at least the observed when sum(S) <= 0.
    limit = _TIE * float(np.sum(np.abs(values)))
    if values.size <= EXACT_UNITS:
        patterns = np.arange(1 << values.size)[:, None] >> np.arange(values.size) & 1
        return float(np.mean(patterns @ values <= limit))
    rng = generator(seed, "sign-flip", values.size)
    num_extreme = 0
    for count in chunks(num_permutations, values.size):
        bits = np.frombuffer(rng.bytes(count * ((values.size + 7) // 8)), dtype=np.uint8).reshape(count, -1)
        flips = np.unpackbits(bits, axis=1, count=values.size)
        num_extreme += int(np.sum(flips.astype(np.float64) @ values <= limit))
    return (1 + num_extreme) / (1 + num_permutations)


def rare_loss_p_value(
    differences: ArrayLike, worst_loss: float, *, seed: int = 0, num_permutations: int = 10_000
) -> float:
    """Returns the one-sided p-value against "the mean difference is not above 0", if none is below ``-worst_loss``.

    To the differences comes a unit that was not seen and loses ``worst_loss``; p is the share of exponential weights
    of all units with which the weighted sum is not above 0. Without any loss among n equal gains g this is
    P(no such unit in n) = (1 - q)^n at the share q of such units that undoes the gain, g (1 - q) = worst_loss q: at
    p = .05 and n units q = 1 - .05^(1/n), about 3 / n (the rule of three). With losses that were seen it is the exact
    binomial test wherever differences take two values, the worst being one of them. For any others its level is
    proven for special cases only, but no case is known in which it is exceeded.

    Source: Gaffke 2005, Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
    variable; Learned-Miller & Thomas 2020, A new confidence interval for the mean of a bounded random variable.

    Args:
        differences: one a unit, shape ``(num_units,)``.
        worst_loss: how much a unit can lose at most, at least 0.
        seed: of the weights.
        num_permutations: how many draws of the weights.

    Raises:
        UsageError: no differences, one that is not finite, a loss below 0 or not finite, or no draws.
    """
    values = check_values(differences)
    check_range("worst_loss", worst_loss, 0, below=math.inf)
    check_range("num_permutations", num_permutations, 1)
    values = np.append(values[values != 0], -worst_loss)  # what neither gains nor loses weighs nothing
    rng = generator(seed, "rare-loss", values.size)
    num_undone = 0
    for count in chunks(num_permutations, values.size):
        weights = rng.standard_exponential((count, values.size))
        num_undone += int(np.sum(weights @ values <= 0))
    return (1 + num_undone) / (1 + num_permutations)


def units_needed(differences: ArrayLike, worst_loss: float, alpha: float) -> float:
    """Returns about how many units ``rare_loss_p_value`` needs to reach ``alpha``, if more of them are like these.

    The n at which n mean = z s sqrt(n) + -ln(alpha) worst_loss: what n units gain pays for their noise and for as many
    unseen losses as n units can miss. Infinite where there is no gain.

    Raises:
        UsageError: a difference is not finite.
    """
    values = check_values(differences)
    gain, noise = float(np.mean(values)), NormalDist().inv_cdf(1 - alpha) * float(np.std(values))
    if gain <= 0:
        return np.inf
    return float((noise + np.sqrt(noise**2 - 4 * gain * np.log(alpha) * worst_loss)) / (2 * gain)) ** 2


def units_for_power(differences: ArrayLike, alpha: float, power: float = 0.8) -> float:
    """Returns about how many units a one-sided test of the mean needs, if the mean and the spread are those of these.

    ((z(1 - alpha) + z(power)) s / mean)^2; infinite where the mean is not above 0.

    Source: Cohen 1988, Statistical Power Analysis for the Behavioral Sciences, section 2.4.

    Raises:
        UsageError: a difference is not finite.
    """
    values = check_values(differences)
    mean = float(np.mean(values))
    if mean <= 0:
        return math.inf
    quantiles = NormalDist().inv_cdf(1 - alpha) + NormalDist().inv_cdf(power)
    return (quantiles * float(np.std(values)) / mean) ** 2


def two_sample_p_value(first: ArrayLike, second: ArrayLike, *, seed: int = 0, num_permutations: int = 10_000) -> float:
    """Returns the one-sided p-value against "the first values are not higher in the mean than the second".

    Under the null which values are the first is by chance. Where there are at most ``num_permutations`` ways to choose
    so many of all of them, all are tried and p is exact: the share whose sum is at least the observed, that one among
    them. Else ``num_permutations`` are drawn, and p = (1 + b) / (1 + num_permutations), where b counts such draws.

    Source: Pitman 1937, Significance tests which may be applied to samples from any populations; Phipson & Smyth 2010,
    equation 2.

    Args:
        first: shape ``(num_first,)``.
        second: shape ``(num_second,)``.
        seed: of the draws.
        num_permutations: how many draws.

    Raises:
        UsageError: a side without values, or a value that is not finite.
    """
    ours, theirs = check_values(first), check_values(second)
    pooled = np.concatenate([ours, theirs])
    limit = float(ours.sum()) - _TIE * float(np.sum(np.abs(pooled)))
    if math.comb(pooled.size, ours.size) <= num_permutations:
        ways = np.array(list(combinations(range(pooled.size), ours.size)))
        return float(np.mean(pooled[ways].sum(axis=1) >= limit))
    rng = generator(seed, "two-sample", ours.size, theirs.size)
    draws = rng.permuted(np.tile(pooled, (num_permutations, 1)), axis=1)[:, : ours.size].sum(axis=1)
    return (1 + int(np.sum(draws >= limit))) / (1 + num_permutations)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns the p-values adjusted for having made all of these tests, in the order given.

    Source: Holm 1979, A simple sequentially rejective multiple test procedure, section 3: the i-th smallest of m is
    multiplied by m - i + 1, then made monotone and cut at 1.

    Raises:
        UsageError: a p-value lies outside 0 to 1.
    """
    values = np.asarray(p_values, dtype=np.float64)
    if not np.all((values >= 0) & (values <= 1)):
        raise UsageError(f"p-values {list(p_values)} must lie between 0 and 1")
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(values.size, 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]


def chunks(number: int, size: int) -> Iterator[int]:
    """Yields how many of ``number`` rows of ``size`` numbers to make at a time, so that memory stays bounded."""
    rows = max(1, _CHUNK_CELLS // size)
    for start in range(0, number, rows):
        yield min(rows, number - start)
