"""Least squares on hashed pairs of features: how the weights of a joint policy are learned."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learnloop.algorithms.hashed.config import HashedConfig
from learnloop.algorithms.hashed.features import CONSTANT, pair_indices
from learnloop.core.arrays import F64, U64, Indices
from learnloop.core.errors import DivergedError

_MAX_EXPANDED = 2**23  # pairs of all samples that are kept; more are made for each minibatch
_STEPS_PER_PASS = 64  # smaller minibatches learn more from few samples, larger ones are faster
_MIN_BATCH, _MAX_BATCH = 8, 256
_TINY = 1e-12


class Encoded(NamedTuple):
    """Samples as arrays: the context and the action that was taken. Rows are padded with values of 0."""

    context_hashes: U64
    """Shape ``(num_samples, width)``; the first column is the constant."""
    context_values: F64
    action_hashes: U64
    """Shape ``(num_samples, another width)``; the first column is the constant."""
    action_values: F64
    blocks: Indices
    """Where the action's weights of the vector begin, shape ``(num_samples,)``."""
    vectors: F64
    """Shape ``(num_samples, n)``; rows of 0 where there is none; n is 0 where no sample has one."""


class Weights(NamedTuple):
    """What was learned."""

    pairs: F64
    """Shape ``(2**num_bits,)``."""
    vectors: F64
    """Shape ``(2**num_bits + n,)``; empty without vectors."""
    loss: float
    """Half the mean weighted square of the last pass's errors, for rewards of variance 1."""
    num_used: int
    """How many of the weights have features."""


