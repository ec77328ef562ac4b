"""PPO over transitions that were chosen elsewhere by a copy of it, and come back with what was logged of them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.base.states import put_parameters
from learnloop.algorithms.on_policy.ppo import PPO, PPOConfig
from learnloop.algorithms.on_policy.rollout import Batch, Steps
from learnloop.core.arrays import F32, I64
from learnloop.core.errors import CorruptError
from learnloop.core.spaces import Box, Discrete, Spaces
from learnloop.nn.optimizers import AdamW, Optimizer

TOLERANCE = 1e-4
"""How far a logged log probability may be from the network's own for the action to count as this policy's: clients
round, and a batch is computed in another order than a row."""


MAX_NORM = 1e15
"""Of an observation: what a network makes of much larger ones leaves float32, and then no update comes to an end."""
_MOMENTS = ("first_moment", "second_moment")


class PreparedSteps(NamedTuple):
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

    def prepare(self, steps: Steps) -> PreparedSteps:
        """Returns ``steps`` with what they were worth.

        A step that the network judges as logged is this policy's own, any other one foreign to it (``correction``). A
        log probability alone may agree by chance: where no values were logged, all of a segment must agree.
        """
        steps = steps._replace(dropout=dropout_of(steps.observations, self.num_updates, self.network.num_masks))
        judged = self._judged(steps)
        difference = judged.log_probs - steps.log_probs
        is_own = np.abs(difference) <= TOLERANCE
        if steps.values is not None:
            is_own &= np.abs(judged.values - steps.values) <= TOLERANCE * (1 + np.abs(judged.values))
        else:
            ends = np.flatnonzero(steps.ended)
            starts = np.append(0, ends[:-1] + 1)
            is_own = np.repeat(np.logical_and.reduceat(is_own, starts), ends - starts + 1)
        batch = self._corrected(steps, is_own, judged)
        num_stale = int(np.count_nonzero(~is_own))
        return PreparedSteps(batch, num_stale, float(np.abs(difference[is_own]).max(initial=0.0)))

    def learn_steps(self, steps: Steps) -> PreparedSteps:
        """Updates once from ``steps``, and returns what it learned from.

        Raises:
            DivergedError: a number is not finite; restore the state of before.
        """
        prepared = self.prepare(steps)
        self._learn_batch(prepared.batch)
        self.num_steps += prepared.batch.size
        self.num_stale += prepared.num_stale
        return prepared

    def training_state(self) -> dict[str, NDArray[Any]]:
        """Returns what the training of the policy's next version goes on from, as tensors alone."""
        state = self.optimizer.state()
        figures = [float(state["unit"]), float(state["num_steps"]), float(self.num_updates)]
        moments = {name: state[name].copy() for name in _MOMENTS}
        return {"parameters": self.network.parameters.copy(), **moments, "figures": np.array(figures)}

    def go_on_from(self, training: Mapping[str, NDArray[Any]]) -> None:
        """Takes over what ``training_state`` returned.

        Raises:
            CorruptError: it is of another network.
        """
        try:
            unit, num_steps, num_updates = training["figures"].tolist()
            put_parameters(self.network, training["parameters"], "parameters")
            moments = {name: training[name] for name in _MOMENTS}
            figures = {"unit": np.array(unit), "num_steps": np.array(int(num_steps), dtype=np.int64)}
            self.optimizer.restore({**moments, **figures})
        except (KeyError, ValueError) as error:
            raise CorruptError(f"the training cannot go on from the version that is served: {error}") from error
        self.num_updates = int(num_updates)

    def _step(self, gradient: F32, loss: float, learning_rate: float) -> None:
        super()._step(gradient, loss, learning_rate * self.rate_factor)

    def _build_optimizer(self) -> Optimizer:
        if not self._weight_decay:
            return super()._build_optimizer()
        return AdamW(self.network, eps=1e-5, weight_decay=self._weight_decay)
