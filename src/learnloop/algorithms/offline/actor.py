"""Offline algorithms with an actor: its policy becomes like the logged actions, more like some than like others."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from learnloop.algorithms.base.config import Ranges
from learnloop.algorithms.off_policy.twin_critic import MEANING, TwinCritic, critic_heads
from learnloop.algorithms.offline.learner import OfflineAlgorithm, OfflineConfig
from learnloop.algorithms.offline.logged_steps import Minibatch
from learnloop.algorithms.policies.heads import policy_heads
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.arrays import F32
from learnloop.core.stepping import Actions, Masks
from learnloop.nn.distributions import Categorical, Evaluation, make_distribution
from learnloop.nn.optimizers import Adam


class OfflineActor(OfflineAlgorithm):
    """An offline algorithm whose actor gives the parameters of a distribution over actions.

    Attributes:
        actor: its network.
        distribution: the family of distributions.
    """

    network_names: ClassVar[tuple[str, ...]] = ("actor",)

    def _build(self) -> None:
        super()._build()
        self.distribution = make_distribution(self.spaces.action)
        meaning = "the parameters of the action distribution"
        self.actor = self._build_network("actor", policy_heads(self.spaces.action), meaning, shared=False)

    def _act(self, observations: F32, masks: Masks | None) -> Actions:
        outputs = self.actor.predict(observations)
        self._check_outputs(outputs)
        return self.distribution.sample(outputs, self._acting_rng, masks)[0]

    def _evaluate(self, minibatch: Minibatch) -> Evaluation:
        """Returns what the policy says of the logged actions."""
        outputs = self.actor.forward(minibatch.observations)
        return self.distribution.evaluate(outputs, minibatch.actions, minibatch.masks)

    @staticmethod
    def _weighted_loss(evaluation: Evaluation, weights: F32) -> tuple[float, F32]:
        """Returns minus the mean of weight times log-probability, and its gradient with respect to the outputs."""
        size = len(weights)
        loss = -float(weights @ evaluation.log_probs) / size
        return loss, evaluation.gradient(weights * np.float32(-1 / size), 0.0)

    def policy(self) -> NetworkPolicy:
        """Returns a frozen copy of the policy; greedy, ``sampled`` draws."""
        return self._served(self.actor, ("policy", "log_std"), "distribution")


class ActorCriticConfig(OfflineConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the configs of algorithms with an actor and critics share."""

    tau: float = 0.005
    """How far each gradient step moves the target network."""

    ranges: ClassVar[Ranges] = {"tau": (0, 1)}


class OfflineActorCritic(OfflineActor):
    """An offline algorithm over discrete actions whose actor follows two critics, of which the lower one counts.

    Of ``networks`` the ``actor`` goes from an observation to the logits of the actions, the ``critic`` to two values of
    each action.

    Attributes:
        critic: Q, its target and its optimiser.
        categorical: the family of distributions of the actor.
    """

    config: ActorCriticConfig
    network_names: ClassVar[tuple[str, ...]] = ("actor", "critic")

    def _build(self) -> None:
        super()._build()
        n = self._discrete().n
        network = self._build_network("critic", critic_heads(n), MEANING, shared=False)
        self.critic = TwinCritic(network, self.config.tau)
        self.categorical = Categorical(n)
        self._actor_optimizer = Adam(self.actor)
        self._kept_networks["network.target"] = self.critic.target
        self._kept_optimizers = {"optimizer.actor.": self._actor_optimizer, "optimizer.critic.": self.critic.optimizer}
