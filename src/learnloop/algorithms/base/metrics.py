"""Figures of the updates, gathered cheaply, and those about a network that help where something does not learn."""

from __future__ import annotations

import math

import numpy as np

from learnloop.core.arrays import F32
from learnloop.nn.mlp.network import MLP
from learnloop.nn.network import Network

DORMANT = 0.025
"""A unit whose mean absolute activation is at most this share of its layer's mean is dormant."""
MAX_ROWS = 256
"""How many observations are looked at."""


class Metrics:
    """Running means and latest values by name. Figures are for debugging; none of them is proof of learning."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._latest: dict[str, float] = {}

    def add(self, name: str, value: float, count: int = 1) -> None:
        """Adds ``value``, the sum of ``count`` figures, to the mean called ``name``."""
        self._sums[name] = self._sums.get(name, 0.0) + value
        self._counts[name] = self._counts.get(name, 0) + count

    def set(self, name: str, value: float) -> None:
        """Keeps the latest value of ``name``."""
        self._latest[name] = value

    def peek(self) -> dict[str, float]:
        """Returns the figures since they were last taken, as floats."""
        means = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        return dict(sorted({**means, **{name: float(value) for name, value in self._latest.items()}}.items()))

    def take(self) -> dict[str, float]:
        """Returns the figures since they were last taken, and begins again."""
        found = self.peek()
        self._sums.clear()
        self._counts.clear()
        self._latest.clear()
        return found


class LayerNorms:
    """The norms of the gradient of each tensor of ``network``, under ``train/gradient_norm/`` and its name."""

    def __init__(self, network: Network, prefix: str = "") -> None:
        gradients = network.gradients
        self._parts = [
            (f"train/gradient_norm/{prefix}{name}", gradients[part]) for name, part in network.layers().items()
        ]

    def note(self, metrics: Metrics) -> None:
        """Adds the norms of what the last ``backward`` found to ``metrics``."""
        for name, part in self._parts:
            metrics.add(name, math.sqrt(float(part @ part)))


def dormant_ratio(network: Network, observations: F32 | None = None) -> float | None:
    """Returns the share of hidden units that hardly ever react; None for a network that does not show its units.

    Args:
        network: whose units.
        observations: what they react to; None: what the network's last ``forward`` saw.

    Source: Sokar et al. 2023, The Dormant Neuron Phenomenon in Deep Reinforcement Learning, equation 1.
    """
    if not isinstance(network, MLP):
        return None
    rows = None if observations is None else observations[:MAX_ROWS]
    means = [np.abs(layer).mean(axis=0) for layer in network.activations(rows)]
    if not means:
        return None
    dormant = [scores <= DORMANT * scores.mean() for scores in means]
    return float(np.mean(np.concatenate(dormant)))
