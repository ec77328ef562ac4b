"""Replay, uniform and prioritised: in the latter what was learned least is drawn most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.replay.sum_tree import SumTree
from learnloop.algorithms.replay.transitions import Entries, ReplaySample, Transitions
from learnloop.algorithms.replay.uniform import MARGIN, ReplayBuffer
from learnloop.core.arrays import F32, F64, I64
from learnloop.core.errors import UsageError
from learnloop.core.spaces import ActionSpace

__all__ = ["MARGIN", "Entries", "PrioritisedReplay", "ReplayBuffer", "ReplaySample", "Transitions"]


class PrioritisedReplay(ReplayBuffer):
    """Draws transitions in proportion to the power ``alpha`` of their priority; weights make up for it.

    Source: Schaul et al. 2016, Prioritized Experience Replay, equation 1, section 3.4 (weights) and appendix B.2.1 (one
    draw from each of ``count`` equal parts of the total). The priority of an entry is its absolute error plus
    ``epsilon``; a new one has the largest seen so far. Weights are divided by the largest in the whole buffer, so that
    the weight of an entry does not depend on what else was drawn.

    Attributes:
        num_stale: priorities that came for transitions overwritten since they were drawn, and were dropped.
    """

    def __init__(
        self,
        capacity: int,
        observation_size: int,
        action_space: ActionSpace,
        *,
        alpha: float = 0.6,
        epsilon: float = 1e-6,
        **options: Any,
    ) -> None:
        """Takes the memory; ``options`` are those of ``ReplayBuffer``.

        Args:
            capacity: how many transitions to hold.
            observation_size: numbers of an encoded observation.
            action_space: of the actions.
            alpha: from 0 (uniform) to 1 (in proportion).
            epsilon: added to errors, so that none is never drawn again; above 0.
            options: see ``ReplayBuffer``.
        """
        super().__init__(capacity, observation_size, action_space, **options)
        if not 0 <= alpha <= 1 or not 0 < epsilon < np.inf:
            raise UsageError(f"alpha is {alpha} and epsilon {epsilon}; allowed are 0 to 1, and above 0")
        self.alpha = alpha
        self.epsilon = epsilon
        self.num_stale = 0
        self._tree = SumTree(capacity)
        self._largest = 1.0

    @classmethod
    def num_bytes(
        cls, capacity: int, observation_size: int, action_space: ActionSpace, **options: Any
    ) -> tuple[int, int]:
        """Returns the bytes of observations and of all else, at most, the tree included."""
        observations, others = super().num_bytes(capacity, observation_size, action_space, **options)
        return observations, others + 9 * capacity

    def add(self, entries: Entries) -> None:
        """Adds transitions with the largest priority so far; see ``ReplayBuffer.add``."""
        start = self.num_added
        super().add(entries)
        self._tree.set(np.arange(start, self.num_added) % self.capacity, self._largest)

    def _evict(self, limit: int) -> None:
        before = self.oldest
        super()._evict(limit)
        if self.oldest > before:
            self._tree.set(np.arange(before, self.oldest) % self.capacity, 0.0)

    def sample(self, count: int, rng: np.random.Generator, beta: float = 1.0) -> ReplaySample:
        """Returns ``count`` transitions, drawn by priority, with weights.

        Args:
            count: how many.
            rng: draws them.
            beta: how much the weights make up for the priorities: from 0 (not) to 1 (fully).

        Raises:
            UsageError: it is empty.
        """
        self._check_filled()
        fractions = (rng.random(count) + np.arange(count)) / count
        rows, priorities = self._tree.draw(fractions)
        ratios: F32 = (self._tree.minimum / priorities).astype(np.float32)
        np.power(ratios, np.float32(beta), out=ratios)
        newest = self.num_added - 1
        return self._gather(newest - (newest - rows) % self.capacity, ratios)

    def update_priorities(self, sample: ReplaySample, errors: NDArray[Any]) -> None:
        """Gives the transitions of ``sample`` new priorities; those overwritten since are counted and left alone.

        Args:
            sample: what ``sample`` returned.
            errors: of its transitions, shape ``(batch,)``; their size counts.

        Raises:
            UsageError: an error is not finite; nothing is changed.
        """
        numbers = sample.numbers
        priorities = (np.abs(errors.astype(np.float64)) + self.epsilon) ** self.alpha
        largest = float(priorities.max())
        if not largest < np.inf:  # NaN too
            raise UsageError(f"the errors {errors[~np.isfinite(errors)][:3]} are no priorities; they must be finite")
        if int(numbers.min()) < self.oldest:
            kept = numbers >= self.oldest
            self.num_stale += int(np.count_nonzero(~kept))
            numbers, priorities = numbers[kept], priorities[kept]
            if not len(numbers):
                return
            largest = float(priorities.max())
        self._largest = max(self._largest, largest)
        self._tree.set(numbers % self.capacity, priorities)

    def priorities(self, numbers: I64) -> F64:
        """Returns the priorities of transitions that it holds, to the power ``alpha``, shape ``(batch,)``."""
        return self._tree.get(numbers % self.capacity)

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of what it holds, with priorities."""
        priorities = self.priorities(np.arange(self.oldest, self.num_added))
        figures = np.array([self._largest, self.num_stale], dtype=np.float64)
        return {**super().state(), "priorities": priorities, "priority_figures": figures}

    def _check_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        super()._check_state(state)
        priorities, figures = state["priorities"], state["priority_figures"]
        if priorities.shape != state["first"].shape or priorities.dtype != np.float64 or figures.shape != (2,):
            raise ValueError(f"priorities have shape {priorities.shape} and type {priorities.dtype}")
        if not (np.isfinite(priorities).all() and (priorities > 0).all() and np.isfinite(figures).all()):
            raise ValueError("priorities are not finite numbers above 0")

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Holds what ``state`` says; see ``ReplayBuffer.restore``."""
        super().restore(state)
        self._tree = SumTree(self.capacity)
        self._tree.set(np.arange(self.oldest, self.num_added) % self.capacity, state["priorities"])
        self._largest = float(state["priority_figures"][0])
        self.num_stale = int(state["priority_figures"][1])
