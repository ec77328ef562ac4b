"""Two judges of each discrete action, of which the lower one counts: less overestimation."""

from __future__ import annotations

import numpy as np

from learnloop.algorithms.off_policy.learner import TargetUpdate
from learnloop.core.arrays import F32
from learnloop.core.stepping import Actions
from learnloop.nn.mlp.network import Head
from learnloop.nn.network import Network
from learnloop.nn.optimizers import Adam

MEANING = "two values of each action, those of the first critic, then those of the second"


def critic_heads(num_actions: int) -> list[Head]:
    """Returns the heads of such a network."""
    return [Head(name=name, size=num_actions) for name in ("first", "second")]


def least_values(outputs: F32) -> F32:
    """Returns the lower of both critics' values of each action, shape ``(batch, n)``, from ``(batch, 2 n)``."""
    n = outputs.shape[1] // 2
    return np.minimum(outputs[:, :n], outputs[:, n:])


def critic_loss(outputs: F32, actions: Actions, targets: F32, weight: float) -> tuple[float, F32]:
    """Returns ``weight`` times the mean squared errors of both critics, added, and the gradient for ``outputs``.

    Args:
        outputs: of the critics, shape ``(batch, 2 n)``.
        actions: that were taken, shape ``(batch,)``.
        targets: what both values of these are to become, shape ``(batch,)``.
        weight: of the loss.
    """
    batch = len(targets)
    rows = np.arange(batch)
    values = outputs.T  # (2 n, batch)
    gradient = np.zeros_like(values, order="C")
    loss = 0.0
    for chosen in (actions, actions + len(values) // 2):
        errors = values[chosen, rows] - targets
        loss += weight * float(errors @ errors) / batch
        gradient[chosen, rows] = errors * np.float32(2 * weight / batch)
    return loss, gradient.T


class TwinCritic:
    """A network that gives two values of each action, its slow copy and its optimiser.

    Source: Fujimoto et al. 2018, Addressing Function Approximation Error in Actor-Critic Methods, section 4.2.

    Attributes:
        network: from an observation to the first critic's values, then the second's.
        target: its slow copy.
        optimizer: of the network.
    """

    def __init__(self, network: Network, tau: float) -> None:
        self.network = network
        self.target = network.copy()
        self.optimizer = Adam(network)
        self._tau = tau
        self._mover = TargetUpdate(network, self.target)

    def move_target(self) -> None:
        """Moves the slow copy by its share towards the network."""
        self._mover.move(self._tau)
