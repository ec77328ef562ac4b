"""Episodes as they end: their returns are counted by the stream itself, no wrapper is needed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F64, Bools


class Episode(NamedTuple):
    """A whole episode of one lane."""

    lane: int
    total_reward: float
    """The sum of its rewards, not discounted: its return."""
    length: int
    """Environment steps."""
    seconds: float
    """From its first observation to its end, on the wall clock."""
    terminated: bool
    truncated: bool
    first_step: int
    """How many environment steps the stream had made in all its lanes when it began."""


class EpisodeLog:
    """Counts the episodes of ``num_lanes`` lanes that step together.

    Attributes:
        num_steps: environment steps so far, of all lanes.
        begun: how many episodes each lane has begun.
    """

    def __init__(self, num_lanes: int) -> None:
        self.num_steps = 0
        self.begun = [0] * num_lanes
        self._returns = np.zeros(num_lanes)
        self._tick = 0
        self._first_ticks = [0] * num_lanes
        self._first_steps = [0] * num_lanes
        self._first_seconds = [0.0] * num_lanes
        self._finished: list[Episode] = []

    def begin(self, lanes: Sequence[int]) -> None:
        """Begins an episode in each of ``lanes``; what ran there is forgotten."""
        now = time.perf_counter()
        for lane in lanes:
            self.begun[lane] += 1
            self._returns[lane] = 0.0
            self._first_ticks[lane] = self._tick
            self._first_steps[lane] = self.num_steps
            self._first_seconds[lane] = now

    def count(self, rewards: F64, num_steps: int) -> None:
        """Adds the rewards of a step, shape ``(num_lanes,)``, in which ``num_steps`` lanes made one."""
        self._tick += 1
        self.num_steps += num_steps
        self._returns += rewards

    def end(self, lanes: Sequence[int], terminated: Bools, truncated: Bools) -> None:
        """Ends the episodes of ``lanes``."""
        now = time.perf_counter()
        for lane in lanes:
            episode = Episode(
                lane=lane,
                total_reward=float(self._returns[lane]),
                length=self._tick - self._first_ticks[lane],
                seconds=now - self._first_seconds[lane],
                terminated=bool(terminated[lane]),
                truncated=bool(truncated[lane]),
                first_step=self._first_steps[lane],
            )
            self._finished.append(episode)

    def take(self) -> list[Episode]:
        """Returns the episodes that ended since it was last asked, in the order of their ends."""
        finished, self._finished = self._finished, []
        return finished
