"""Conservative Q-learning over discrete actions: double DQN on logged data, with low values for what was not logged.

Source: Kumar et al. 2020, Conservative Q-Learning for Offline Reinforcement Learning; numbers of equations are its.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from learnloop.algorithms.base.config import Ranges, Schedule
from learnloop.algorithms.off_policy.learner import TargetUpdate
from learnloop.algorithms.offline.learner import Descent, OfflineAlgorithm, OfflineConfig
from learnloop.algorithms.offline.logged_steps import LoggedSteps, Minibatch
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.arrays import F32
from learnloop.core.stepping import Actions, Masks
from learnloop.nn.distributions import Categorical
from learnloop.nn.mlp.config import Head
from learnloop.nn.optimizers import Adam

TARGET_ROWS = 512
"""So many go through the target network at once: what its layers give must stay in the cache."""


class CQLConfig(OfflineConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="cql"):
    """CQL's hyper-parameters, for vectors of numbers. ``alpha`` is d3rlpy's.

    Its learning rate (6.25e-5), batch (32) and interval (8,000) are for Atari and millions of gradient steps.
    """

    learning_rate: Schedule = 3e-4
    alpha: float = 1.0
    """How much values of actions that were not logged are pushed down; 0: double DQN. It weighs against errors in the
    units of rewards."""
    target_update_interval: int = 200
    """Gradient steps between updates of the target network."""
    tau: float = 1.0
    """How far an update moves it; 1: it becomes a copy."""

    ranges: ClassVar[Ranges] = {"alpha": (0, 1e6), "target_update_interval": (1, None), "tau": (0, 1)}


class CQL(OfflineAlgorithm):
    """CQL(H) over discrete actions. Its policy takes the action of the highest value; there is nothing to draw.

    Attributes:
        network: gives the value of each action.
        target: its slow copy.
    """

    tag = "cql"
    config_type = CQLConfig
    network_names = ("network",)
    config: CQLConfig

    def _build(self) -> None:
        super()._build()
        self._n = self._discrete().n
        heads = [Head(name="value", size=self._n)]
        self.network = self._build_network("network", heads, "the value of each action", shared=False)
        self.target = self._kept_networks["network.target"] = self.network.copy()
        self._distribution = Categorical(self._n)
        self._optimizer = self._kept_optimizers["optimizer.network."] = Adam(self.network)
        self._mover = TargetUpdate(self.network, self.target)
        self._judged: F32 | None = None
        """What the target network says of all ``next_observations`` of the data set; None: not computed."""

    def _act(self, observations: F32, masks: Masks | None) -> Actions:
        outputs = self.network.predict(observations)
        self._check_outputs(outputs)
        return self._distribution.mode(outputs, masks)

    def action_values(self, observations: F32) -> F32:
        """Returns Q of each action for encoded observations, shape ``(batch, n)``."""
        return self.network.predict(observations).copy()

    # Learning ----------------------------------------------------------------------------------------------------

    def _step(self, minibatch: Minibatch, learning_rate: float) -> None:
        targets = self._dealt(self._targets(minibatch))
        loss, gradient = self._loss(minibatch, targets)
        self._descend_all([Descent("", self.network, self._optimizer, gradient, loss)], learning_rate)
        if (self.num_updates + 1) % self.config.target_update_interval == 0:
            self._mover.move(self.config.tau)
            self._judged = None

    def _targets(self, minibatch: Minibatch) -> F32:
        """Returns r + gamma Q'(s', argmax Q(s', .)), shape ``(batch,)``; of a terminated episode r alone.

        Source: van Hasselt et al. 2016, Deep Reinforcement Learning with Double Q-learning, equation 4.
        """
        best = self._distribution.mode(self.network.predict(minibatch.next_observations), minibatch.next_masks)
        worth = self._following(minibatch)[np.arange(len(best)), best]
        return minibatch.targets(worth)

    def _following(self, minibatch: Minibatch) -> F32:
        """Returns the target network's value of each action in what came next, shape ``(batch, n)``.

        It stays as it is for many steps, in which more rows are drawn than a small data set has: then all are computed
        once.
        """
        steps, config = self._steps, self.config
        if steps is None or len(steps) > config.target_update_interval * config.batch_size:
            return self.target.predict(minibatch.next_observations)
        if self._judged is None:
            self._judged = self._judge(steps)
        return self._judged.take(minibatch.rows, axis=0)

    def _judge(self, steps: LoggedSteps) -> F32:
        judged = np.empty((len(steps), self._n), dtype=np.float32)
        for start in range(0, len(steps), TARGET_ROWS):
            part = slice(start, start + TARGET_ROWS)
            judged[part] = self.target.predict(steps.next_observations[part])
        return judged

    def _forget_derived(self) -> None:
        self._judged = None

    def _loss(self, minibatch: Minibatch, targets: F32) -> tuple[float, F32]:
        """Returns alpha E[log sum_a exp Q(s, a) - Q(s, a_logged)] + 1/2 E[(Q - target)²], and its gradient (4).

        The first bracket is minus the log-probability of the logged action under the softmax of the values.
        """
        size, alpha = len(targets), self.config.alpha
        outputs = self.network.forward(minibatch.observations)
        rows = np.arange(size)
        chosen = outputs[rows, minibatch.actions]
        errors = chosen - targets
        evaluation = self._distribution.evaluate(outputs, minibatch.actions, minibatch.masks)
        conservative = -float(np.add.reduce(evaluation.log_probs)) / size
        error = 0.5 * float(errors @ errors) / size
        gradient = evaluation.gradient(-alpha / size, 0.0)
        gradient[rows, minibatch.actions] += errors * np.float32(1 / size)
        self.metrics.add("train/td_loss", error)
        self.metrics.add("train/conservative_loss", conservative)
        self.metrics.add("train/value", float(np.add.reduce(chosen)) / size)
        return alpha * conservative + error, gradient

    # Building, keeping -------------------------------------------------------------------------------------------

    def policy(self) -> NetworkPolicy:
        """Returns a frozen copy of the greedy policy."""
        return self._served(self.network, ("value",), "q_values")
