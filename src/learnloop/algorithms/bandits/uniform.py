"""The random policy: the floor that every other one has to beat. It records and never learns."""

from __future__ import annotations

import numpy as np

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.base.config import AlgorithmConfig
from learnloop.algorithms.live.episodes import Chosen, LiveStep
from learnloop.algorithms.policies.heads import UniformHead
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.arrays import F32
from learnloop.core.stepping import Actions, EnvStep, Masks


class RandomConfig(AlgorithmConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="random"):
    """The random policy has nothing to set; the network and its optimiser are not used."""


class Random(Algorithm):
    """Draws each allowed action with the same probability."""

    tag = "random"
    config_type = RandomConfig
    config: RandomConfig

    def _build(self) -> None:
        self._head = UniformHead(self.spaces.action)

    def choose(self, observations: F32, masks: Masks | None = None) -> Actions:
        """Returns a draw for each env."""
        return self._choose(observations, masks).actions

    def _choose(self, observations: F32, masks: Masks | None) -> Chosen:
        return Chosen(self._head.choose(observations, masks, self._rng))

    def record(self, step: EnvStep) -> None:
        """Counts the steps."""
        self.num_steps += self.num_envs if step.valid is None else int(np.count_nonzero(step.valid))

    def learn(self) -> bool:
        """Returns False: there is nothing to learn."""
        return False

    def interrupt(self) -> None:
        """Does nothing: no episode is remembered."""

    def _record_live(self, episode: str, step: LiveStep) -> None:
        self.num_steps += 1

    def _discard_live(self, episode: str) -> None:
        """Does nothing: no episode is remembered."""

    def policy(self) -> NetworkPolicy:
        """Returns the policy, with a stream of draws of its own."""
        return NetworkPolicy(self.spaces, None, outputs="uniform", learned_by=self.tag, seed=self.seed)
