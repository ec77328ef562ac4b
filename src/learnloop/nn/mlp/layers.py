"""One hidden layer of all towers of an MLP, bound to its tensors and to buffers for one batch size.

Arrays have the shape ``(num_towers, batch, width)``: towers are computed together, because below some ten thousand
numbers a call of numpy costs more than its arithmetic. Nothing here allocates after the first call.
"""

from __future__ import annotations

import numpy as np

from learnloop.core.arrays import F32, I64, Bools, Indices
from learnloop.nn.mlp.layout import HiddenTensors

WIDE = 128
"""From so many inputs on, a product for all towers at once is faster than one for each."""
EPSILON = np.array(1e-5, dtype=np.float32)
"""Keeps LayerNorm from dividing by 0; the value of ``torch.nn.LayerNorm``."""

MANY = 8192
"""From so many numbers on, tanh by way of exp is faster than numpy's where it has no AVX-512."""

# Arrays without a dimension: a ufunc takes them as they are, and would convert a Python number in each call.
_ZERO = np.array(0, dtype=np.float32)
_ONE = np.array(1, dtype=np.float32)
_TWO = np.array(2, dtype=np.float32)
_MINUS_TWO = np.array(-2, dtype=np.float32)


def _tanh(values: F32) -> None:
    """Replaces ``values`` by their tanh, 2 / (1 + exp(-2 x)) - 1, to within 2e-7."""
    with np.errstate(over="ignore"):  # exp is infinite from x = -44 on, and the result -1
        np.multiply(values, _MINUS_TWO, values)
        np.exp(values, values)
    np.add(values, _ONE, values)
    np.divide(_TWO, values, values)
    np.subtract(values, _ONE, values)


