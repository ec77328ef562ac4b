"""The losses of SAC over a box of continuous actions.

Source: Haarnoja et al. 2018, Soft Actor-Critic Algorithms and Applications; numbers of equations are its.
"""

from __future__ import annotations

import numpy as np

from learnloop.algorithms.replay.prioritised import ReplaySample
from learnloop.core.arrays import F32
from learnloop.core.spaces import Box
from learnloop.core.stepping import Actions, Masks
from learnloop.nn.encoders.action_codec import bounds_of
from learnloop.nn.network import Network
from learnloop.nn.squashed_gaussian import Squashed, SquashedGaussian

NUM_DRAWS = 64
"""Actions that ``value`` is a mean over."""


class ContinuousLosses:
    """The actor gives the parameters of a squashed Gaussian; each critic sees an observation and an action.

    Actions are from -1 to 1. Losses are means over a batch.

    Attributes:
        target_entropy: of the policy, in nats.
    """

    def __init__(
        self,
        space: Box,
        observation_size: int,
        networks: tuple[Network, Network, Network],
        target_entropy: float | None,
    ) -> None:
        """Takes the actor, the critic of two heads and its target.

        Args:
            space: of the actions.
            observation_size: numbers of an observation.
            networks: the three.
            target_entropy: None: minus the number of actions, as in section 5.
        """
        self._actor, self._critic, self._target = networks
        self._distribution = SquashedGaussian(space.size)
        self._size = space.size
        self._observation_size = observation_size
        self.target_entropy = float(-space.size) if target_entropy is None else target_entropy
        self._low, self._high = low, high = bounds_of(space)
        self._half, self._middle = (high - low) / np.float32(2), (high + low) / np.float32(2)
        self._inputs: dict[int, tuple[F32, F32]] = {}
        self._now: Squashed | None = None

    # Actions -----------------------------------------------------------------------------------------------------

    def to_space(self, actions: Actions) -> Actions:
        """Returns actions in the units of the space."""
        placed: F32 = np.minimum(np.maximum(actions * self._half + self._middle, self._low), self._high)
        return placed

    def from_space(self, actions: Actions) -> Actions:
        """Returns actions from -1 to 1; those outside the space are moved to its bounds."""
        scaled: F32 = ((actions - self._middle) / self._half).astype(np.float32)
        return np.minimum(np.maximum(scaled, np.float32(-1)), np.float32(1))

    def draw_uniform(self, batch: int, masks: Masks | None, rng: np.random.Generator) -> Actions:
        """Returns uniform actions, shape ``(batch, size)``."""
        return rng.uniform(-1, 1, (batch, self._size)).astype(np.float32)

    def draw(self, outputs: F32, masks: Masks | None, rng: np.random.Generator) -> Actions:
        """Returns actions of the policy, shape ``(batch, size)``."""
        return self._distribution.sample(outputs, rng).actions

    # Losses ------------------------------------------------------------------------------------------------------

    def next_values(self, sample: ReplaySample, ent_coef: float, rng: np.random.Generator) -> F32:
        """Returns the soft value of what came next, shape ``(batch,)``: min Q' - alpha log pi, one action drawn (3)."""
        _, inputs = self._buffers(len(sample.rewards))
        inputs[:, : self._observation_size] = sample.next_observations
        return self._soft_values(self._target, sample.next_observations, inputs, ent_coef, rng)

    def look(self, sample: ReplaySample, rng: np.random.Generator) -> float:
        """Draws an action for each observation, and returns the mean entropy less its target."""
        self._now = now = self._distribution.sample(self._actor.forward(sample.observations), rng)
        return -float(now.log_probs.sum()) / len(now.log_probs) - self.target_entropy

    def critic(self, sample: ReplaySample, targets: F32) -> tuple[float, F32]:
        """Returns half the squared errors of both critics, and the gradient with respect to their outputs (5, 6)."""
        batch = len(targets)
        inputs, _ = self._buffers(batch)
        inputs[:, : self._observation_size] = sample.observations
        inputs[:, self._observation_size :] = sample.actions
        errors = self._critic.forward(inputs).T - targets  # a row for each critic
        loss = 0.5 * float(np.einsum("ij,ij->", errors, errors)) / batch
        errors *= np.float32(1 / batch)
        return loss, errors.T

    def actor(self, sample: ReplaySample, ent_coef: float) -> tuple[float, F32]:
        """Returns alpha log pi - min Q of the actions that ``look`` drew, and the gradient for the actor (7, 9, 10)."""
        now, batch = self._drawn(), len(sample.rewards)
        inputs, _ = self._buffers(batch)
        inputs[:, : self._observation_size] = sample.observations
        inputs[:, self._observation_size :] = now.actions
        values = self._critic.forward(inputs).T
        worse = values[1] < values[0]
        least = np.where(worse, values[1], values[0])
        loss = float(ent_coef * now.log_probs.sum() - least.sum()) / batch
        pull = np.empty((2, batch), dtype=np.float32)
        np.multiply(worse, np.float32(-1 / batch), pull[1])
        np.subtract(np.float32(-1 / batch), pull[1], pull[0])
        found = self._critic.backward(pull.T, parameters=False, inputs=True)
        action_gradient = found[:, self._observation_size :] if found is not None else np.zeros_like(now.actions)
        return loss, now.gradient(action_gradient, ent_coef / batch)

    # What was learned --------------------------------------------------------------------------------------------

    def value(self, observations: F32, ent_coef: float, rng: np.random.Generator) -> F32:
        """Returns the soft value of observations, shape ``(batch,)``, a mean over drawn actions."""
        rows = np.repeat(observations, NUM_DRAWS, axis=0)
        inputs = np.empty((len(rows), self._observation_size + self._size), dtype=np.float32)
        inputs[:, : self._observation_size] = rows
        found = self._soft_values(self._critic, rows, inputs, ent_coef, rng)
        means: F32 = found.reshape(-1, NUM_DRAWS).mean(axis=1)
        return means

    def action_values(self, observations: F32, actions: Actions | None) -> F32:
        """Returns the lesser Q of actions in the units of the space, shape ``(batch,)``."""
        if actions is None:
            actions = np.zeros((len(observations), self._size), dtype=np.float32)
        inputs = np.concatenate([observations, self.from_space(actions)], axis=1)
        least: F32 = self._critic.predict(inputs).min(axis=1)
        return least

    def _soft_values(
        self, critic: Network, observations: F32, inputs: F32, ent_coef: float, rng: np.random.Generator
    ) -> F32:
        drawn = self._distribution.sample(self._actor.predict(observations), rng)
        inputs[:, self._observation_size :] = drawn.actions
        values = critic.predict(inputs).T
        result: F32 = np.minimum(values[0], values[1])
        result -= np.float32(ent_coef) * drawn.log_probs
        return result

    def _drawn(self) -> Squashed:
        if self._now is None:
            raise RuntimeError("actor was called before look")
        return self._now

    def _buffers(self, batch: int) -> tuple[F32, F32]:
        """Returns two buffers for what the critics see, now and next."""
        found = self._inputs.get(batch)
        if found is None:
            shape = (batch, self._observation_size + self._size)
            found = self._inputs[batch] = (np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32))
        return found
