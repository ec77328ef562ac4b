"""The forward and backward pass of an MLP for one batch size, on buffers that are kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from learnloop.core.arrays import F32, I64, Indices
from learnloop.nn.mlp.config import MLPConfig
from learnloop.nn.mlp.layers import HiddenLayer, RowNorm
from learnloop.nn.mlp.layout import HeadTensors, HiddenTensors, Tensors

Tables = tuple[F32, ...]
_Product = tuple[Callable[[F32, F32], F32], F32 | None, F32]
"""A weight's ``dot``, what it is multiplied with (None: the input), and where the product belongs."""
_RowStep = tuple[list[_Product], F32, F32, RowNorm | None, F32 | None, F32, int]
"""A hidden layer of all towers, for one row: its products, the vector that they fill, bias, LayerNorm, what relu
compares with (None: tanh), the vector again in the shape ``(num_towers, width)``, and which layer it is. A plain tuple:
the interpreter takes a named one apart more slowly."""

MOST_ROWS = 0.75
"""The gradient of the inputs goes by rows if there is one for at most this share of the rows of all towers."""


class Pass:
    """What is computed between two changes of the parameters, for batches of one size.

    Outputs lie transposed, ``(output_size, batch)``: the few of one kind are then long rows, which makes what follows
    (biases, sums over actions, losses) several times faster than many short rows.
    """

    def __init__(self, config: MLPConfig, tensors: Tensors, gradients: Tensors, batch: int) -> None:
        self._tensors = tensors
        self._gradients = gradients
        self.layers = [
            HiddenLayer(own, gradient, batch, config.activation, index == 0)
            for index, (own, gradient) in enumerate(zip(tensors.hidden, gradients.hidden, strict=True))
        ]
        self._products = np.zeros((config.output_size, batch), dtype=np.float32)
        self._head_products = [self._products[head.outputs] for head in tensors.heads]
        self._bias = tensors.output_bias[:, None]
        self._outputs = np.empty_like(self._products)
        self._returned = self._outputs.T
        self._inputs: F32 = np.empty((batch, 0), dtype=np.float32)
        self._backward: _BackwardBuffers | None = None
        self._can_go_by_rows = (
            bool(self.layers) and len(tensors.heads) > 1 and not config.shared and not config.layer_norm
        )

    def forward(self, inputs: F32, tables: Tables, masks: I64 | None) -> F32:
        """Returns the outputs, shape ``(batch, output_size)``."""
        self._inputs = seen = inputs
        for index, layer in enumerate(self.layers):
            seen = layer.forward(seen, tables[index] if tables else None, masks)
        for head, product in zip(self._tensors.heads, self._head_products, strict=True):
            np.matmul(head.weight, (seen[head.tower] if self.layers else seen).T, product)
        np.add(self._products, self._bias, self._outputs)
        return self._returned

    def backward(self, output_gradient: F32, parameters: bool, inputs: bool) -> F32 | None:
        """Writes the gradients of the tensors if wanted, and returns those of the inputs if wanted."""
        buffers = self._backward
        if buffers is None:
            buffers = self._backward = _BackwardBuffers(self._products, self._tensors.heads)
        np.copyto(buffers.output_gradient.T, output_gradient)
        if inputs and not parameters and self._can_go_by_rows:
            rows = [np.flatnonzero(gradient.any(axis=0)) for gradient in buffers.head_gradients]
            if sum(map(len, rows)) <= MOST_ROWS * len(rows) * len(self._inputs):
                return self._input_gradient_by_rows(buffers, rows)
        if parameters:
            self._head_gradients(buffers)
        if not self.layers:
            return self._linear_input_gradient(buffers) if inputs else None
        self._spread(buffers, self.layers[-1].gradient_buffer())
        for index in range(len(self.layers) - 1, 0, -1):
            layer, below = self.layers[index], self.layers[index - 1]
            layer.backward(below.outputs, parameters)
            np.matmul(layer.gradient, layer.weight, below.gradient_buffer())
        if not (parameters or inputs):
            return None
        first = self.layers[0]
        first.backward(self._inputs, parameters)
        return _input_gradient(first) if inputs else None

    def _head_gradients(self, buffers: _BackwardBuffers) -> None:
        seen = self.layers[-1].outputs if self.layers else self._inputs
        np.matmul(buffers.output_gradient, buffers.ones, self._gradients.output_bias)
        for head, gradient in zip(self._gradients.heads, buffers.head_gradients, strict=True):
            np.matmul(gradient, seen[head.tower] if self.layers else seen, head.weight)

    def _spread(self, buffers: _BackwardBuffers, target: F32) -> None:
        """Writes the gradient with respect to what the heads saw."""
        written: set[int] = set()
        for head, gradient in zip(self._tensors.heads, buffers.head_gradients, strict=True):
            if head.tower in written:  # heads of a trunk with a constant one between them
                target[head.tower] += gradient.T @ head.weight
            else:  # the outer product of a single output is no work for BLAS
                multiply = np.multiply if len(gradient) == 1 else np.matmul
                multiply(gradient.T, head.weight, target[head.tower])
                written.add(head.tower)

    def _input_gradient_by_rows(self, buffers: _BackwardBuffers, rows: list[Indices]) -> F32:
        """Returns the gradient of the inputs where each tower has one for some rows only: the others cost nothing.

        So it is behind the lesser one of two critics, which is another one in each row.
        """
        total = np.zeros(self._inputs.shape, dtype=np.float32)
        for head, gradient, chosen in zip(self._tensors.heads, buffers.head_gradients, rows, strict=True):
            # the outer product of a single output is no work for BLAS
            multiply = np.multiply if len(gradient) == 1 else np.matmul
            found: F32 = multiply(gradient[:, chosen].T, head.weight)
            for layer in reversed(self.layers):
                layer.pull(found, head.tower, chosen)
                found = found @ layer.weight[head.tower]
            total[chosen] += found
        return total

    def _linear_input_gradient(self, buffers: _BackwardBuffers) -> F32:
        total = np.zeros(self._inputs.shape, dtype=np.float32)
        for head, gradient in zip(self._tensors.heads, buffers.head_gradients, strict=True):
            total += gradient.T @ head.weight
        return total


