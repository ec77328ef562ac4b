"""Proximal policy optimisation.

Source: Schulman et al. 2017, Proximal Policy Optimization Algorithms; the details that matter are those of Huang et al.
2022, The 37 Implementation Details of Proximal Policy Optimization.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np

from learnloop.algorithms.base.config import Ranges, Schedule, value_at
from learnloop.algorithms.on_policy.advantages import standardised
from learnloop.algorithms.on_policy.learner import OnPolicyAlgorithm, OnPolicyConfig
from learnloop.algorithms.on_policy.rollout import Batch
from learnloop.core.arrays import F32
from learnloop.core.errors import UsageError

SHUFFLED_BYTES = 1 << 20
"""A rollout with larger observations is not shuffled as a whole; each minibatch is gathered when its turn comes."""


class PPOConfig(OnPolicyConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ppo"):
    """PPO's hyper-parameters, with Stable-Baselines3's names and defaults."""

    batch_size: int = 64
    """Transitions of one gradient step; the last one of an epoch may have fewer."""
    n_epochs: int = 10
    """How often each rollout is gone through."""
    clip_range: Schedule = 0.2
    """How far the probability of an action may move from where it was; a schedule over the training."""
    clip_range_vf: Schedule | None = None
    """How far a value may move from where it was; None: as far as it likes. It depends on the scale of rewards."""
    target_kl: float | None = None
    """An update ends early once the policy moved 1.5 times this far; None: never."""

    ranges: ClassVar[Ranges] = {
        "batch_size": (1, None),
        "n_epochs": (1, None),
        "clip_range": (0, 10),
        "clip_range_vf": (0, None),
        "target_kl": (1e-9, 1e6),
    }

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        super().__post_init__()
        if self.normalize_advantage and self.batch_size == 1:
            raise UsageError("batch_size is 1 and normalize_advantage is True: one advantage cannot be normalised")


class _Terms(NamedTuple):
    """What losses need of transitions and no gradient step changes; arrays have the shape ``(batch,)``."""

    advantages: F32
    """Normalised and weighted."""
    signs: F32
    """1 where the advantage is above 0, else -1."""
    signed_bounds: F32
    """The side of the clip range at which the ratio stops to gain, times the sign."""
    bounded: F32
    """What the surrogate is there: the advantage times the bound."""

    def rows(self, rows: slice) -> _Terms:
        """Returns those of some of the transitions."""
        return _Terms(self.advantages[rows], self.signs[rows], self.signed_bounds[rows], self.bounded[rows])


class _Minibatch(NamedTuple):
    """Transitions of one gradient step."""

    batch: Batch
    clip_range: float
    terms: _Terms


class PPO(OnPolicyAlgorithm):
    """PPO with a clipped surrogate objective, over vector environments or live episodes."""

    tag = "ppo"
    config_type = PPOConfig
    config: PPOConfig
    _whole: _Minibatch | None = None

    def _build(self) -> None:
        super()._build()
        config = self.config
        size = config.n_steps * self.num_envs
        if config.batch_size > size:
            raise UsageError(
                f"batch_size is {config.batch_size}, more than the {size} transitions of a rollout (n_steps "
                f"{config.n_steps} x {self.num_envs} envs); lower it, or raise n_steps"
            )

    def _update(self, batch: Batch) -> None:
        """Section 3, algorithm 1: some epochs of gradient steps on minibatches."""
        config = self.config
        learning_rate = value_at(config.learning_rate, self.progress)
        clip_range = value_at(config.clip_range, self.progress)
        clip_range_vf = None if config.clip_range_vf is None else value_at(config.clip_range_vf, self.progress)
        self.metrics.set("train/clip_range", clip_range)
        self._whole = None
        for _ in range(config.n_epochs):
            for minibatch in self.minibatches(batch, clip_range):
                gradient, loss, kl = self._loss(minibatch, clip_range_vf)
                if config.target_kl is not None and kl > 1.5 * config.target_kl:
                    return
                self._step(gradient, loss, learning_rate)

    def minibatches(self, batch: Batch, clip_range: float) -> Iterator[_Minibatch]:
        """Yields ``batch`` in random parts; the whole of it, in its order, where it is one part anyhow."""
        size = self.config.batch_size
        if batch.size <= size:
            if self._whole is None or self._whole.batch is not batch:
                terms = self._terms(batch.advantages, batch.weights, clip_range, [0])
                self._whole = _Minibatch(batch, clip_range, terms)
            yield self._whole
            return
        order = self._rng.permutation(batch.size)
        starts = list(range(0, batch.size, size))
        if batch.size - starts[-1] == 1 and self.config.normalize_advantage:  # one advantage cannot be normalised
            starts.pop()
        is_wide = batch.observations.nbytes > SHUFFLED_BYTES
        shuffled = batch if is_wide else batch.rows(order)
        weights = None if batch.weights is None else batch.weights[order]
        terms = self._terms(batch.advantages[order], weights, clip_range, starts)
        for start, end in zip(starts, [*starts[1:], batch.size], strict=True):
            rows = slice(start, end)
            # What is gathered in its turn comes into the cache with it.
            part = batch.rows(order[rows]) if is_wide else shuffled.rows(rows)
            yield _Minibatch(part, clip_range, terms.rows(rows))

    def _terms(self, advantages: F32, weights: F32 | None, clip_range: float, starts: list[int]) -> _Terms:
        """Returns the terms of all minibatches of an epoch, which begin at ``starts``."""
        if self.config.normalize_advantage and len(advantages) > 1:
            advantages = _normalised(advantages, starts)
        if weights is not None:
            advantages = advantages * weights
        gains = advantages > 0
        bounds = np.where(gains, np.float32(1 + clip_range), np.float32(1 - clip_range))
        signs = np.where(gains, np.float32(1), np.float32(-1))
        return _Terms(advantages, signs, signs * bounds, advantages * bounds)

    def _loss(self, minibatch: _Minibatch, clip_range_vf: float | None) -> tuple[F32, float, float]:
        """Returns the gradient of the loss with respect to the outputs, the loss, and how far the policy moved.

        Equation 9: the clipped surrogate of equation 7, the squared error of the value, and the entropy.
        """
        config, batch, terms, size = self.config, minibatch.batch, minibatch.terms, minibatch.batch.size
        outputs, evaluation = self._evaluate(batch)
        log_ratios = evaluation.log_probs - batch.log_probs
        ratios = np.exp(log_ratios)
        # The smaller of r A and clip(r) A: the ratio counts unless it has left the range on the side where it gains.
        counts = np.less_equal(terms.signs * ratios, terms.signed_bounds).astype(np.float32)
        pull = terms.advantages * ratios
        pull *= counts
        surrogate = float(pull.sum()) + float(terms.bounded.sum()) - float(terms.bounded @ counts)
        pull *= np.float32(-1 / size)
        gradient = np.empty_like(outputs)
        gradient[:, :-1] = evaluation.gradient(pull, -config.ent_coef / size)
        value_loss = self._value_loss(outputs[:, -1], batch, clip_range_vf, gradient[:, -1])
        policy_loss = -surrogate / size
        entropy = float(evaluation.entropies.sum()) / size
        total = float(ratios.sum())
        kl = (total - float(log_ratios.sum())) / size - 1
        loss = policy_loss + config.vf_coef * value_loss - config.ent_coef * entropy
        self._note(policy_loss, value_loss, entropy, loss)
        ratios_left = np.count_nonzero(np.abs(ratios - np.float32(1)) > minibatch.clip_range)
        self.metrics.add("train/approx_kl", kl)
        self.metrics.add("train/clip_fraction", ratios_left / size)
        self.metrics.add("train/weight_ratio_ess", total * total / (size * float(ratios @ ratios)))
        return gradient, loss, kl

    def _value_loss(self, values: F32, batch: Batch, clip_range: float | None, gradient: F32) -> float:
        """Returns the mean squared error of the values and writes the weighted gradient with respect to them."""
        errors = values - batch.returns
        if clip_range is None:
            np.multiply(errors, np.float32(2 * self.config.vf_coef / batch.size), out=gradient)
            return float(errors @ errors) / batch.size
        moves = values - batch.values
        errors = batch.values + np.clip(moves, -np.float32(clip_range), np.float32(clip_range)) - batch.returns
        free = np.abs(moves) <= clip_range
        np.multiply(errors * free, np.float32(2 * self.config.vf_coef / batch.size), out=gradient)
        return float(errors @ errors) / batch.size

    def _note(self, policy_loss: float, value_loss: float, entropy: float, loss: float) -> None:
        self.metrics.add("train/policy_gradient_loss", policy_loss)
        self.metrics.add("train/value_loss", value_loss)
        self.metrics.add("train/entropy_loss", -entropy)
        self.metrics.add("train/loss", loss)


def _normalised(advantages: F32, starts: list[int]) -> F32:
    """Returns ``advantages`` with mean 0 and sample standard deviation 1 in each minibatch, shape ``(batch,)``.

    Minibatches begin at ``starts``; all but the last are of one size.
    """
    last = starts[-1]
    parts = [advantages[None, last:]]
    if last:
        parts.insert(0, advantages[:last].reshape(len(starts) - 1, -1))
    return np.concatenate([standardised(part).ravel() for part in parts])
