"""PPO over transitions that were chosen elsewhere by a copy of it, and come back with what was logged of them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from learnloop.algorithms.on_policy.advantages import gae
from learnloop.algorithms.on_policy.ppo import PPO, PPOConfig
from learnloop.algorithms.on_policy.rollout import Batch
from learnloop.core.arrays import F32, I64, Bools, Indices
from learnloop.core.spaces import Box, Discrete, Spaces
from learnloop.nn.optimizers import AdamW, Optimizer

TOLERANCE = 1e-4
"""How far a logged log probability may be from the network's own for the action to count as this policy's: clients
round, and a batch is computed in another order than a row."""


MAX_NORM = 1e15
"""Of an observation: what a network makes of much larger ones leaves float32, and then no update comes to an end."""


class Steps(NamedTuple):
    """Transitions of whole segments, one segment after the other; arrays have the shape ``(num_steps, ...)``."""

    observations: F32
    actions: I64
    log_probs: F32
    """As they were logged."""
    values: F32
    """As they were logged."""
    rewards: F32
    ended: Bools
    """Whether it is the last of its segment."""
    cut: Indices
    """The rows whose episode goes on after the segment, or was truncated: what comes then is worth the value of
    ``next_observations``. Each is the last of its segment."""
    next_observations: F32
    """Shape ``(len(cut), size)``."""


class Prepared(NamedTuple):
    """What is learned from, and how far it was known."""

    batch: Batch
    num_stale: int
    """Steps that another policy than this one chose."""
    max_log_ratio: float
    """How far before the first gradient step the log probability of any other step is from the logged one."""


def dropout_of(observations: F32, num_updates: int, num_masks: int) -> I64 | None:
    """Returns the dropout mask that each observation is seen through, shape ``(batch,)``; None: no dropout.

    It depends on the observation and the policy alone, so that acting, showing and learning see the same without
    remembering anything, and changes with each update.
    """
    if not num_masks:
        return None
    start = num_updates & 0xFFFF_FFFF
    return np.array([zlib.crc32(row, start) % num_masks for row in observations], dtype=np.int64)


def is_readable(observation: F32) -> bool:
    """Returns whether a network can read an observation: its numbers are finite, and it is not longer than allowed."""
    return float(np.vdot(observation, observation)) <= MAX_NORM**2  # not @, which warns where this is infinite


def vector_spaces(size: int, num_actions: int) -> Spaces:
    """Returns the spaces of a policy that chooses one of some actions by a vector without bounds."""
    free = (None,) * size
    return Spaces(observation=Box(shape=(size,), low=free, high=free), action=Discrete(n=num_actions))


class SegmentPPO(PPO):
    """PPO that is given its transitions; it never acts itself.

    Attributes:
        rate_factor: what the learning rate of the config is multiplied with.
    """

    def __init__(
        self, config: PPOConfig, size: int, num_actions: int, *, seed: int = 0, weight_decay: float = 0.0
    ) -> None:
        self._weight_decay = weight_decay
        self.rate_factor = 1.0
        super().__init__(config, vector_spaces(size, num_actions), seed=seed)

    def prepare(self, steps: Steps) -> Prepared:
        """Returns ``steps`` with their advantages.

        A step that the network judges as logged is this policy's own. Any other was chosen by an earlier policy: it
        counts by how likely this one would have chosen it, cut at 1, its ratio is clipped around this policy, and its
        value is the network's. Source: as of ``OnPolicyAlgorithm.learn_from``.
        """
        dropout = dropout_of(steps.observations, self.num_updates, self.network.num_masks)
        outputs = self.network.predict(steps.observations, dropout).copy()
        current = self.distribution.evaluate(outputs[:, :-1], steps.actions).log_probs
        difference = current - steps.log_probs
        values = outputs[:, -1]
        is_own = np.abs(difference) <= TOLERANCE
        is_own &= np.abs(values - steps.values) <= TOLERANCE * (1 + np.abs(values))
        weights = np.where(is_own, np.float32(1), np.exp(np.minimum(difference, np.float32(0))))
        values = np.where(is_own, steps.values, values)
        ahead = np.zeros_like(values)
        ahead[:-1] = values[1:]
        ahead[steps.ended] = 0
        if len(steps.cut):
            ahead[steps.cut] = self._values(steps.next_observations)
        advantages = gae(
            steps.rewards[:, None],
            values[:, None],
            ahead[:, None],
            steps.ended[:, None],
            gamma=self.config.gamma,
            gae_lambda=self.config.gae_lambda,
        )[:, 0]
        num_stale = int(np.count_nonzero(~is_own))
        batch = Batch(
            observations=steps.observations,
            actions=steps.actions,
            log_probs=np.where(is_own, steps.log_probs, current),
            values=values,
            advantages=advantages,
            returns=advantages + values,
            masks=None,
            dropout=dropout,
            weights=weights if num_stale else None,
        )
        return Prepared(batch, num_stale, float(np.abs(difference[is_own]).max(initial=0.0)))

    def learn_steps(self, steps: Steps) -> Prepared:
        """Updates once from ``steps``, and returns what it learned from.

        Raises:
            DivergedError: a number is not finite; restore the state of before.
        """
        prepared = self.prepare(steps)
        self._learn_batch(prepared.batch)
        self.num_steps += prepared.batch.size
        self.num_stale += prepared.num_stale
        return prepared

    def _step(self, gradient: F32, loss: float, learning_rate: float) -> None:
        super()._step(gradient, loss, learning_rate * self.rate_factor)

    def _build_optimizer(self) -> Optimizer:
        if not self._weight_decay:
            return super()._build_optimizer()
        return AdamW(self.network, eps=1e-5, weight_decay=self._weight_decay)


def segment_rows(lengths: Sequence[int]) -> Bools:
    """Returns which rows are the last of segments of these lengths, laid one after the other."""
    ended = np.zeros(sum(lengths), dtype=np.bool_)
    ended[np.cumsum(np.asarray(lengths, dtype=np.intp)) - 1] = True
    return ended
