"""Environments whose reward changes with the clock, whatever is done: nothing can be learned in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from learnloop.core.records import Verdict
from learnloop.training.proof import TrainingProof
from learnloop.training.runs import start_run
from tests.training.trainers.test_trainers import small


class Clock:
    """Counts the steps of all environments of a test."""

    time = 0


class Drifting(gymnasium.Env[Any, Any]):
    """Eight steps an episode; each pays ``slope`` times the clock, and noise of the episode's own."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, clock: Clock, slope: float) -> None:
        self._clock = clock
        self._slope = slope
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._clock.time += 1
        self._steps += 1
        reward = self._slope * self._clock.time + 0.05 * float(self.np_random.normal())
        return self._observation(), reward, self._steps >= 8, False, {}

    def _observation(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


def prove(folder: Path, slope: float, seeds: list[int]) -> TrainingProof:
    clock = Clock()
    make: Callable[[], gymnasium.Env[Any, Any]] = lambda: Drifting(clock, slope)  # noqa: E731
    options = small("ppo", steps=256, eval_interval=64, eval_episodes=8)
    return start_run(folder, options, seeds, env=make).best.prove(num_episodes=24)


@pytest.mark.parametrize("seeds", [[0], [0, 1, 2]])
@pytest.mark.parametrize("slope", [-0.001, 0.001])
def test_nothing_is_said_where_rewards_change_with_the_clock(tmp_path: Path, slope: float, seeds: list[int]) -> None:
    """A run and its controls take about 10,000 steps, in which a step's reward changes by 200 times its noise."""
    proof = prove(tmp_path, slope, seeds)
    assert proof.verdict is Verdict.INCONCLUSIVE, proof.reasons
    assert "what was trained and its controls met different environments" in proof.reasons[0]


def test_without_a_clock_it_is_no_signal(tmp_path: Path) -> None:
    proof = prove(tmp_path, 0.0, [0])
    assert proof.verdict is Verdict.NO_SIGNAL, proof.reasons
    assert not any("different environments" in reason for reason in proof.reasons)
