"""Trains joint policies from logged decisions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learnloop.algorithms.base.samples import checked_rewards
from learnloop.algorithms.hashed.config import HashedConfig
from learnloop.algorithms.hashed.encoder import HashedEncoder
from learnloop.algorithms.hashed.model import learn_weights
from learnloop.algorithms.hashed.policy import HashedArrays, HashedPolicy, HashedRecord, untrained
from learnloop.core.arrays import F64
from learnloop.core.errors import DivergedError, UsageError
from learnloop.core.protocols import Sample
from learnloop.core.seeding import generator

MAX_WEIGHT = 20.0
"""1 / propensity counts at most this much."""


class HashedTrainer:
    """Core's ``Trainer``: the same samples, in the same order, and the same seed give the same policy.

    It remembers the samples' contexts by identity, so that training on them again, with other rewards say, is fast:
    they must not be changed. Not safe to use from several threads at once.

    Attributes:
        diagnostics: figures of the last training: ``train/loss`` (half the mean squared error of the last pass, for
            rewards of variance 1), ``train/num_features`` (weights in use), ``train/num_samples``,
            ``train/effective_sample_size`` and ``train/num_clipped`` (samples of a propensity below 1 / 20).
    """

    def __init__(self, config: HashedConfig | None = None) -> None:
        """Keeps ``config``; None: the defaults."""
        self.config = config or HashedConfig()
        self.diagnostics: dict[str, float] = {}
        self._encoder = HashedEncoder(self.config)

    def train(self, samples: Sequence[Sample], seed: int) -> HashedPolicy:
        """Returns the policy learned from ``samples``, of which the last is the newest.

        A sample weighs 1 / propensity, at most 20 (1 where it is not known), and half as much each ``half_life``
        samples further in the past.

        Source: Bietti, Agarwal & Langford 2021, A Contextual Bandit Bake-off, section 2.3 (importance weighted
        regression).

        Raises:
            RewardError: a reward is missing or not finite.
            UsageError: a propensity is not above 0 and at most 1, or the contexts or actions cannot be read.
            DivergedError: learning met a number that is not finite.
        """
        self.diagnostics = {"train/num_samples": float(len(samples))}
        if not samples:
            return untrained(self.config)
        rewards = checked_rewards(samples)
        inverse = 1.0 / _propensities(samples)
        sizes = np.minimum(inverse, MAX_WEIGHT)
        if self.config.half_life is not None:
            sizes *= 0.5 ** (np.arange(len(samples) - 1, -1, -1) / self.config.half_life)
        sizes /= sizes.mean()
        offset, scale = _standard(rewards, sizes)
        read = self._encoder.encode(samples)
        rng = generator(seed, "joint")
        learned = learn_weights(read.encoded, (rewards - offset) / scale, sizes, self.config, rng)
        self.diagnostics |= {
            "train/loss": learned.loss,
            "train/num_features": float(learned.num_used),
            "train/effective_sample_size": float(np.sum(sizes) ** 2 / np.sum(sizes**2)),
            "train/num_clipped": float(np.sum(inverse > MAX_WEIGHT)),
        }
        record = HashedRecord(
            joint=self.config,
            num_updates=len(samples),
            reward_offset=offset,
            reward_scale=scale,
            numbers=read.names,
        )
        vectors = read.vector_means, read.vector_scales, learned.vectors
        return HashedPolicy(record, HashedArrays(learned.pairs, read.means, read.scales, *vectors))


def _propensities(samples: Sequence[Sample]) -> F64:
    values: F64 = np.array([1.0 if sample.propensity is None else sample.propensity for sample in samples])
    num_bad = int(np.sum(~((values > 0) & (values <= 1))))
    if num_bad:
        raise UsageError(f"{num_bad} of {len(samples)} propensities are not above 0 and at most 1")
    floored: F64 = np.maximum(values, np.finfo(np.float64).tiny)  # its inverse is finite
    return floored


def _standard(rewards: F64, sizes: F64) -> tuple[float, float]:
    """Returns the weighted mean and standard deviation of ``rewards``; 1 for the latter where all are equal."""
    low, high = float(rewards.min()), float(rewards.max())
    if low == high:
        return low, 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        offset = float(np.average(rewards, weights=sizes))
        scale = float(np.sqrt(np.average((rewards - offset) ** 2, weights=sizes)))
    if not (np.isfinite(offset) and np.isfinite(scale)):
        raise DivergedError(f"rewards from {low} to {high} are too far apart to be scaled; divide them")
    return offset, scale if scale > 0 else 1.0
