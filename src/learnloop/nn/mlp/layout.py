"""Where the tensors of an MLP lie in its flat vector, and how they start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from learnloop.core.arrays import F32
from learnloop.core.seeding import generator
from learnloop.nn.mlp.config import Head, MLPConfig
from learnloop.nn.mlp.initialisation import uniform_biases, weights


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
