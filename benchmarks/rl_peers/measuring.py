"""What all sides of ``rl`` share: a clock that stands still during evaluations, and CartPole-v1 to evaluate in.

Needs numpy alone.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32, F64, Bools

NUM_EPISODES = 20
"""Episodes of one evaluation."""
MAX_STEPS = 500
"""An episode of CartPole-v1 is truncated there."""
THRESHOLD = 475.0
"""The mean return at which CartPole-v1 counts as solved."""
IN_A_ROW = 3
"""So many evaluations one after the other must be at the threshold; the first of them counts."""
EVALUATION_SEED = 20_240

Act = Callable[[F32], Any]
"""Returns the greedy action of each observation, shape ``(batch,)``."""


class Mark(NamedTuple):
    """One evaluation, and what training had cost until then."""

    num_steps: int
    mean_return: float
    cpu_seconds: float
    wall_seconds: float


class Watch:
    """The clock of one training.

    Attributes:
        curve: the evaluations so far.
        num_steps: environment steps when it was last looked at in earnest.
        cpu_seconds: CPU time of this process, all its threads, evaluations left out.
        wall_seconds: the same on the wall.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        """Takes what the task says of its length: it ends at ``at_most`` steps.

        It ends at ``at_least`` already if the threshold was reached. ``eval_interval``: steps between evaluations.
        """
        self._at_most: int = task["at_most"]
        self._at_least: int = task.get("at_least", self._at_most)
        self._interval: int | None = task.get("eval_interval")
        self._next = self._interval or self._at_most
        self._started: tuple[float, float] | None = None
        self.curve: list[Mark] = []
        self.num_steps = 0
        self.cpu_seconds = self.wall_seconds = 0.0

    def start(self) -> None:
        """Starts the clock, or lets it go on."""
        self._started = (time.process_time(), time.perf_counter())

    def stop(self) -> None:
        """Stops the clock."""
        if self._started is not None:
            self.cpu_seconds += time.process_time() - self._started[0]
            self.wall_seconds += time.perf_counter() - self._started[1]
            self._started = None

    def look(self, num_steps: int, act: Act) -> bool:
        """Returns whether the training ends after ``num_steps``; evaluates if it is time, with the clock stopped."""
        if num_steps < self._next:
            return False
        self.stop()
        self.num_steps = num_steps
        if self._interval is not None:
            self.curve.append(Mark(num_steps, evaluate(act), self.cpu_seconds, self.wall_seconds))
            self._next = min((num_steps // self._interval + 1) * self._interval, self._at_most)
        if num_steps >= self._at_most or (num_steps >= self._at_least and reached(self.curve) is not None):
            return True
        self.start()
        return False

    def result(self, **more: Any) -> dict[str, Any]:
        """Returns what was measured, as JSON."""
        self.stop()
        return {
            "num_steps": self.num_steps,
            "cpu_seconds": self.cpu_seconds,
            "wall_seconds": self.wall_seconds,
            "curve": self.curve,
            **more,
        }


def reached(curve: Sequence[Sequence[float]]) -> Mark | None:
    """Returns the first of ``IN_A_ROW`` evaluations one after the other at the threshold; None: there are none."""
    for first in range(len(curve) - IN_A_ROW + 1):
        if all(mark[1] >= THRESHOLD for mark in curve[first : first + IN_A_ROW]):
            steps, mean, cpu, wall = curve[first]
            return Mark(int(steps), mean, cpu, wall)
    return None


def evaluate(act: Act, num_episodes: int = NUM_EPISODES) -> float:
    """Returns the mean return of ``act`` in CartPole-v1, from the same first states each time."""
    states = np.random.default_rng(EVALUATION_SEED).uniform(-0.05, 0.05, (num_episodes, 4))
    running = np.ones(num_episodes, dtype=np.bool_)
    total = 0
    for _ in range(MAX_STEPS):
        total += int(np.count_nonzero(running))
        states, failed = advance(states, np.asarray(act(states.astype(np.float32))))
        running &= ~failed
        if not running.any():
            break
    return total / num_episodes


def advance(states: F64, actions: NDArray[Any]) -> tuple[F64, Bools]:
    """Returns the next states of CartPole-v1, shape ``(batch, 4)``, and which have failed, shape ``(batch,)``.

    Source: gymnasium 1.4.0, ``envs/classic_control/cartpole.py``, method ``step``; to the bit.
    """
    x, x_dot, theta, theta_dot = states.T
    force = np.where(actions == 1, 10.0, -10.0)
    cosine, sine = np.cos(theta), np.sin(theta)
    total_mass, pole_mass_length = 0.1 + 1.0, 0.1 * 0.5
    pull = (force + pole_mass_length * np.square(theta_dot) * sine) / total_mass
    theta_acc = (9.8 * sine - cosine * pull) / (0.5 * (4.0 / 3.0 - 0.1 * np.square(cosine) / total_mass))
    x_acc = pull - pole_mass_length * theta_acc * cosine / total_mass
    following = np.stack(
        [x + 0.02 * x_dot, x_dot + 0.02 * x_acc, theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc], axis=1
    )
    failed = (np.abs(following[:, 0]) > 2.4) | (np.abs(following[:, 2]) > 12 * 2 * math.pi / 360)
    return following, failed


def answer(measure: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Reads one JSON object from standard input and writes to standard output what ``measure`` returns for it.

    What is printed meanwhile goes to standard error.
    """
    task = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        result = measure(task)
    json.dump(result, sys.stdout)