class _Pairs:
    """The pairs of features of each sample; weights that no sample uses are left out of the arithmetic."""

    def __init__(self, encoded: Encoded, config: HashedConfig) -> None:
        self._encoded = encoded
        self._config = config
        width, other = encoded.context_values.shape[1], encoded.action_values.shape[1]
        self.width = width * other if config.interactions else width + other - 1
        num_rows = len(encoded.blocks)
        step = max(1, min(num_rows, _MAX_EXPANDED // self.width))
        is_used = np.zeros(2**config.num_bits, dtype=np.bool_)
        whole = None
        for first in range(0, num_rows, step):
            whole = self._expand(np.arange(first, min(first + step, num_rows)))
            is_used[whole[0][whole[1] != 0]] = True
        is_used[0] = True  # padding and values of 0 have to point at something
        self.used = np.flatnonzero(is_used)
        self._compact = np.where(is_used, np.cumsum(is_used) - 1, 0)
        self._whole = None
        if whole is not None and step >= num_rows:
            self._whole = self._compact[whole[0]], whole[1]

    def of(self, rows: Indices) -> tuple[Indices, F64]:
        """Returns indices into ``used`` and values of the pairs, each of shape ``(len(rows), width)``."""
        if self._whole is not None:
            return self._whole[0][rows], self._whole[1][rows]
        indices, values = self._expand(rows)
        return self._compact[indices], values

    def _expand(self, rows: Indices) -> tuple[Indices, F64]:
        encoded, bits = self._encoded, self._config.num_bits
        contexts, actions = encoded.context_hashes[rows], encoded.action_hashes[rows]
        sizes, others = encoded.context_values[rows], encoded.action_values[rows]
        if not self._config.interactions:
            constant = np.full(1, CONSTANT, dtype=np.uint64)
            indices = [pair_indices(contexts[:, 1:], constant, bits), pair_indices(constant, actions, bits)]
            return np.hstack(indices), np.hstack([sizes[:, 1:], others])
        if self.width * len(self._encoded.blocks) > _MAX_EXPANDED:  # a long sample makes its own minibatch long alone
            width, other = (int(np.flatnonzero((each != 0).any(axis=0))[-1]) + 1 for each in (sizes, others))
            contexts, sizes, actions, others = (
                contexts[:, :width],
                sizes[:, :width],
                actions[:, :other],
                others[:, :other],
            )
        shape = (len(rows), sizes.shape[1] * others.shape[1])
        pairs = pair_indices(contexts[:, :, None], actions[:, None, :], bits)
        return pairs.reshape(shape), (sizes[:, :, None] * others[:, None, :]).reshape(shape)


class _Learner:
    """The weights while they are learned, and the squares of their gradients."""

    def __init__(self, encoded: Encoded, config: HashedConfig) -> None:
        self._pairs = _Pairs(encoded, config)
        self.width = self._pairs.width
        self._vectors = encoded.vectors
        self._blocks = encoded.blocks
        self._l2 = config.l2_weight
        self._size = encoded.vectors.shape[1]
        num_used, num_dense = self._pairs.used.size, 2**config.num_bits + self._size if self._size else 0
        self._weights = np.zeros(num_used)
        self._squares = np.full(num_used, _TINY)
        self._sum = np.zeros(num_used)
        self._dense = np.zeros(num_dense)
        self._dense_squares = np.full(num_dense, _TINY)
        self._dense_sum = np.zeros(num_dense)
        self._num_summed = 0
        self._rate = config.learning_rate / np.sqrt(max(1.0, self._squared_norm(len(encoded.blocks))))

    def _squared_norm(self, num_rows: int) -> float:
        """Returns the mean squared length of a sample's features, over some of them."""
        most = max(1, min(1_000, _MAX_EXPANDED // self.width))
        rows = np.arange(0, num_rows, -(-num_rows // most))
        values = self._pairs.of(rows)[1]
        return float((np.sum(values**2) + np.sum(self._vectors[rows] ** 2)) / rows.size)

    def step(self, rows: Indices, targets: F64, sizes: F64) -> float:
        """Learns one minibatch; returns half its mean weighted squared error before that.

        Steps are divided by the root of the sum of squared gradients, and by that of the features' squared length.

        Source: Duchi, Hazan & Singer 2011, Adaptive Subgradient Methods, figure 1; Ross, Mineiro & Langford 2013,
        Normalized Online Learning, algorithm 3.
        """
        indices, values = self._pairs.of(rows)
        errors = np.einsum("rw,rw->r", self._weights[indices], values) - targets
        groups = self._groups(rows) if self._size else []
        for first, members in groups:
            errors[members] += self._vectors[rows[members]] @ self._dense[first : first + self._size]
        weighted = errors * sizes / rows.size
        slopes = np.bincount(indices.ravel(), (values * weighted[:, None]).ravel(), self._weights.size)
        gradient: F64 = slopes + self._l2 * self._weights
        self._squares += gradient**2
        self._weights -= self._rate * gradient / np.sqrt(self._squares)
        for first, members in groups:
            block = slice(first, first + self._size)
            share = self._l2 * members.size / rows.size
            slope = weighted[members] @ self._vectors[rows[members]] + share * self._dense[block]
            self._dense_squares[block] += slope**2
            self._dense[block] -= self._rate * slope / np.sqrt(self._dense_squares[block])
        return 0.5 * float(weighted @ errors)

    def keep(self) -> None:
        """Adds the weights to what ``averaged`` returns the mean of."""
        self._num_summed += 1
        self._sum += self._weights
        self._dense_sum += self._dense

    def averaged(self, num_bits: int, loss: float) -> Weights:
        """Returns the mean of the weights that were kept.

        Source: Polyak & Juditsky 1992, Acceleration of Stochastic Approximation by Averaging.
        """
        pairs = np.zeros(2**num_bits)
        pairs[self._pairs.used] = self._sum / self._num_summed
        return Weights(pairs, self._dense_sum / self._num_summed, loss, self._pairs.used.size)

    def _groups(self, rows: Indices) -> list[tuple[int, Indices]]:
        """Returns where in the minibatch each action was taken, by where its weights begin."""
        blocks = self._blocks[rows]
        order = np.argsort(blocks, kind="stable")
        firsts, starts = np.unique(blocks[order], return_index=True)
        return list(zip(firsts.tolist(), np.split(order, starts[1:]), strict=True))


def learn_weights(
    encoded: Encoded, targets: F64, sizes: F64, config: HashedConfig, rng: np.random.Generator
) -> Weights:
    """Returns the weights that predict ``targets`` best, in ``config.num_passes`` shuffled passes.

    They are the mean of those after each step of the second half of the passes.

    Args:
        encoded: the samples, at least one.
        targets: rewards of mean 0 and variance 1, shape ``(num_samples,)``.
        sizes: the samples' weights, of mean 1, shape ``(num_samples,)``.
        config: how to learn.
        rng: for the order of the samples.

    Raises:
        DivergedError: a weight or the loss is not finite.
    """
    num_rows = targets.size
    batch = min(_MAX_BATCH, max(_MIN_BATCH, num_rows // _STEPS_PER_PASS))
    learner = _Learner(encoded, config)
    batch = max(1, min(batch, _MAX_EXPANDED // learner.width))
    loss = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for number in range(config.num_passes):
            order = rng.permutation(num_rows)
            loss = 0.0
            for first in range(0, num_rows, batch):
                rows = order[first : first + batch]
                loss += learner.step(rows, targets[rows], sizes[rows]) * rows.size / num_rows
                if 2 * number >= config.num_passes - 1:
                    learner.keep()
            if not np.isfinite(loss):
                raise DivergedError(
                    f"the loss of pass {number} is {loss}; lower learning_rate ({config.learning_rate})"
                )
    learned = learner.averaged(config.num_bits, loss)
    if not (np.isfinite(learned.pairs).all() and np.isfinite(learned.vectors).all()):
        raise DivergedError(f"a weight is not finite; lower learning_rate ({config.learning_rate})")
    return learned
