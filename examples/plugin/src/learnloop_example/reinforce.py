"""An algorithm: REINFORCE with a learned baseline.

Source: Williams 1992, Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning,
equation 4, with the value network as reinforcement baseline.
"""

from __future__ import annotations

import numpy as np

from learnloop.algorithms import Batch, OnPolicyAlgorithm, OnPolicyConfig
from learnloop.algorithms.base.config import Schedule, value_at
from learnloop.nn.optimizers import Adam, Optimizer


class ReinforceConfig(OnPolicyConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="reinforce"):
    """Its hyper-parameters; all others are those of PPO and A2C."""

    learning_rate: Schedule = 3e-3
    n_steps: int = 64
    gae_lambda: float = 1.0
    """1: returns are followed to the end of the rollout, and only what comes after it is estimated."""


class Reinforce(OnPolicyAlgorithm):
    """REINFORCE with a learned baseline: one step along the policy gradient for each rollout."""

    tag = "reinforce"
    config_type = ReinforceConfig
    config: ReinforceConfig

    def _build_optimizer(self) -> Optimizer:
        return Adam(self.network)

    def _update(self, batch: Batch) -> None:
        """Takes one step: the loss is written as its gradient with respect to the network's outputs."""
        size = batch.size
        outputs, evaluation = self._evaluate(batch)
        advantages = batch.advantages if batch.weights is None else batch.advantages * batch.weights
        errors = outputs[:, -1] - batch.returns
        gradient = np.empty_like(outputs)
        gradient[:, :-1] = evaluation.gradient(advantages * np.float32(-1 / size), -self.config.ent_coef / size)
        gradient[:, -1] = errors * np.float32(2 * self.config.vf_coef / size)
        policy_loss = -float(advantages @ evaluation.log_probs) / size
        entropy = float(evaluation.entropies.sum()) / size
        loss = policy_loss + self.config.vf_coef * float(errors @ errors) / size - self.config.ent_coef * entropy
        self._step(gradient, loss, value_at(self.config.learning_rate, self.progress))
        self.metrics.add("train/policy_loss", policy_loss)
        self.metrics.add("train/entropy_loss", -entropy)
