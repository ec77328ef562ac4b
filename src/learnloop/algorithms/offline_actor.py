"""Offline algorithms with an actor: its policy becomes like the logged actions, more like some than like others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.logged_steps import Minibatch
from learnloop.algorithms.network_policy import NetworkPolicy
from learnloop.algorithms.offline import OfflineAlgorithm, OfflineConfig
from learnloop.algorithms.serving import serving_network
from learnloop.core.spaces import Box, Spaces
from learnloop.core.stepping import Actions, Masks
from learnloop.nn.distributions import Evaluation, make_distribution
from learnloop.nn.mlp import Head
from learnloop.nn.network import Network

Floats = NDArray[np.float32]


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

    def _act(self, observations: Floats, masks: Masks | None) -> Actions:
        outputs = self.actor.predict(observations)
        self._check_outputs(outputs)
        return self.distribution.sample(outputs, self._acting_rng, masks)[0]

    def _evaluate(self, minibatch: Minibatch) -> Evaluation:
        """Returns what the policy says of the logged actions."""
        outputs = self.actor.forward(minibatch.observations)
        return self.distribution.evaluate(outputs, minibatch.actions, minibatch.masks)

    @staticmethod
    def _weighted_loss(evaluation: Evaluation, weights: Floats) -> tuple[float, Floats]:
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
