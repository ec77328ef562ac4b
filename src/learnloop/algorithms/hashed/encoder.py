"""Samples as arrays of hashed features; each is read once, however often it is trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from learnloop.algorithms.hashed.config import HashedConfig
from learnloop.algorithms.hashed.features import (
    ACTION,
    CONSTANT,
    CONTEXT,
    MAX_SIZE,
    NAME,
    Features,
    check_pairs,
    feature_hash,
    features_of_action,
    flatten,
    vector_of,
)
from learnloop.algorithms.hashed.model import Encoded
from learnloop.algorithms.hashed.policy import block_start
from learnloop.core.arrays import F32, F64, Indices
from learnloop.core.errors import ActionError, ContextError, DivergedError
from learnloop.core.protocols import Sample

MAX_ROWS = 100_000
"""So many samples are remembered; after that all are read again."""

_SAME = 1e-12  # numbers that vary by less than this share of their size are constant


class Standardised(NamedTuple):
    """Encoded samples, and how their numbers were scaled."""

    encoded: Encoded
    names: list[str]
    """Of the features that are numbers."""
    means: F64
    """Of these."""
    scales: F64
    vector_means: F64
    vector_scales: F64


class _Side:
    """The features of all contexts, or of all actions, that were read."""

    def __init__(self) -> None:
        self.ids: list[list[int]] = []
        self.values: list[list[float]] = []
        self._table: tuple[Indices, F64] | None = None

    def add(self, ids: list[int], values: list[float]) -> None:
        self.ids.append(ids)
        self.values.append(values)
        self._table = None

    def table(self) -> tuple[Indices, F64]:
        """Returns ids and values, each of shape ``(num_rows, width)``, padded with id 0 and value 0."""
        if self._table is None:
            lengths = np.array([len(ids) for ids in self.ids])
            is_there = np.arange(lengths.max()) < lengths[:, None]
            ids, values = np.zeros(is_there.shape, dtype=np.intp), np.zeros(is_there.shape)
            ids[is_there] = [each for row in self.ids for each in row]
            values[is_there] = [each for row in self.values for each in row]
            self._table = ids, values
        return self._table

    def take(self, rows: Indices) -> tuple[Indices, F64]:
        """Returns ids and values of ``rows``, no wider than they need."""
        ids, values = self.table()
        width = max(len(self.ids[row]) for row in set(rows.tolist()))
        return ids[rows, :width], values[rows, :width]


class HashedEncoder:
    """Reads samples; what it has read it knows by the identity of context, actions and action.

    Contexts must not be changed as long as it is used.
    """

    def __init__(self, config: HashedConfig) -> None:
        self._config = config
        self._ignored = frozenset(config.ignored)
        self._clear()

    def _clear(self) -> None:
        self._rows: dict[tuple[int, int, str], int] = {}
        self._held: list[tuple[object, object]] = []  # what lives keeps its identity
        self._ids: dict[str, int] = {}
        self._hashes: list[int] = []
        self._is_number: list[bool] = []
        self._context, self._action = _Side(), _Side()
        self._blocks: list[int] = []
        self._vectors: list[F32 | None] = []
        self._id("constant", CONSTANT, is_number=False)

    def encode(self, samples: Sequence[Sample]) -> Standardised:
        """Returns ``samples`` as arrays, at least one, scaled by themselves.

        Numbers that each sample has are standardised; of others, for which being absent is 0, the root mean square
        becomes 1. Coordinates of vectors are standardised.

        Raises:
            ContextError: features cannot be read, or vectors differ in length.
            ActionError: a sample's action is none of its actions.
            DivergedError: numbers too large to be scaled.
        """
        if len(self._rows) + len(samples) > MAX_ROWS:
            self._clear()
        rows = np.array([self._row(sample) for sample in samples], dtype=np.intp)
        contexts, actions = self._context.take(rows), self._action.take(rows)
        means, scales = self._scales([contexts, actions], rows.size)
        vectors, vector_means, vector_scales = self._scaled_vectors(rows)
        hashes = np.array(self._hashes, dtype=np.uint64)
        encoded = Encoded(
            context_hashes=hashes[contexts[0]],
            context_values=_scaled(contexts, means, scales),
            action_hashes=hashes[actions[0]],
            action_values=_scaled(actions, means, scales),
            blocks=np.array(self._blocks, dtype=np.intp)[rows],
            vectors=vectors,
        )
        seen = np.zeros(hashes.size, dtype=np.bool_)
        seen[contexts[0]] = seen[actions[0]] = True
        learned = np.flatnonzero(seen & np.array(self._is_number))
        names = list(self._ids)
        numbers = [names[index] for index in learned.tolist()]
        return Standardised(encoded, numbers, means[learned], scales[learned], vector_means, vector_scales)

    def _row(self, sample: Sample) -> int:
        key = (id(sample.context), id(sample.actions), sample.action)
        row = self._rows.get(key)
        if row is None:
            row = self._read(sample)
            self._rows[key] = row
        return row

    def _read(self, sample: Sample) -> int:
        actions = list(sample.actions)
        if sample.action not in actions:
            raise ActionError(f"a sample took {sample.action!r}, which is none of its actions {actions[:12]}")
        known: Mapping[str, Any] = features_of_action(sample.context, actions.index(sample.action), len(actions))
        context, action = flatten(sample.context, CONTEXT, self._ignored), flatten(known, ACTION, self._ignored)
        if self._config.interactions:
            check_pairs(
                len(context.numbers) + len(context.indicators), len(action.numbers) + len(action.indicators) + 2
            )
        vector = vector_of(sample.context)
        self._add(self._context, context, [0])
        own = NAME + sample.action
        self._add(self._action, action, [0, self._id(own, feature_hash(own), is_number=False)])
        self._blocks.append(block_start(feature_hash(own), self._config.num_bits))
        self._vectors.append(vector)
        self._held.append((sample.context, sample.actions))
        return len(self._held) - 1

    def _add(self, side: _Side, features: Features, ids: list[int]) -> None:
        values = [1.0] * len(ids)
        for name, value in features.numbers.items():
            ids.append(self._id(name, feature_hash(name), is_number=True))
            values.append(value)
        for name in features.indicators:
            ids.append(self._id(f"{name}=", feature_hash(name), is_number=False))
            values.append(1.0)
        side.add(ids, values)

    def _id(self, name: str, name_hash: int, *, is_number: bool) -> int:
        found = self._ids.setdefault(name, len(self._hashes))
        if found == len(self._hashes):
            self._hashes.append(name_hash)
            self._is_number.append(is_number)
        return found

    def _scales(self, sides: list[tuple[Indices, F64]], num_rows: int) -> tuple[F64, F64]:
        """Returns mean and scale of each feature; 0 and 1 of indicators."""
        ids = np.concatenate([each[0].ravel() for each in sides])
        values = np.concatenate([each[1].ravel() for each in sides])
        is_number = np.array(self._is_number)
        chosen = is_number[ids]  # padding has the id of the constant
        ids, values = ids[chosen], values[chosen]
        size = len(self._hashes)
        counts = np.bincount(ids, minlength=size)
        divisors = np.maximum(counts, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            means = np.bincount(ids, values, size) / divisors
            means[counts != num_rows] = 0.0
            scales = np.sqrt(np.bincount(ids, (values - means[ids]) ** 2, size) / divisors)
        if not (np.isfinite(means).all() and np.isfinite(scales).all()):
            name = list(self._ids)[int(np.argmin(np.isfinite(means) & np.isfinite(scales)))]
            raise DivergedError(f"the numbers of the feature {name[2:102]!r} are too large to be scaled; divide them")
        _keep_constant(means, scales)
        return means, scales

    def _scaled_vectors(self, rows: Indices) -> tuple[F64, F64, F64]:
        """Returns vectors, their means and their scales; samples without one have zeros."""
        found = [self._vectors[row] for row in rows.tolist()]
        lengths = {vector.size for vector in found if vector is not None}
        if len(lengths) > 1:
            raise ContextError(f"the vectors have the lengths {sorted(lengths)[:12]}; give vectors of one length")
        if not lengths:
            return np.zeros((rows.size, 0)), np.zeros(0), np.zeros(0)
        is_there = np.array([vector is not None for vector in found])
        known = np.stack([vector for vector in found if vector is not None]).astype(np.float64)
        means, scales = known.mean(axis=0), known.std(axis=0)
        _keep_constant(means, scales)
        vectors = np.zeros((rows.size, known.shape[1]))
        vectors[is_there] = np.clip((known - means) / scales, -MAX_SIZE, MAX_SIZE)
        return vectors, means, scales


def _keep_constant(means: F64, scales: F64) -> None:
    """Sets the scale to 1 where numbers do not vary, but for rounding: dividing by it would make noise of rounding."""
    scales[(scales <= _SAME * np.abs(means)) | (scales < np.finfo(np.float64).tiny)] = 1.0


def _scaled(side: tuple[Indices, F64], means: F64, scales: F64) -> F64:
    ids, values = side
    scaled: F64 = (values - means[ids]) / scales[ids]
    return np.clip(scaled, -MAX_SIZE, MAX_SIZE)
