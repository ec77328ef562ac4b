"""Offline algorithms with an actor: its policy becomes like the logged actions, more like some than like others."""

from __future__ import annotations

import numpy as np

from learnloop.algorithms.off_policy.twin_critic import MEANING, TwinCritic, critic_heads
from learnloop.algorithms.offline.learner import OfflineAlgorithm, OfflineConfig
from learnloop.algorithms.offline.logged_steps import Minibatch
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.algorithms.policies.serving import serving_network
from learnloop.core.arrays import F32
from learnloop.core.checks import check_range
from learnloop.core.spaces import Box, Spaces
from learnloop.core.stepping import Actions, Masks
from learnloop.nn.distributions import Categorical, Evaluation, make_distribution
from learnloop.nn.mlp.network import Head
from learnloop.nn.network import Network
from learnloop.nn.optimizers import Adam, Optimizer


class OfflineActor(OfflineAlgorithm):
    """An offline algorithm whose actor gives the parameters of a distribution over actions.

    Attributes:
        actor: its network.
        distribution: the family of distributions.
    """

    def __init__(
        self,
        config: OfflineConfig,
        spaces: Spaces,
        *,
        num_lanes: int = 1,
        seed: int = 0,
        actor: Network | None = None,
    ) -> None:
        super().__init__(config, spaces, num_lanes=num_lanes, seed=seed)
        self.distribution = make_distribution(spaces.action)
        self.actor: Network = self._checked(
            "actor",
            actor or self._build("actor", self._actor_heads()),
            self.distribution.num_parameters,
            "the parameters of the action distribution",
        )

    def _actor_heads(self) -> list[Head]:
        space = self.spaces.action
        if isinstance(space, Box):
            return [Head(name="policy", size=space.size), Head(name="log_std", size=space.size, constant=True)]
        return [Head(name="policy", size=self.distribution.num_parameters)]

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
        return NetworkPolicy(
            self.spaces,
            serving_network(self.actor, ("policy", "log_std")),
            outputs="distribution",
            learned_by=self.tag,
        )


class ActorCriticConfig(OfflineConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the configs of algorithms with an actor and critics share."""

    tau: float = 0.005
    """How far each gradient step moves the target network."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        super().__post_init__()
        check_range("tau", self.tau, 0, 1)


class OfflineActorCritic(OfflineActor):
    """An offline algorithm over discrete actions whose actor follows two critics, of which the lower one counts.

    Attributes:
        critic: Q, its target and its optimiser.
        categorical: the family of distributions of the actor.
    """

    config: ActorCriticConfig

    def __init__(
        self,
        config: ActorCriticConfig,
        spaces: Spaces,
        *,
        num_lanes: int = 1,
        seed: int = 0,
        actor: Network | None = None,
        critic: Network | None = None,
    ) -> None:
        """Builds it.

        Args:
            config: its hyper-parameters.
            spaces: the action space must be discrete.
            num_lanes: how many environments ``choose`` serves.
            seed: of everything random.
            actor: of one's own; None: an MLP. From an observation to the logits of the actions.
            critic: of one's own; None: an MLP. From an observation to two values of each action.

        Raises:
            UsageError: the spaces or the networks do not fit.
        """
        super().__init__(config, spaces, num_lanes=num_lanes, seed=seed, actor=actor)
        n = self._discrete().n
        critic = self._checked("critic", critic or self._build("critic", critic_heads(n)), 2 * n, MEANING)
        self.critic = TwinCritic(critic, n, config.tau)
        self.categorical = Categorical(n)
        self._actor_optimizer = Adam(self.actor)

    def networks(self) -> dict[str, Network]:
        """Returns its networks, under the names of the constructor's arguments."""
        return {"actor": self.actor, "critic": self.critic.network}

    def _optimizers(self) -> dict[str, Optimizer]:
        return {"actor": self._actor_optimizer, "critic": self.critic.optimizer}

    def _kept(self) -> tuple[dict[str, Network], dict[str, Optimizer]]:
        return {**self.networks(), "target": self.critic.target}, self._optimizers()
