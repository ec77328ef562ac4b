"""What decisions earn by context and time, whatever is chosen: the baseline that estimates from a log are made with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F64, Bools, Indices
from learnloop.core.protocols import Sample
from learnloop.core.seeding import generator
from learnloop.evaluation.assumptions.log_table import flat_features, is_number

NUM_BINS = 8
MAX_COLUMNS = 256
PENALTIES = (3.0, 30.0, 300.0)
"""Of the ridge regression, in standard deviations of columns and of rewards; the best in cross-validation is taken."""
NUM_FOLDS = 4
MIN_SAMPLES = 40
"""Of fewer samples the model is their mean."""
MAX_SAMPLES = 20_000
"""Of more, so many are learned from, spread over all."""


class _Column(NamedTuple):
    """A column of the regression: a feature as a number, one of its bins, or one of its values."""

    feature: str
    low: float
    high: float
    value: str | None
    """None: a bin from ``low`` to below ``high``; both NaN: the number itself."""


class ContextModel:
    """Predicts the reward of a decision from its context and its time, not from what was chosen.

    An additive model, ridge regression on features, their bins and their values. An estimate that weighs r - q(x) is
    unbiased for any q that is not made of the same units, if propensities are right. If they are wrong by context or
    by time, it is so all the same where q is right and actions do not matter: what differs between contexts is then
    not taken for what differs between actions.

    Source: Robins, Rotnitzky & Zhao 1994, Estimation of regression coefficients when some regressors are not always
    observed (double robustness); Hoerl & Kennard 1970 (ridge regression).

    Args:
        samples: what it is made of; none of their units may be judged with it.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        chosen = samples[:: -(-len(samples) // MAX_SAMPLES)] if samples else []
        rewards = np.array([each.reward for each in chosen], dtype=np.float64)
        self.mean = float(rewards.mean()) if rewards.size else 0.0
        self._columns: list[_Column] = []
        self._coefficients: F64 = np.zeros(0)
        self._offsets: F64 = np.zeros(0)
        spread = float(rewards.std()) if rewards.size else 0.0
        if rewards.size < MIN_SAMPLES or spread == 0.0:
            return
        features = _features(chosen)
        self._columns = _columns(features)
        matrix = self._matrix(features, len(chosen))
        self._offsets = matrix.mean(axis=0).astype(np.float64)
        matrix -= self._offsets
        folds = generator(0, "context-model", rewards.size).permutation(rewards.size) % NUM_FOLDS
        errors = [_cross_error(matrix, rewards, folds, penalty) for penalty in PENALTIES]
        constant = float(np.mean([_constant_error(rewards, folds == fold) for fold in range(NUM_FOLDS)]))
        best = int(np.argmin(errors))
        if errors[best] < constant:
            self._coefficients = _ridge(matrix, rewards - self.mean, PENALTIES[best])
        else:
            self._columns, self._offsets = [], np.zeros(0)

    def predict(self, samples: Sequence[Sample]) -> F64:
        """Returns what each sample is expected to earn, shape ``(len(samples),)``."""
        if not self._columns or not samples:
            return np.full(len(samples), self.mean)
        matrix = self._matrix(_features(samples), len(samples)) - self._offsets
        found: F64 = self.mean + matrix @ self._coefficients
        return found

    def _matrix(self, features: dict[str, list[object]], size: int) -> F64:
        missing: list[object] = [None] * size
        numbers: dict[str, F64] = {}
        texts: dict[str, list[str]] = {}
        found = np.zeros((size, len(self._columns)))
        for place, column in enumerate(self._columns):
            values = features.get(column.feature, missing)
            if column.value is not None:
                names = texts.setdefault(column.feature, [repr(value) for value in values])
                found[:, place] = [name == column.value for name in names]
                continue
            if column.feature not in numbers:
                numbers[column.feature] = np.array([float(v) if is_number(v) else np.nan for v in values])  # type: ignore[arg-type]
            given = numbers[column.feature]
            if np.isnan(column.low):
                found[:, place] = np.nan_to_num(given / column.high, nan=0.0)
            else:
                found[:, place] = (given >= column.low) & (given < column.high)
        return found


def _features(samples: Sequence[Sample]) -> dict[str, list[object]]:
    features = dict(flat_features(samples))
    if all(each.made_at is not None for each in samples):
        features["\0time"] = [each.made_at for each in samples]
    return features


def _columns(features: dict[str, list[object]]) -> list[_Column]:
    found: list[_Column] = []
    for name, values in features.items():
        numbers = [float(value) for value in values if is_number(value)]  # type: ignore[arg-type]
        distinct = {repr(value) for value in values}
        if len(numbers) == len(values) and len(distinct) > NUM_BINS:
            scale = float(np.std(numbers))
            found.append(_Column(name, np.nan, scale if scale > 0 else 1.0, None))
            cuts = np.unique(np.quantile(numbers, np.arange(1, NUM_BINS) / NUM_BINS))
            edges = [-np.inf, *cuts.tolist(), np.inf]
            found += [_Column(name, low, high, None) for low, high in pairwise(edges)]
        elif len(distinct) <= 64:
            found += [_Column(name, np.nan, np.nan, value) for value in sorted(distinct)]
    return found[:MAX_COLUMNS]


def _ridge(matrix: F64, targets: F64, penalty: float) -> F64:
    gram = matrix.T @ matrix + penalty * np.eye(matrix.shape[1])
    return np.linalg.solve(gram, matrix.T @ targets).astype(np.float64)


def _cross_error(matrix: F64, rewards: F64, folds: Indices, penalty: float) -> float:
    errors = []
    for fold in range(NUM_FOLDS):
        out = folds == fold
        mean = float(rewards[~out].mean())
        coefficients = _ridge(matrix[~out], rewards[~out] - mean, penalty)
        errors.append(float(np.mean((rewards[out] - mean - matrix[out] @ coefficients) ** 2)))
    return float(np.mean(errors))


def _constant_error(rewards: F64, out: Bools) -> float:
    return float(np.mean((rewards[out] - rewards[~out].mean()) ** 2))
