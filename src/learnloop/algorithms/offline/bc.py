"""Behaviour cloning: the policy under which the logged actions are most likely. It looks at no reward.

Source: Pomerleau 1991, Efficient Training of Artificial Neural Networks for Autonomous Navigation; as maximum
likelihood of the policies that PPO and A2C have.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from learnloop.algorithms.base.config import Ranges, Schedule
from learnloop.algorithms.base.dealing import deal
from learnloop.algorithms.offline.actor import OfflineActor
from learnloop.algorithms.offline.learner import Descent, OfflineConfig
from learnloop.algorithms.offline.logged_steps import Minibatch
from learnloop.core.arrays import F32
from learnloop.nn.distributions import Evaluation
from learnloop.nn.optimizers import AdamW


class BCConfig(OfflineConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="bc"):
    """Behaviour cloning's hyper-parameters; ``gamma`` has no meaning, as it looks at no reward."""

    learning_rate: Schedule = 1e-3
    ent_coef: float = 0.0
    """The weight of the policy's entropy: how much a random policy is preferred."""
    weight_decay: float = 0.0
    """AdamW's: by which share, times the learning rate, parameters shrink in each step."""

    ranges: ClassVar[Ranges] = {"ent_coef": (0, 1e6), "weight_decay": (0, 1e3)}


class BC(OfflineActor):
    """Behaviour cloning over discrete, multi-discrete and continuous actions.

    It learns nothing from rewards. The shuffled control copies actions, with their masks, that were taken on other
    observations.
    """

    tag = "bc"
    config_type = BCConfig
    config: BCConfig
    compares = False

    def _build(self) -> None:
        super()._build()
        self._optimizer = AdamW(self.actor, weight_decay=self.config.weight_decay)
        self._kept_optimizers = {"optimizer.actor.": self._optimizer}

    def _step(self, minibatch: Minibatch, learning_rate: float) -> None:
        if self.shuffled:
            minibatch = minibatch._replace(observations=deal(minibatch.observations, self._rng))
        evaluation = self._evaluate(minibatch)
        loss, gradient = self._loss(evaluation)
        self._descend_all([Descent("", self.actor, self._optimizer, gradient, loss)], learning_rate)

    def _loss(self, evaluation: Evaluation) -> tuple[float, F32]:
        """Returns minus the mean log-probability of the actions, less the entropy's part, and the gradient."""
        size, ent_coef = len(evaluation.log_probs), self.config.ent_coef
        log_prob = float(np.add.reduce(evaluation.log_probs)) / size
        entropy = float(np.add.reduce(evaluation.entropies)) / size
        self.metrics.add("train/log_prob", log_prob)
        self.metrics.add("train/entropy_loss", -entropy)
        return -log_prob - ent_coef * entropy, evaluation.gradient(-1 / size, -ent_coef / size)
