"""Implicit Q-learning over discrete actions: values of the best logged actions, without asking for any other.

Source: Kostrikov et al. 2021, Offline Reinforcement Learning with Implicit Q-Learning; numbers of equations are its.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from learnloop.algorithms.base.config import Ranges
from learnloop.algorithms.off_policy.twin_critic import critic_loss, least_values
from learnloop.algorithms.offline.actor import ActorCriticConfig, OfflineActorCritic
from learnloop.algorithms.offline.learner import Descent
from learnloop.algorithms.offline.logged_steps import Minibatch
from learnloop.core.arrays import F32
from learnloop.nn.mlp.config import Head
from learnloop.nn.optimizers import Adam


class IQLConfig(ActorCriticConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="iql"):
    """IQL's hyper-parameters, with the paper's values for locomotion, which are d3rlpy's defaults."""

    expectile: float = 0.7
    """Which expectile of the values of logged actions V is: .5 their mean; near 1 the best of them."""
    beta: float = 3.0
    """How much more an action of higher advantage is copied, in 1 / units of rewards; 0: behaviour cloning."""
    max_weight: float = 100.0
    """No action counts more often."""

    ranges: ClassVar[Ranges] = {"expectile": (1e-6, 1 - 1e-6), "beta": (0, 1e6), "max_weight": (1e-6, 1e30)}


class IQL(OfflineActorCritic):
    """IQL over discrete actions, with two critics of which the lower one counts.

    Attributes:
        value: V; of ``networks`` the one from an observation to its value.
    """

    tag = "iql"
    config_type = IQLConfig
    network_names = ("actor", "critic", "value")
    config: IQLConfig

    def _build(self) -> None:
        super()._build()
        heads = [Head(name="value", size=1)]
        self.value = self._build_network("value", heads, "the value of the observation", shared=False)
        self._value_optimizer = self._kept_optimizers["optimizer.value."] = Adam(self.value)

    def _step(self, minibatch: Minibatch, learning_rate: float) -> None:
        """Computes all losses with the networks as they are, and moves them then."""
        critic, rows = self.critic, np.arange(len(minibatch.rows))
        judged = least_values(critic.target.predict(minibatch.observations))[rows, minibatch.actions]
        targets = self._dealt(self._targets(minibatch))
        outputs = self.value.forward(minibatch.observations)
        advantages = judged - outputs[:, 0]
        value_loss, value_gradient = self._value_loss(advantages)
        loss, critic_gradient = critic_loss(
            critic.network.forward(minibatch.observations), minibatch.actions, targets, 1.0
        )
        weights = self._dealt(self._weights(advantages))
        actor_loss, actor_gradient = self._weighted_loss(self._evaluate(minibatch), weights)
        self._descend_all(
            [
                Descent("critic", critic.network, critic.optimizer, critic_gradient, loss),
                Descent("value", self.value, self._value_optimizer, value_gradient, value_loss),
                Descent("actor", self.actor, self._actor_optimizer, actor_gradient, actor_loss),
            ],
            learning_rate,
        )
        critic.move_target()
        self.metrics.add("train/value", float(np.add.reduce(judged)) / len(judged))
        self.metrics.add("train/weight", float(np.add.reduce(weights)) / len(weights))

    def _targets(self, minibatch: Minibatch) -> F32:
        """Returns r + gamma V(s'), shape ``(batch,)``; of a terminated episode r alone (6)."""
        following = self.value.predict(minibatch.next_observations)[:, 0]
        return minibatch.targets(following)

    def _value_loss(self, advantages: F32) -> tuple[float, F32]:
        """Returns E[|expectile - 1(u < 0)| u²] with u = Q' - V, and the gradient with respect to V (5)."""
        size, expectile = len(advantages), self.config.expectile
        weighted = advantages * np.where(advantages < 0, np.float32(1 - expectile), np.float32(expectile))
        gradient = weighted * np.float32(-2 / size)
        return float(weighted @ advantages) / size, gradient[:, None]

    def _weights(self, advantages: F32) -> F32:
        """Returns exp(beta (Q' - V)), at most ``max_weight`` (7)."""
        most = np.float32(math.log(self.config.max_weight))
        weights: F32 = np.exp(np.minimum(advantages * np.float32(self.config.beta), most))
        return weights
