"""SAC's temperature: how much the entropy of the policy is worth, fixed or learned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from learnloop.core.errors import UsageError

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Temperature:
    """The entropy coefficient alpha. A learned one rises while the entropy is below its target, and falls else.

    Its logarithm is learned, with Adam. The loss is that of Stable-Baselines3: log alpha times the gap between the
    entropy and its target. Source: Haarnoja et al. 2018, Soft Actor-Critic Algorithms and Applications, equation 18
    (there with alpha itself); Kingma and Ba 2015, Adam, algorithm 1.

    Attributes:
        is_learned: whether it is.
        value: alpha.
    """

    def __init__(self, ent_coef: str | float) -> None:
        """Takes a number to keep, ``auto`` to learn it from 1 on, or ``auto_0.1`` to learn it from .1 on."""
        self.is_learned = isinstance(ent_coef, str)
        self.value = initial_temperature(ent_coef)
        self._log = math.log(self.value) if self.is_learned else 0.0
        self._moments = [0.0, 0.0]
        self._num_steps = 0

    def loss(self, gap: float) -> float:
        """Returns the loss for the mean entropy less its target."""
        return self._log * gap

    def step(self, gap: float, learning_rate: float) -> None:
        """Takes a gradient step, with the mean entropy less its target as the gradient of the loss."""
        self._num_steps += 1
        first, second = self._moments
        first = BETAS[0] * first + (1 - BETAS[0]) * gap
        second = BETAS[1] * second + (1 - BETAS[1]) * gap * gap
        self._moments = [first, second]
        mean = first / (1 - BETAS[0] ** self._num_steps)
        square = second / (1 - BETAS[1] ** self._num_steps)
        self._log -= learning_rate * mean / (math.sqrt(square) + EPSILON)
        self.value = math.exp(self._log)

    def state(self) -> dict[str, Any]:
        """Returns all that it remembers, as JSON."""
        return {"value": self.value, "log": self._log, "moments": list(self._moments), "num_steps": self._num_steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from ``state``."""
        self.value, self._log = float(state["value"]), float(state["log"])
        self._moments = [float(each) for each in state["moments"]]
        self._num_steps = int(state["num_steps"])


def initial_temperature(ent_coef: str | float) -> float:
    """Returns what alpha starts with.

    Raises:
        UsageError: it is neither a number from 0 nor ``auto``, alone or with a number above 0.
    """
    if isinstance(ent_coef, str):
        kind, _, number = ent_coef.partition("_")
        try:
            value = float(number) if "_" in ent_coef else 1.0
        except ValueError:
            value = math.nan
        if kind == "auto" and 0 < value < math.inf:
            return value
    elif 0 <= ent_coef < math.inf:
        return float(ent_coef)
    raise UsageError(f"ent_coef is {ent_coef!r}; allowed are a number from 0, auto, and auto_NUMBER such as auto_0.1")
