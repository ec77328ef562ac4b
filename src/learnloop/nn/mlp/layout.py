"""Where the tensors of an MLP lie in its flat vector, and how they start."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F32, F64
from learnloop.core.errors import UsageError, one_of
from learnloop.core.seeding import generator
from learnloop.nn.mlp.config import Head, MLPConfig

HIDDEN_GAIN = math.sqrt(2)
"""The gain of hidden layers in ``orthogonal``, as in Stable-Baselines3, and in ``he``."""


class HiddenTensors(NamedTuple):
    """One hidden layer of all towers: views into a flat vector."""

    weight: F32
    """Shape ``(num_towers, width, num_inputs)``."""
    bias: F32
    """Shape ``(num_towers, 1, width)``."""
    norm: tuple[F32, F32] | None
    """LayerNorm's scale and shift, as many; None without it."""


class HeadTensors(NamedTuple):
    """Heads that are computed in one matrix product: a view into a flat vector."""

    tower: int
    outputs: slice
    """Which outputs of the network they are."""
    weight: F32
    """Shape ``(num_outputs, num_inputs)``."""


class Tensors(NamedTuple):
    """All views into one flat vector."""

    hidden: tuple[HiddenTensors, ...]
    heads: tuple[HeadTensors, ...]
    output_bias: F32
    """The biases of the heads, and the constant heads themselves, shape ``(output_size,)``."""


class Layout:
    """Hidden layers first, towers side by side in each; then weights of heads; then what is added to the outputs.

    So one operation computes a layer of all towers, and one adds biases and constant heads.
    """

    def __init__(self, config: MLPConfig) -> None:
        self.config = config
        heads = [head for head in config.heads if not head.constant]
        self.is_stacked = bool(config.hidden) and not config.shared
        self.towers = [head.name for head in heads] if self.is_stacked else ["trunk"]
        self.slices: dict[str, slice] = {}
        self.size = 0
        for index, (width, num_inputs) in enumerate(self.hidden_shapes()):
            for part, size in self._parts(width, num_inputs):
                for tower in self.towers:
                    self._add(f"{tower}.{index}.{part}", size)
        for head in heads:
            self._add(f"{head.name}.{len(config.hidden)}.weight", head.size * self.head_inputs)
        self.output_start = self.size
        for head in config.heads:
            self._add(head.name if head.constant else f"{head.name}.{len(config.hidden)}.bias", head.size)

    @property
    def head_inputs(self) -> int:
        """How many numbers a head sees."""
        return self.config.hidden[-1] if self.config.hidden else self.config.input_size

    def hidden_shapes(self) -> list[tuple[int, int]]:
        """Returns the width and the number of inputs of each hidden layer."""
        config = self.config
        return list(zip(config.hidden, (config.input_size, *config.hidden), strict=False))

    def _parts(self, width: int, num_inputs: int) -> list[tuple[str, int]]:
        parts = [("weight", width * num_inputs), ("bias", width)]
        return [*parts, ("scale", width), ("shift", width)] if self.config.layer_norm else parts

    def _add(self, name: str, size: int) -> None:
        self.slices[name] = slice(self.size, self.size + size)
        self.size += size

    def views(self, vector: F32) -> Tensors:
        """Returns the tensors in ``vector``, shape ``(size,)``."""
        count, start = len(self.towers), 0
        hidden = []
        for width, num_inputs in self.hidden_shapes():
            tensors: list[F32] = []
            for part, size in self._parts(width, num_inputs):
                shape = (count, width, num_inputs) if part == "weight" else (count, 1, width)
                tensors.append(vector[start : start + count * size].reshape(shape))
                start += count * size
            norm = (tensors[2], tensors[3]) if self.config.layer_norm else None
            hidden.append(HiddenTensors(tensors[0], tensors[1], norm))
        return Tensors(tuple(hidden), tuple(self._head_views(vector, start)), vector[self.output_start :])

    def _head_views(self, vector: F32, start: int) -> Iterator[HeadTensors]:
        for number, (first, size) in enumerate(self._head_groups()):
            end = start + size * self.head_inputs
            weight = vector[start:end].reshape(size, self.head_inputs)
            yield HeadTensors(number if self.is_stacked else 0, slice(first, first + size), weight)
            start = end

    def _head_groups(self) -> list[tuple[int, int]]:
        """Returns the first output and the size of heads that lie side by side and see the same."""
        groups: list[tuple[int, int]] = []
        position = 0
        for head in self.config.heads:
            joins = bool(groups) and not self.is_stacked and sum(groups[-1]) == position
            if not head.constant and joins:
                groups[-1] = (groups[-1][0], groups[-1][1] + head.size)
            elif not head.constant:
                groups.append((position, head.size))
            position += head.size
        return groups

    def initialise(self, vector: F32, seed: int) -> None:
        """Writes what the parameters start with; each tensor has a random stream of its own."""
        config = self.config
        vector[:] = 0
        for index, (width, num_inputs) in enumerate(self.hidden_shapes()):
            for tower in self.towers:
                self._start(vector, f"{tower}.{index}", (width, num_inputs), seed)
                if config.layer_norm:
                    vector[self.slices[f"{tower}.{index}.scale"]] = 1
        for head in config.heads:
            if head.constant:
                vector[self.slices[head.name]] = head.initial
            else:
                self._start_head(vector, head, seed)

    def _start_head(self, vector: F32, head: Head, seed: int) -> None:
        self._start(vector, f"{head.name}.{len(self.config.hidden)}", (head.size, self.head_inputs), seed, head.gain)

    def _start(self, vector: F32, name: str, shape: tuple[int, int], seed: int, gain: float | None = None) -> None:
        init, rng = self.config.init, generator(seed, "mlp", name)
        vector[self.slices[f"{name}.weight"]] = weights(init, rng, *shape, gain=gain).ravel()
        if init == "uniform":  # torch's biases are as wide as its weights
            vector[self.slices[f"{name}.bias"]] = uniform_biases(rng, *shape)


