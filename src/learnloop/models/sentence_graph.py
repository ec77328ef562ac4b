"""The ONNX graph of a BERT sentence model, written straight from its weights. Needs the package onnx, and no torch.

The graph reads one text at a time. Dynamic quantisation takes the range of a whole tensor, so that in a batch the
vector of a text would depend on its neighbours; alone it is the same wherever and whenever it is computed. It also
makes mask and padding needless: the mean over the tokens of one text is the masked mean of a padded one.

Source: Devlin et al. 2019, "BERT", section 3, and Vaswani et al. 2017, section 3.2 (the layers); Reimers and Gurevych
2019, "Sentence-BERT", section 3 (mean pooling); Jacob et al. 2018, "Quantization and Training of Neural Networks for
Efficient Integer-Arithmetic-Only Inference", section 2.1 (integers and scales).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32
from learnloop.core.errors import needs_extra

Weights = Mapping[str, NDArray[Any]]
Precision = Literal["int8", "float32"]

RECIPE = "1"
"""Changes with every change of what this file writes."""
NUM_LAYERS = 6
NUM_HEADS = 12
LAYER_NORM_EPSILON = 1e-12
MAX_LEVEL = 63
"""The largest quantised weight of a matrix. AVX2 adds two products of 8 bits in 16, which holds 2 x 255 x 63 and not
2 x 255 x 127: so the integers, and with them the vectors, are the same on processors with and without VNNI."""
MAX_TABLE_LEVEL = 127
"""The same of the table of words, which is multiplied with nothing but its scales."""
OPSET = 17
IR_VERSION = 8


def sentence_graph(weights: Weights, precision: Precision, progress: Callable[[str], None]) -> bytes:
    """Returns the model: ``ids``, int64 of shape ``(num_tokens,)``, to ``vector``, float32 of shape ``(width,)``.

    The vector has the length 1. The same weights and precision give the same bytes.

    Args:
        weights: by the names that BERT's checkpoints have.
        precision: ``int8``: the matrices are integers with a scale for each column, the table of words with one for
            each word; activations are quantised as they come. ``float32``: nothing is.
        progress: is told what is being written.

    Raises:
        MissingExtraError: onnx is not installed.
    """
    with needs_extra("making the local embedding model", "embeddings"):
        from onnx import TensorProto, checker, helper
    writer = _Writer(precision)
    hidden = _embeddings(writer, weights)
    for layer in range(NUM_LAYERS):
        progress(f"layer {layer + 1} of {NUM_LAYERS}")
        hidden = _layer(writer, weights, f"encoder.layer.{layer}", hidden)
    mean = writer.node("ReduceMean", hidden, axes=[0], keepdims=0)
    writer.node("LpNormalization", mean, axis=0, p=2, output="vector")
    width = int(weights["embeddings.word_embeddings.weight"].shape[1])
    graph = helper.make_graph(
        writer.nodes,
        "sentence",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["num_tokens"])],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, [width])],
        writer.constants,
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="learnloop")
    checker.check_model(model)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def quantised(matrix: F32, axis: int, max_level: int) -> tuple[NDArray[np.int8], F32]:
    """Returns ``matrix`` as integers of at most ``max_level``, and the scales that give it back, one along ``axis``."""
    largest = np.abs(matrix).max(axis=axis, keepdims=True)
    scales = (np.where(largest > 1e-30, largest, 1.0) / max_level).astype(np.float32)
    return np.rint(matrix / scales).astype(np.int8), scales


class _Writer:
    """Nodes and constants, added one after the other; values go by their names."""

    def __init__(self, precision: Precision) -> None:
        from onnx import helper, numpy_helper

        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._is_quantised = precision == "int8"
        self._make_node = helper.make_node
        self._make_tensor = numpy_helper.from_array
        self._inputs: dict[str, tuple[str, str, str]] = {}

    def constant(self, array: NDArray[Any]) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._make_tensor(np.ascontiguousarray(array), name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    def nodes_of(self, operator: str, *inputs: str, num_outputs: int, **attributes: Any) -> list[str]:
        names = [f"{operator.lower()}_{len(self.nodes)}_{index}" for index in range(num_outputs)]
        self.nodes.append(self._make_node(operator, list(inputs), names, name=names[0], **attributes))
        return names

    def node(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self._make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def rows(self, table: F32, ids: str) -> str:
        """Returns the rows ``ids`` of a table."""
        if not self._is_quantised:
            return self.node("Gather", self.constant(table), ids)
        levels, scales = quantised(table, 1, MAX_TABLE_LEVEL)
        found = self.node("Cast", self.node("Gather", self.constant(levels), ids), to=1)
        return self.node("Mul", found, self.node("Gather", self.constant(scales), ids))

    def linear(self, inputs: str, matrix: F32, bias: F32) -> str:
        """Returns ``inputs @ matrix + bias``."""
        if not self._is_quantised:
            product = self.node("MatMul", inputs, self.constant(matrix))
        else:
            if inputs not in self._inputs:
                levels_in, scale_in, zero_in = self.nodes_of("DynamicQuantizeLinear", inputs, num_outputs=3)
                self._inputs[inputs] = levels_in, scale_in, zero_in
            levels_in, scale_in, zero_in = self._inputs[inputs]
            levels, scales = quantised(matrix, 0, MAX_LEVEL)
            zero = self.constant(np.zeros((), dtype=np.int8))
            whole = self.node("MatMulInteger", levels_in, self.constant(levels), zero_in, zero)
            scale = self.node("Mul", scale_in, self.constant(scales[0]))
            product = self.node("Mul", self.node("Cast", whole, to=1), scale)
        return self.node("Add", product, self.constant(bias))

    def normalised(self, inputs: str, weights: Weights, name: str) -> str:
        scale, shift = self.constant(weights[f"{name}.weight"]), self.constant(weights[f"{name}.bias"])
        return self.node("LayerNormalization", inputs, scale, shift, axis=-1, epsilon=LAYER_NORM_EPSILON)

    def gelu(self, inputs: str) -> str:
        """Returns the exact form, by the error function."""
        scaled = self.node("Div", inputs, self.constant(np.array(np.sqrt(2.0), dtype=np.float32)))
        one_more = self.node("Add", self.node("Erf", scaled), self.constant(np.array(1.0, dtype=np.float32)))
        return self.node("Mul", self.node("Mul", inputs, one_more), self.constant(np.array(0.5, dtype=np.float32)))


def _embeddings(writer: _Writer, weights: Weights) -> str:
    words = writer.rows(weights["embeddings.word_embeddings.weight"], "ids")
    places = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    length = writer.node("Shape", "ids")
    taken = writer.node("Slice", writer.constant(places), writer.integers(0), length, writer.integers(0))
    return writer.normalised(writer.node("Add", words, taken), weights, "embeddings.LayerNorm")


def _layer(writer: _Writer, weights: Weights, name: str, hidden: str) -> str:
    def linear(inputs: str, part: str) -> str:
        return writer.linear(inputs, weights[f"{name}.{part}.weight"].T, weights[f"{name}.{part}.bias"])

    seen = linear(_attention(writer, weights, f"{name}.attention.self", hidden), "attention.output.dense")
    hidden = writer.normalised(writer.node("Add", seen, hidden), weights, f"{name}.attention.output.LayerNorm")
    seen = linear(writer.gelu(linear(hidden, "intermediate.dense")), "output.dense")
    return writer.normalised(writer.node("Add", seen, hidden), weights, f"{name}.output.LayerNorm")


def _attention(writer: _Writer, weights: Weights, name: str, hidden: str) -> str:
    """Returns what each token takes from the others; the scale of the products is part of the queries' weights."""
    width = int(weights[f"{name}.query.weight"].shape[0])
    size = width // NUM_HEADS
    factors = {"query": np.float32(1.0 / np.sqrt(size)), "key": np.float32(1.0), "value": np.float32(1.0)}
    matrix = np.concatenate([weights[f"{name}.{part}.weight"].T * factor for part, factor in factors.items()], axis=1)
    bias = np.concatenate([weights[f"{name}.{part}.bias"] * factor for part, factor in factors.items()])
    together = writer.linear(hidden, matrix, bias)
    parts = writer.node("Reshape", together, writer.integers(-1, 3, NUM_HEADS, size))
    queries, keys, values = writer.nodes_of("Split", parts, num_outputs=3, axis=1)
    one = writer.integers(1)
    query = writer.node("Transpose", writer.node("Squeeze", queries, one), perm=[1, 0, 2])
    key = writer.node("Transpose", writer.node("Squeeze", keys, one), perm=[1, 2, 0])
    value = writer.node("Transpose", writer.node("Squeeze", values, one), perm=[1, 0, 2])
    attended = writer.node("Softmax", writer.node("MatMul", query, key), axis=-1)
    taken = writer.node("Transpose", writer.node("MatMul", attended, value), perm=[1, 0, 2])
    return writer.node("Reshape", taken, writer.integers(-1, width))