class _BackwardBuffers:
    def __init__(self, products: F32, heads: tuple[HeadTensors, ...]) -> None:
        self.output_gradient = np.empty_like(products)
        self.head_gradients = [self.output_gradient[head.outputs] for head in heads]
        self.ones = np.ones(products.shape[1], dtype=np.float32)


def _input_gradient(first: HiddenLayer) -> F32:
    parts = np.matmul(first.gradient, first.weight)
    result: F32 = parts[0] if len(parts) == 1 else np.add.reduce(parts, axis=0)
    return result


class RowPass:
    """``forward`` for one row: as few calls as can be, each on contiguous vectors of all towers."""

    def __init__(self, config: MLPConfig, tensors: Tensors) -> None:
        self._steps: list[_RowStep] = []
        seen: list[F32 | None] = [None]
        for hidden in tensors.hidden:
            step = _row_step(hidden, seen, config.activation, len(self._steps))
            self._steps.append(step)
            *_, outputs, _index = step
            seen = list(outputs)
        self._products = np.zeros(config.output_size, dtype=np.float32)
        self._heads: list[_Product] = [
            (head.weight.dot, seen[head.tower], self._products[head.outputs]) for head in tensors.heads
        ]
        self._bias = tensors.output_bias
        self._outputs = np.empty_like(self._products)
        self._returned = self._outputs[None]

    def forward(self, inputs: F32, tables: Tables = (), mask: int | None = None) -> F32:
        """Returns the outputs, shape ``(1, output_size)``.

        Args:
            inputs: shape ``(1, input_size)``.
            tables: the dropout masks of each hidden layer; looked at only where there is a ``mask``.
            mask: which of them; None: no dropout.
        """
        row = inputs[0]
        add, tanh = np.add, np.tanh
        for products, flat, bias, norm, zeros, outputs, index in self._steps:
            for multiply, seen, target in products:
                multiply(row if seen is None else seen, target)
            add(flat, bias, flat)
            if norm is not None:
                norm.forward()
            if zeros is None:
                tanh(flat, flat)
            else:
                np.maximum(flat, zeros, out=flat)
            if mask is not None:
                np.multiply(outputs, tables[index][:, mask], outputs)
        for multiply, seen, target in self._heads:
            multiply(row if seen is None else seen, target)
        add(self._products, self._bias, self._outputs)
        return self._returned


def _row_step(tensors: HiddenTensors, seen: list[F32 | None], activation: str, index: int) -> _RowStep:
    """Returns a layer over what each tower has ``seen``; None: the input."""
    num_towers, width, num_inputs = tensors.weight.shape
    flat = np.empty(num_towers * width, dtype=np.float32)
    outputs = flat.reshape(num_towers, width)
    if seen[0] is None:  # all towers see the input: one product
        products: list[_Product] = [(tensors.weight.reshape(-1, num_inputs).dot, None, flat)]
    else:
        products = [(tensors.weight[tower].dot, seen[tower], outputs[tower]) for tower in range(num_towers)]
    norm = None if tensors.norm is None else RowNorm(tensors.norm, outputs)
    zeros = None if activation == "tanh" else np.zeros_like(flat)
    return products, flat, tensors.bias.reshape(-1), norm, zeros, outputs, index