def orthogonal(rng: np.random.Generator, num_outputs: int, num_inputs: int, gain: float) -> F64:
    """Returns ``gain`` times a random matrix whose rows, or columns if they are fewer, are orthonormal.

    Source: Saxe et al. 2013, Exact solutions to the nonlinear dynamics of learning in deep linear neural networks,
    section 3; uniform over such matrices by the signs of R, as Mezzadri 2007, section 5.
    """
    tall = rng.standard_normal((max(num_outputs, num_inputs), min(num_outputs, num_inputs)))
    q, r = np.linalg.qr(tall)
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    result: F64 = gain * (q if num_outputs >= num_inputs else q.T)
    return result


def xavier(rng: np.random.Generator, num_outputs: int, num_inputs: int, gain: float) -> F64:
    """Returns uniform draws of variance ``gain² · 2 / (num_inputs + num_outputs)``.

    Source: Glorot and Bengio 2010, Understanding the difficulty of training deep feedforward neural networks,
    equation 16.
    """
    bound = gain * math.sqrt(6 / (num_inputs + num_outputs))
    return rng.uniform(-bound, bound, (num_outputs, num_inputs))


def he(rng: np.random.Generator, num_outputs: int, num_inputs: int, gain: float) -> F64:
    """Returns normal draws of variance ``gain² / num_inputs``.

    Source: He et al. 2015, Delving Deep into Rectifiers, equation 10 (its factor 2 is the gain of hidden layers).
    """
    return rng.normal(0, gain / math.sqrt(num_inputs), (num_outputs, num_inputs))


def uniform(rng: np.random.Generator, num_outputs: int, num_inputs: int) -> F64:
    """Returns uniform draws within ``1 / √num_inputs``: what ``torch.nn.Linear`` starts with."""
    bound = 1 / math.sqrt(num_inputs)
    return rng.uniform(-bound, bound, (num_outputs, num_inputs))


def uniform_biases(rng: np.random.Generator, num_outputs: int, num_inputs: int) -> F64:
    """Returns the biases that go with ``uniform``, shape ``(num_outputs,)``."""
    bound = 1 / math.sqrt(num_inputs)
    return rng.uniform(-bound, bound, num_outputs)


def weights(
    init: str, rng: np.random.Generator, num_outputs: int, num_inputs: int, *, gain: float | None = None
) -> F64:
    """Returns the weights that a layer starts with, shape ``(num_outputs, num_inputs)``.

    Args:
        init: ``orthogonal``, ``xavier``, ``he`` or ``uniform``.
        rng: draws them.
        num_outputs: of the layer.
        num_inputs: of the layer.
        gain: of a head; None: a hidden layer, whose gain is √2, in ``xavier`` 1. ``uniform`` has none.
    """
    if init == "orthogonal":
        return orthogonal(rng, num_outputs, num_inputs, HIDDEN_GAIN if gain is None else gain)
    if init == "xavier":
        return xavier(rng, num_outputs, num_inputs, 1.0 if gain is None else gain)
    if init == "he":
        return he(rng, num_outputs, num_inputs, HIDDEN_GAIN if gain is None else gain)
    if init == "uniform":
        return uniform(rng, num_outputs, num_inputs)
    raise UsageError(f"init is {init!r}; allowed is {one_of(['orthogonal', 'xavier', 'he', 'uniform'])}")
