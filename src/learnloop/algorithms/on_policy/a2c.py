"""Advantage actor-critic, synchronous.

Source: Mnih et al. 2016, Asynchronous Methods for Deep Reinforcement Learning, supplement, algorithm S3, with all
workers in step.
"""

from __future__ import annotations

import numpy as np

from learnloop.algorithms.base.config import Schedule, value_at
from learnloop.algorithms.on_policy.advantages import standardised
from learnloop.algorithms.on_policy.learner import OnPolicyAlgorithm, OnPolicyConfig
from learnloop.algorithms.on_policy.rollout import Batch
from learnloop.nn.optimizers import Adam, Optimizer, RMSprop


class A2CConfig(OnPolicyConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="a2c"):
    """A2C's hyper-parameters, with Stable-Baselines3's names and defaults."""

    learning_rate: Schedule = 7e-4
    n_steps: int = 5
    gae_lambda: float = 1.0
    normalize_advantage: bool = False
    use_rms_prop: bool = True
    """Whether the optimiser is RMSprop; else Adam."""
    rms_prop_eps: float = 1e-5
    """Keeps RMSprop from dividing by 0."""


class A2C(OnPolicyAlgorithm):
    """A2C: one gradient step on each rollout."""

    tag = "a2c"
    config_type = A2CConfig
    config: A2CConfig

    def _build_optimizer(self) -> Optimizer:
        if self.config.use_rms_prop:
            # As Stable-Baselines3, whose settings the presets are: with epsilon inside of the root, as in the paper,
            # and the mean square begun at 1, LunarLander's learning rate learns nothing in its 200,000 steps.
            return RMSprop(self.network, alpha=0.99, eps=self.config.rms_prop_eps)
        return Adam(self.network, eps=1e-5)

    def _update(self, batch: Batch) -> None:
        """One step along the policy gradient, the gradient of the value's squared error and that of the entropy."""
        config, size = self.config, batch.size
        outputs, evaluation = self._evaluate(batch)
        advantages = batch.advantages
        if config.normalize_advantage and size > 1:
            advantages = standardised(advantages[None])[0]
        if batch.weights is not None:
            advantages = advantages * batch.weights
        errors = outputs[:, -1] - batch.returns
        gradient = np.empty_like(outputs)
        gradient[:, :-1] = evaluation.gradient(advantages * np.float32(-1 / size), -config.ent_coef / size)
        np.multiply(errors, np.float32(2 * config.vf_coef / size), out=gradient[:, -1])
        policy_loss = -float(advantages @ evaluation.log_probs) / size
        value_loss = float(errors @ errors) / size
        entropy = float(evaluation.entropies.sum()) / size
        log_ratios = evaluation.log_probs - batch.log_probs
        loss = policy_loss + config.vf_coef * value_loss - config.ent_coef * entropy
        self._step(gradient, loss, value_at(config.learning_rate, self.progress))
        self.metrics.add("train/policy_loss", policy_loss)
        self.metrics.add("train/value_loss", value_loss)
        self.metrics.add("train/entropy_loss", -entropy)
        self.metrics.add("train/loss", loss)
        self.metrics.add("train/approx_kl", float((np.exp(log_ratios) - 1 - log_ratios).sum()) / size)