class Activation:
    """An elementwise function and its derivative, in place, for arrays of one shape."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self._is_tanh = name == "tanh"
        # numpy has a fast maximum of two arrays only; that of an array and a number takes three times as long.
        self._zeros = np.zeros(0 if self._is_tanh else shape, dtype=np.float32)
        self._scratch: F32 = np.empty(0, dtype=np.float32)
        self._positive: Bools = np.empty(0, dtype=np.bool_)

    def apply(self, values: F32) -> None:
        """Replaces ``values`` by the function of them."""
        if not self._is_tanh:
            np.maximum(values, self._zeros, out=values)
        elif values.size < MANY:
            np.tanh(values, values)
        else:
            _tanh(values)

    def backward(self, gradient: F32, values: F32) -> None:
        """Multiplies ``gradient`` with the derivative, found from ``values``, what ``apply`` gave."""
        if self._is_tanh:
            if not self._scratch.size:
                self._scratch = np.empty_like(values)
            np.multiply(values, values, self._scratch)
            np.subtract(_ONE, self._scratch, self._scratch)
            np.multiply(gradient, self._scratch, gradient)
        else:
            if not self._positive.size:
                self._positive = np.empty(values.shape, dtype=np.bool_)
            np.greater(values, _ZERO, self._positive)
            np.multiply(gradient, self._positive, gradient)

    def pull(self, gradient: F32, values: F32) -> None:
        """Does as ``backward``, for arrays of another shape."""
        gradient *= 1 - values * values if self._is_tanh else values > 0


class LayerNorm:
    """Brings the units of each row to mean 0 and variance 1, then scales and shifts them.

    Source: Ba et al. 2016, Layer Normalization, equation 4.
    """

    def __init__(self, tensors: tuple[F32, F32], gradients: tuple[F32, F32], shape: tuple[int, ...]) -> None:
        self._scale, self._shift = tensors
        self._scale_gradient, self._shift_gradient = gradients
        self._mean_of = np.full((shape[-1], 1), 1 / shape[-1], dtype=np.float32)
        self._sum_of = np.ones((1, shape[1]), dtype=np.float32)
        self._normal = np.empty(shape, dtype=np.float32)
        self._scratch = np.empty(shape, dtype=np.float32)
        self._row = np.empty((*shape[:2], 1), dtype=np.float32)
        self._deviation = np.empty((*shape[:2], 1), dtype=np.float32)

    def forward(self, values: F32) -> None:
        """Replaces ``values``."""
        normal, row, deviation = self._normal, self._row, self._deviation
        np.matmul(values, self._mean_of, row)
        np.subtract(values, row, normal)
        np.multiply(normal, normal, self._scratch)
        np.matmul(self._scratch, self._mean_of, deviation)
        np.add(deviation, EPSILON, deviation)
        np.sqrt(deviation, deviation)
        np.divide(normal, deviation, normal)
        np.multiply(normal, self._scale, values)
        np.add(values, self._shift, values)

    def backward(self, gradient: F32, parameters: bool) -> None:
        """Replaces ``gradient`` by that with respect to what ``forward`` was given.

        With n the normalised values and g the gradient with respect to them: (g - mean(g) - n mean(g n)) / deviation.
        """
        normal, row, scratch = self._normal, self._row, self._scratch
        if parameters:
            np.multiply(gradient, normal, scratch)
            np.matmul(self._sum_of, scratch, self._scale_gradient)
            np.matmul(self._sum_of, gradient, self._shift_gradient)
        np.multiply(gradient, self._scale, gradient)
        np.multiply(gradient, normal, scratch)
        np.matmul(scratch, self._mean_of, row)
        np.multiply(normal, row, scratch)
        np.matmul(gradient, self._mean_of, row)
        np.subtract(gradient, row, gradient)
        np.subtract(gradient, scratch, gradient)
        np.divide(gradient, self._deviation, gradient)


class RowNorm:
    """LayerNorm of one row, in place, with half of the calls.

    Args:
        tensors: scale and shift.
        values: what it replaces, contiguous, shape ``(num_towers, width)``.
    """

    def __init__(self, tensors: tuple[F32, F32], values: F32) -> None:
        num_towers, width = values.shape
        self._values = values
        self._flat = values.reshape(-1)
        self._scale, self._shift = (each.reshape(-1) for each in tensors)
        self._mean_of = np.full(width, 1 / width, dtype=np.float32)
        self._share = np.array(1 / width, dtype=np.float32)
        self._moment = np.empty(num_towers, dtype=np.float32)
        self._column = self._moment[:, None]

    def forward(self) -> None:
        """Replaces the values."""
        values, flat, moment = self._values, self._flat, self._moment
        np.matmul(values, self._mean_of, moment)
        np.subtract(values, self._column, values)
        np.vecdot(values, values, moment)
        np.multiply(moment, self._share, moment)
        np.add(moment, EPSILON, moment)
        np.sqrt(moment, moment)
        np.divide(values, self._column, values)
        np.multiply(flat, self._scale, flat)
        np.add(flat, self._shift, flat)


class HiddenLayer:
    """Linear -> LayerNorm -> activation -> dropout, for one batch size."""

    def __init__(
        self, tensors: HiddenTensors, gradients: HiddenTensors, batch: int, activation: str, is_first: bool
    ) -> None:
        num_towers, width, num_inputs = tensors.weight.shape
        shape = (num_towers, batch, width)
        self.weight = tensors.weight
        self._weight_transposed = tensors.weight.transpose(0, 2, 1)
        self._gradients = gradients
        self.values: F32 = np.empty(shape, dtype=np.float32)
        """What the activation gave."""
        self.outputs = self.values
        """What the next layer sees: ``values``, or what dropout left of them."""
        self._activation = Activation(activation, shape)
        self._norm: LayerNorm | None = None
        if tensors.norm is not None and gradients.norm is not None:
            self._norm = LayerNorm(tensors.norm, gradients.norm, shape)
        product = self.values
        if is_first and num_towers > 1 and num_inputs >= WIDE:
            joined = np.empty((batch, num_towers * width), dtype=np.float32)
            self._joined: F32 | None = joined
            self._joined_weight = tensors.weight.reshape(-1, num_inputs).T
            product = joined.reshape(batch, num_towers, width).transpose(1, 0, 2)
        else:
            self._joined = None
        self._product: F32 = product
        self._bias = tensors.bias
        self._kept = np.empty(0, dtype=np.float32)
        self._dropped = np.empty(0, dtype=np.float32)
        self.gradient = np.empty(0, dtype=np.float32)
        self._gradient_transposed = self.gradient
        self._sum_of = self.gradient

    def forward(self, inputs: F32, tables: F32 | None, masks: I64 | None) -> F32:
        """Returns the outputs for ``inputs``, shape ``(batch, num_inputs)`` or one such array for each tower."""
        values = self.values
        if self._joined is None:
            np.matmul(inputs, self._weight_transposed, values)
        else:
            np.matmul(inputs, self._joined_weight, self._joined)
        np.add(self._product, self._bias, values)
        if self._norm is not None:
            self._norm.forward(values)
        self._activation.apply(values)
        self.outputs = values
        if tables is not None and masks is not None:
            self._drop(tables, masks)
        return self.outputs

    def _drop(self, tables: F32, masks: I64) -> None:
        if not self._kept.size:
            self._kept = np.empty_like(self.values)
            self._dropped = np.empty_like(self.values)
        np.take(tables, masks, axis=1, out=self._kept, mode="clip")
        np.multiply(self.values, self._kept, self._dropped)
        self.outputs = self._dropped

    def gradient_buffer(self) -> F32:
        """Returns where the gradient with respect to the outputs belongs, before ``backward``."""
        if not self.gradient.size:
            self.gradient = np.empty_like(self.values)
            self._gradient_transposed = self.gradient.transpose(0, 2, 1)
            self._sum_of = np.ones((1, self.values.shape[1]), dtype=np.float32)
        return self.gradient

    def pull(self, gradient: F32, tower: int, rows: Indices) -> None:
        """Turns the gradient of some rows of one tower, shape ``(rows, width)``, into that of the linear part."""
        if self.outputs is not self.values:
            gradient *= self._kept[tower, rows]
        self._activation.pull(gradient, self.values[tower].take(rows, axis=0))

    def backward(self, inputs: F32, parameters: bool) -> None:
        """Turns ``gradient`` into that with respect to the linear part, and writes those of the tensors if wanted."""
        gradient = self.gradient
        if self.outputs is not self.values:
            np.multiply(gradient, self._kept, gradient)
        self._activation.backward(gradient, self.values)
        if self._norm is not None:
            self._norm.backward(gradient, parameters)
        if parameters:
            np.matmul(self._gradient_transposed, inputs, self._gradients.weight)
            np.matmul(self._sum_of, gradient, self._gradients.bias)
