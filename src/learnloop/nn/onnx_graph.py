"""An ONNX graph of a policy's arithmetic. The only module that imports onnx; importing it without onnx raises.

Operators are those of opset 17, which onnxruntime has since 1.12 and other runtimes for as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32
from learnloop.core.errors import MissingExtraError
from learnloop.nn.mlp.layers import EPSILON
from learnloop.nn.mlp.layout import Layout
from learnloop.nn.mlp.network import MLP

try:
    from onnx import NodeProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper
except ImportError as error:
    raise MissingExtraError("the format onnx", "onnx") from error

OPSET = 17
IR_VERSION = 8
"""The version of the file format that came with the opset."""
BATCH = "batch"
"""The name of the dimension that counts rows."""

_TYPES: Mapping[str, int] = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}


class Graph:
    """Nodes, constants, inputs and outputs, added one after the other; values go by their names."""

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []

    def input(self, name: str, kind: str, width: int) -> str:
        """Adds an input of shape ``(batch, width)`` and kind ``f`` (float32) or ``b`` (bool); returns its name."""
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], [BATCH, width]))
        return name

    def output(self, name: str, kind: str, value: str, shape: Sequence[int]) -> None:
        """Names ``value`` as an output of shape ``(batch, *shape)`` and kind ``f`` (float32) or ``i`` (int64)."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name=name))
        self._outputs.append(helper.make_tensor_value_info(name, _TYPES[kind], [BATCH, *shape]))

    def constant(self, array: NDArray[Any]) -> str:
        """Adds a constant; returns its name."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def floats(self, values: Any) -> str:
        """Adds a constant of type float32; returns its name."""
        return self.constant(np.asarray(values, dtype=np.float32))

    def integers(self, *values: int) -> str:
        """Adds a constant vector of type int64; returns its name."""
        return self.constant(np.array(values, dtype=np.int64))

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Adds an operator; returns the name of its output."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def columns(self, value: str, start: int, stop: int) -> str:
        """Returns the columns ``start`` to ``stop`` of a matrix."""
        return self.node("Slice", value, self.integers(start), self.integers(stop), self.integers(1))

    def join(self, values: Sequence[str]) -> str:
        """Returns matrices side by side."""
        return values[0] if len(values) == 1 else self.node("Concat", *values, axis=1)

    def repeated(self, values: F32, like: str) -> str:
        """Returns ``values``, shape ``(width,)``, once for each row of ``like``."""
        rows = self.node("Shape", like, start=0, end=1)
        shape = self.node("Concat", rows, self.integers(len(values)), axis=0)
        return self.node("Expand", self.floats(values), shape)

    def to_bytes(self, name: str, version: str, metadata: Mapping[str, str]) -> bytes:
        """Returns the checked model as the bytes of a file; the same graph gives the same bytes.

        Args:
            name: of the graph.
            version: of the package that made it.
            metadata: what the model says of itself.
        """
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._constants)
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(
            graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="learnloop", producer_version=version
        )
        helper.set_model_props(model, dict(metadata))
        checker.check_model(model, full_check=True)
        data: bytes = model.SerializeToString(deterministic=True)
        return data


def add_mlp(graph: Graph, network: MLP, inputs: str) -> str:
    """Adds what ``network`` computes without dropout; returns its outputs, shape ``(batch, output_size)``."""
    config, layout, tensors = network.config, Layout(network.config), network.layers()

    def tensor(name: str, *shape: int) -> str:
        return graph.floats(network.parameters[tensors[name]].reshape(shape))

    def linear(seen: str, name: str, num_outputs: int, num_inputs: int) -> str:
        weight, bias = tensor(f"{name}.weight", num_outputs, num_inputs), tensor(f"{name}.bias", num_outputs)
        return graph.node("Gemm", seen, weight, bias, transB=1)

    def hidden(tower: str) -> str:
        seen = inputs
        for index, (width, num_inputs) in enumerate(layout.hidden_shapes()):
            seen = linear(seen, f"{tower}.{index}", width, num_inputs)
            if config.layer_norm:
                scale, shift = tensor(f"{tower}.{index}.scale", width), tensor(f"{tower}.{index}.shift", width)
                seen = graph.node("LayerNormalization", seen, scale, shift, epsilon=float(EPSILON))
            seen = graph.node("Tanh" if config.activation == "tanh" else "Relu", seen)
        return seen

    towers = {tower: hidden(tower) for tower in layout.towers}
    parts = []
    for head in config.heads:
        if head.constant:
            parts.append(graph.repeated(network.parameters[tensors[head.name]], inputs))
        else:
            seen = towers[head.name] if layout.is_stacked else towers["trunk"]
            parts.append(linear(seen, f"{head.name}.{len(config.hidden)}", head.size, layout.head_inputs))
    return graph.join(parts)
