"""How much a log says about a policy that did not make it: the weights of its decisions, and what they are worth."""

from __future__ import annotations

import math

import msgspec

from learnloop.core.arrays import F64

MAX_WEIGHT_Z = 4.0
"""A mean weight that is more standard errors from 1 says that propensities are wrong, or actions were never logged."""
_SAME = 1e-9
"""Weights that are no farther from 1 are 1."""


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """How much a log says about a policy that did not make it."""

    num_samples: int
    effective_sample_size: float
    """So many decisions of the policy's own would say as much; see ``effective_sample_size``."""
    mean_weight: float
    """1 on average when propensities are right and the log tried all that the policy chooses."""
    mean_weight_z: float | None
    """How many standard errors (over units) the mean weight is from 1; None where that cannot be computed."""
    max_weight: float


def overlap_of(weights: F64, unit_excess: F64) -> Overlap:
    """Returns how much a log says.

    Args:
        weights: probability under the policy / propensity, of each decision, shape ``(num_samples,)``.
        unit_excess: of each unit by how much its weight is above the 1 that is expected, shape ``(num_units,)``.
    """
    return Overlap(
        num_samples=weights.size,
        effective_sample_size=effective_sample_size(weights),
        mean_weight=float(weights.mean()) if weights.size else 0.0,
        mean_weight_z=_standard_errors_from_zero(unit_excess) if weights.size else None,
        max_weight=float(weights.max()) if weights.size else 0.0,
    )


def effective_sample_size(weights: F64) -> float:
    """Returns (sum w)^2 / sum w^2; 0 where all weights are 0 or there are none.

    Source: Kong 1992, A note on importance sampling using standardized weights.
    """
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def _standard_errors_from_zero(excess: F64) -> float | None:
    """Returns mean / standard error = sum / (deviation sqrt(n)); 0 where all are 0, None where it is not known."""
    error = float(excess.std(ddof=1)) * math.sqrt(excess.size) if excess.size > 1 else 0.0
    if error > 0:
        return float(excess.sum()) / error
    return 0.0 if bool((abs(excess) < _SAME).all()) else None
