"""Advantage-weighted actor-critic over discrete actions, on logged data alone.

Source: Nair et al. 2020, AWAC: Accelerating Online Reinforcement Learning with Offline Datasets, section 4 and
algorithm 1. Expectations over actions are computed, not drawn.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from learnloop.algorithms.base.config import Ranges
from learnloop.algorithms.off_policy.twin_critic import critic_loss, least_values
from learnloop.algorithms.offline.actor import ActorCriticConfig, OfflineActorCritic
from learnloop.algorithms.offline.learner import Descent
from learnloop.algorithms.offline.logged_steps import Minibatch
from learnloop.core.arrays import F32
from learnloop.core.stepping import Masks


class AWACConfig(ActorCriticConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="awac"):
    """AWAC's hyper-parameters, with the paper's values, which are d3rlpy's defaults."""

    batch_size: int = 1024
    lam: float = 1.0
    """The paper's lambda, in units of rewards: advantages count divided by it. Large: behaviour cloning."""
    max_weight: float = 100.0
    """No action counts more often than so many average ones."""

    ranges: ClassVar[Ranges] = {"lam": (1e-6, 1e6), "max_weight": (1, 1e30)}


class AWAC(OfflineActorCritic):
    """AWAC over discrete actions, with two critics of which the lower one counts."""

    tag = "awac"
    config_type = AWACConfig
    config: AWACConfig

    def _step(self, minibatch: Minibatch, learning_rate: float) -> None:
        """Computes both losses with the networks as they are, and moves them then."""
        critic = self.critic
        targets = self._dealt(self._targets(minibatch))
        judged = critic.network.forward(minibatch.observations)
        loss, critic_gradient = critic_loss(judged, minibatch.actions, targets, 1.0)
        logits = self.actor.forward(minibatch.observations)
        advantages = self._advantages(least_values(judged), logits, minibatch)
        weights = self._dealt(self._weights(advantages))
        evaluation = self.distribution.evaluate(logits, minibatch.actions, minibatch.masks)
        actor_loss, actor_gradient = self._weighted_loss(evaluation, weights)
        self._descend_all(
            [
                Descent("critic", critic.network, critic.optimizer, critic_gradient, loss),
                Descent("actor", self.actor, self._actor_optimizer, actor_gradient, actor_loss),
            ],
            learning_rate,
        )
        critic.move_target()
        total = float(np.add.reduce(weights))
        self.metrics.add("train/value", float(np.mean(targets)))
        self.metrics.add("train/weight_ess", total * total / (len(weights) * float(weights @ weights)))

    def _targets(self, minibatch: Minibatch) -> F32:
        """Returns r + gamma E_pi Q'(s', a), shape ``(batch,)``; of a terminated episode r alone."""
        following = minibatch.next_observations
        judged = least_values(self.critic.target.predict(following))
        means = self._means(judged, self.actor.predict(following), minibatch.next_masks)
        return minibatch.targets(means)

    def _means(self, values: F32, logits: F32, masks: Masks | None) -> F32:
        """Returns the mean of ``values`` over the policy's actions, shape ``(batch,)``."""
        means: F32 = np.add.reduce(values * self.categorical.probabilities(logits, masks), axis=1)
        return means

    def _advantages(self, values: F32, logits: F32, minibatch: Minibatch) -> F32:
        """Returns A(s, a) = Q(s, a) - E_pi Q(s, .) of the logged actions, shape ``(batch,)``."""
        chosen: F32 = values[np.arange(len(values)), minibatch.actions]
        return chosen - self._means(values, logits, minibatch.masks)

    def _weights(self, advantages: F32) -> F32:
        """Returns exp(A / lambda) divided by its mean over the minibatch, at most ``max_weight``."""
        scaled = advantages * np.float32(1 / self.config.lam)
        weights: F32 = np.exp(scaled - scaled.max())
        weights *= np.float32(len(weights)) / np.add.reduce(weights)
        return np.minimum(weights, np.float32(self.config.max_weight))
