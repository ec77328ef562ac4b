"""The losses of SAC over discrete actions: expectations over actions are computed, not drawn.

Source: Christodoulou 2019, Soft Actor-Critic for Discrete Action Settings; numbers of equations are its.
"""

from __future__ import annotations

import math

import numpy as np

from learnloop.algorithms.off_policy.twin_critic import critic_loss, least_values
from learnloop.algorithms.replay.prioritised import ReplaySample
from learnloop.core.arrays import F32
from learnloop.core.spaces import Discrete
from learnloop.core.stepping import Actions, Masks
from learnloop.nn.distributions import Categorical
from learnloop.nn.network import Network


class DiscreteLosses:
    """The actor gives logits; each critic gives the value of each action. Losses are means over a batch.

    An action that is not allowed has probability 0, and the target of the entropy is a share of the largest that the
    allowed ones can have.
    """

    def __init__(
        self,
        space: Discrete,
        networks: tuple[Network, Network, Network],
        target_entropy: float | None,
        target_entropy_ratio: float,
    ) -> None:
        """Takes the actor, the critic of two heads and its target.

        Args:
            space: of the actions.
            networks: the three.
            target_entropy: in nats; None: by the ratio.
            target_entropy_ratio: times the logarithm of the number of allowed actions.
        """
        self._actor, self._critic, self._target = networks
        self._n = space.n
        self._distribution = Categorical(space.n)
        self._target_entropy = target_entropy
        self._ratio = target_entropy_ratio
        self._now = _Chances(np.zeros((0, space.n), dtype=np.float32), None)

    # Actions -----------------------------------------------------------------------------------------------------

    def to_space(self, actions: Actions) -> Actions:
        """Returns ``actions``."""
        return actions

    def from_space(self, actions: Actions) -> Actions:
        """Returns ``actions``."""
        return actions

    def draw_uniform(self, batch: int, masks: Masks | None, rng: np.random.Generator) -> Actions:
        """Returns allowed actions, each as likely, shape ``(batch,)``."""
        return self._distribution.sample(np.zeros((batch, self._n), dtype=np.float32), rng, masks)[0]

    def draw(self, outputs: F32, masks: Masks | None, rng: np.random.Generator) -> Actions:
        """Returns actions of the policy, shape ``(batch,)``."""
        return self._distribution.sample(outputs, rng, masks)[0]

    # Losses ------------------------------------------------------------------------------------------------------

    def next_values(self, sample: ReplaySample, ent_coef: float, rng: np.random.Generator) -> F32:
        """Returns the soft value of what came next, shape ``(batch,)`` (10)."""
        chances = _Chances(self._actor.predict(sample.next_observations), sample.next_masks)
        return chances.soft_values(least_values(self._target.predict(sample.next_observations)), ent_coef)

    def look(self, sample: ReplaySample, rng: np.random.Generator) -> float:
        """Computes the policy, and returns the mean entropy less its target (11)."""
        self._now = _Chances(self._actor.forward(sample.observations), sample.masks)
        return float(self._now.entropies().mean() - self._target_of(sample.masks))

    def critic(self, sample: ReplaySample, targets: F32) -> tuple[float, F32]:
        """Returns half the squared errors of both critics, and the gradient with respect to their outputs (4)."""
        return critic_loss(self._critic.forward(sample.observations), sample.actions, targets, 0.5)

    def actor(self, sample: ReplaySample, ent_coef: float) -> tuple[float, F32]:
        """Returns the mean of sum pi (alpha log pi - min Q), and the gradient for the actor (12).

        With f the bracket, the gradient with respect to the logit of action i is pi_i (f_i - sum pi f).
        """
        now, batch = self._now, len(sample.rewards)
        bracket = np.float32(ent_coef) * now.log_chances - least_values(self._critic.predict(sample.observations))
        weighted = now.chances * bracket
        means = np.add.reduce(weighted, axis=1)
        gradient = weighted - now.chances * means[:, None]
        gradient *= np.float32(1 / batch)
        return float(means.sum()) / batch, gradient

    # What was learned --------------------------------------------------------------------------------------------

    def value(self, observations: F32, ent_coef: float, rng: np.random.Generator) -> F32:
        """Returns the soft value of observations, shape ``(batch,)``."""
        chances = _Chances(self._actor.predict(observations), None)
        return chances.soft_values(least_values(self._critic.predict(observations)), ent_coef)

    def action_values(self, observations: F32, actions: Actions | None) -> F32:
        """Returns the lesser Q of ``actions``, shape ``(batch,)``, or of each action, shape ``(batch, n)``."""
        least = least_values(self._critic.predict(observations))
        return least if actions is None else least[np.arange(len(least)), actions]

    def _target_of(self, masks: Masks | None) -> float:
        """Returns the mean target of the entropy."""
        if self._target_entropy is not None:
            return self._target_entropy
        if masks is None:
            return self._ratio * math.log(self._n)
        return self._ratio * float(np.log(np.count_nonzero(masks, axis=1)).mean())


class _Chances:
    """The probabilities of all actions and their logarithms, shape ``(batch, n)``; both 0 where not allowed."""

    def __init__(self, logits: F32, masks: Masks | None) -> None:
        if masks is not None:
            logits = np.where(masks, logits, np.float32(-np.inf))
        shifted = logits - logits.max(axis=1, keepdims=True, initial=-np.inf)
        weights = np.exp(shifted)
        totals = weights.sum(axis=1, keepdims=True)
        self.chances: F32 = weights / totals
        log_chances = shifted - np.log(totals)
        self.log_chances: F32 = log_chances if masks is None else np.where(masks, log_chances, np.float32(0))

    def entropies(self) -> F32:
        """Returns the entropy of each row, in nats."""
        result: F32 = -np.einsum("ij,ij->i", self.chances, self.log_chances)
        return result

    def soft_values(self, values: F32, ent_coef: float) -> F32:
        """Returns sum pi (Q - alpha log pi), shape ``(batch,)``."""
        bracket = values - np.float32(ent_coef) * self.log_chances
        result: F32 = np.einsum("ij,ij->i", self.chances, bracket)
        return result
