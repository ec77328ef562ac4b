"""Trains policies over named actions with PPO, from the logged steps of episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.on_policy.ppo import PPOConfig
from learnloop.algorithms.on_policy.rollout import Steps
from learnloop.algorithms.on_policy.segment_ppo import SegmentPPO
from learnloop.algorithms.policies.named_actions import NamedActionsPolicy, action_rows
from learnloop.core.arrays import F32
from learnloop.core.errors import UsageError
from learnloop.core.protocols import Question, Sample

NUM_PASSES = 10
"""How often a training goes through the log; from the second time on the policy has moved away from it, which the
importance weights answer for."""


class Situation(Question):
    """A question with what came of the answer.

    Attributes:
        next_vector: what the action led to; None: the episode ended there, or it goes on in the next sample.
        is_last: whether the next sample is another segment's.
    """

    __slots__ = ("is_last", "next_vector")

    next_vector: F32 | None
    is_last: bool


class EpisodeTrainer:
    """Trains a network's policy on logged steps; ``core``'s ``Trainer``.

    Args:
        config: how it is built and learns.
        size: the length of the vectors.
        actions: their names, in the order of the network's outputs.
        start: what an earlier training left (``NamedActionsPolicy.training``); None: it begins with fresh weights.

    Attributes:
        diagnostics: figures of the last training.
    """

    def __init__(
        self, config: PPOConfig, size: int, actions: Sequence[str], start: Mapping[str, NDArray[Any]] | None = None
    ) -> None:
        self.diagnostics: dict[str, float] = {}
        self._config = config
        self._size = size
        self._rows = {name: row for row, name in enumerate(actions)}
        self._start = start

    def train(self, samples: Sequence[Sample], seed: int) -> NamedActionsPolicy:
        """Returns the policy that was learned from ``samples``, whose contexts are ``Situation``.

        Raises:
            UsageError: a sample has no propensity, or is no step of an episode.
            DivergedError: a number is not finite.
        """
        ppo = SegmentPPO(self._config, self._size, len(self._rows), seed=seed)
        if self._start:
            ppo.go_on_from(self._start)
        num_own = 0
        if samples:
            steps = self._steps(samples)
            num_own = steps.size - ppo.learn_steps(steps).num_stale
            for _ in range(NUM_PASSES - 1):
                ppo.learn_steps(steps)
        self.diagnostics = {**ppo.metrics.take(), "train/num_own_steps": float(num_own)}
        return NamedActionsPolicy(ppo.policy(), list(self._rows), ppo.training_state())

    def _steps(self, samples: Sequence[Sample]) -> Steps:
        count, size = len(samples), self._size
        observations = np.empty((count, size), dtype=np.float32)
        masks = np.zeros((count, len(self._rows)), dtype=np.bool_)
        ended = np.zeros(count, dtype=np.bool_)
        following: dict[int, F32] = {}
        for row, sample in enumerate(samples):
            context = sample.context
            if not isinstance(context, Situation) or context.vector is None or context.vector.shape != (size,):
                raise UsageError(f"a sample of unit {sample.unit!r} is no step of an episode with {size} numbers")
            if sample.propensity is None or not 0 < sample.propensity <= 1:
                raise UsageError(f"a sample of unit {sample.unit!r} has the propensity {sample.propensity}")
            observations[row] = context.vector
            masks[row, action_rows(sample.actions, self._rows)] = True if sample.mask is None else sample.mask
            ended[row] = context.is_last
            if context.next_vector is not None:
                following[row] = context.next_vector
        propensities = np.array([sample.propensity for sample in samples], dtype=np.float64)
        return Steps(
            observations=observations,
            actions=np.array([self._rows[sample.action] for sample in samples], dtype=np.int64),
            masks=masks,
            log_probs=np.log(propensities).astype(np.float32),
            rewards=np.array([sample.reward for sample in samples], dtype=np.float32),
            ended=ended,
            cut=np.array(list(following), dtype=np.intp),
            next_observations=np.array(list(following.values()), dtype=np.float32).reshape(len(following), size),
        )
