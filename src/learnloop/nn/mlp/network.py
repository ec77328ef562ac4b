"""The default network: a multi-layer perceptron on numpy, with its own forward and backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec
import numpy as np

from learnloop.core.arrays import F32, I64
from learnloop.core.errors import UsageError
from learnloop.core.seeding import generator
from learnloop.nn.mlp.config import Head, MLPConfig
from learnloop.nn.mlp.layout import Layout
from learnloop.nn.mlp.passes import Pass, RowPass, Tables

__all__ = ["MLP", "Head", "MLPConfig"]


_FLOAT32 = np.dtype(np.float32)
NUM_MASKS = 256
"""How many dropout masks a network with dropout has."""
MAX_BATCH_SIZES = 8
"""For so many batch sizes the buffers are kept; then those that were used longest ago are dropped."""


class MLP:
    """An MLP, float32, one contiguous vector of parameters and one of gradients; layers are views of them.

    Dropout is consistent: the network owns ``num_masks`` masks for each hidden layer, drawn once from its seed. A row
    that is learned from through the mask that it was acted on through has the same output as then.

    Rows of a batch do not depend on each other, but the matrix product of BLAS rounds a row by its place in the batch
    and by the batch's size: outputs for the same row in other batches differ by some 1e-7 of the layer's largest
    activations. For the same batch ``forward`` and ``predict`` agree to the bit, but for one row, where ``predict``
    takes a faster path. Numbers that are not finite go through to the outputs.

    Source of dropout: Hausknecht and Wagener 2022, Consistent Dropout for Policy Gradient Reinforcement Learning,
    section 3. A hidden layer is Linear -> LayerNorm -> activation -> dropout.

    Attributes:
        config: its architecture.
        input_size: how many numbers one input has.
        output_size: how many numbers one output has: all heads in the order of the config.
        parameters: shape ``(num_parameters,)``; what is written here counts at once.
        gradients: what the last ``backward`` found, shape ``(num_parameters,)``.
        num_masks: how many dropout masks there are; 0 without dropout.
    """

    def __init__(self, config: MLPConfig, seed: int = 0, *, parameters: F32 | None = None) -> None:
        """Builds the network.

        Args:
            config: its architecture.
            seed: of what parameters start with, and of the dropout masks.
            parameters: copied in the place of new ones, shape ``(num_parameters,)``.
        """
        self.config = config
        self.seed = seed
        self.input_size = config.input_size
        self.output_size = config.output_size
        self.num_masks = NUM_MASKS if config.dropout else 0
        self._layout = Layout(config)
        self.parameters: F32 = np.empty(self._layout.size, dtype=np.float32)
        if parameters is None:
            self._layout.initialise(self.parameters, seed)
        else:
            _check_parameters(parameters, self._layout.size)
            self.parameters[:] = parameters
        self.gradients: F32 = np.zeros_like(self.parameters)
        self._tensors = self._layout.views(self.parameters)
        self._gradient_tensors = self._layout.views(self.gradients)
        self.tables = self._draw_tables()
        self._learning: dict[int, Pass] = {}
        self._acting: dict[int, Pass] = {}
        self._last: Pass | None = None
        self._row_shape = (1, config.input_size)
        self._row_pass = RowPass(config, self._tensors)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], parameters: F32 | None, seed: int = 0) -> Self:
        """Returns the network that ``to_config`` and ``parameters`` describe.

        Args:
            config: what ``to_config`` returned.
            parameters: shape ``(num_parameters,)``, float32.
            seed: of the dropout masks; it does not matter where dropout is off.

        Raises:
            UsageError: the parameters are missing or do not fit.
            msgspec.ValidationError: the config cannot be read.
        """
        architecture = msgspec.convert(config, MLPConfig)
        if parameters is None:
            raise UsageError("the parameters of a network are missing")
        return cls(architecture, seed, parameters=parameters)

    def layers(self) -> Mapping[str, slice]:
        """Returns where each tensor lies in ``parameters``.

        ``TOWER.INDEX.weight`` of shape ``(num_outputs, num_inputs)``, ``.bias``, and ``.scale`` and ``.shift`` of
        LayerNorm. The tower is a head's name, or ``trunk`` where it is shared; the head itself has the last index. A
        constant head goes by its name alone.
        """
        return dict(self._layout.slices)

    def refresh(self) -> None:
        """Does nothing: layers are views of ``parameters``."""

    def forward(self, inputs: F32, masks: I64 | None = None) -> F32:
        """Returns the outputs, shape ``(batch, output_size)``; ``inputs`` must stay as they are until ``backward``."""
        last = self._last = self._pass(self._learning, inputs)
        return last.forward(inputs, self.tables, self._checked(masks, len(inputs)))

    def backward(self, output_gradient: F32, *, parameters: bool = True, inputs: bool = False) -> F32 | None:
        """Writes the gradient of the loss into ``gradients``; returns that of the inputs of the last ``forward``."""
        if self._last is None:
            raise UsageError("backward was called without forward; it goes back through what forward computed")
        return self._last.backward(output_gradient, parameters, inputs)

    def predict(self, inputs: F32, masks: I64 | None = None) -> F32:
        """Returns what ``forward`` would; what ``backward`` needs stays as it is."""
        if inputs.shape == self._row_shape and inputs.dtype is _FLOAT32:
            if masks is None:
                return self._row_pass.forward(inputs)
            self._checked(masks, 1)
            return self._row_pass.forward(inputs, self.tables, int(masks[0]))
        acting = self._pass(self._acting, inputs)
        return acting.forward(inputs, self.tables, self._checked(masks, len(inputs)))

    def activations(self, inputs: F32 | None = None) -> list[F32]:
        """Returns what each hidden layer of each tower gives, before dropout, each of shape ``(batch, width)``.

        Args:
            inputs: shape ``(batch, input_size)``; None: those of the last ``forward``, whose layers are looked at as
                they are and not computed again.
        """
        if inputs is None:
            if self._last is None:
                raise UsageError("activations was called without inputs, and before any forward")
            shown = self._last
        else:
            shown = self._pass(self._acting, inputs)
            shown.forward(inputs, self.tables, None)
        return [tower.copy() for layer in shown.layers for tower in layer.values]

    def copy(self) -> Self:
        """Returns a network of the same architecture and dropout masks with a copy of the parameters."""
        return type(self)(self.config, self.seed, parameters=self.parameters)

    def to_config(self) -> dict[str, Any]:
        """Returns its architecture as JSON; ``from_config`` reads it."""
        config: dict[str, Any] = msgspec.to_builtins(self.config)
        return config

    def _pass(self, passes: dict[int, Pass], inputs: F32) -> Pass:
        """Returns the buffers for as many rows as ``inputs`` has."""
        if inputs.ndim != 2 or inputs.shape[1] != self.config.input_size or inputs.dtype != np.float32:
            raise UsageError(
                f"a network got inputs of shape {inputs.shape} and type {inputs.dtype}; "
                f"(batch, {self.config.input_size}) of float32 is needed"
            )
        batch = len(inputs)
        found = passes.get(batch)
        if found is None:
            if len(passes) >= MAX_BATCH_SIZES:
                del passes[next(iter(passes))]
            found = passes[batch] = Pass(self.config, self._tensors, self._gradient_tensors, batch)
        elif len(passes) == MAX_BATCH_SIZES:
            passes[batch] = passes.pop(batch)  # the order of a dict is that of the last use
        return found

    def _checked(self, masks: I64 | None, batch: int) -> I64 | None:
        if masks is None:
            return None
        if not self.config.dropout:
            raise UsageError("dropout masks were given to a network without dropout; leave them out")
        if masks.shape != (batch,) or (batch and not 0 <= masks.min() <= masks.max() < NUM_MASKS):
            raise UsageError(f"dropout masks must be {batch} numbers from 0 to {NUM_MASKS - 1}")
        return masks

    def _draw_tables(self) -> Tables:
        """Returns the masks of each hidden layer, shape ``(num_towers, NUM_MASKS, width)``: 0, or 1 / share kept."""
        if not self.config.dropout:
            return ()
        kept = 1 - self.config.dropout
        rng, towers = generator(self.seed, "mlp", "dropout"), len(self._layout.towers)
        shapes = [(towers, NUM_MASKS, width) for width in self.config.hidden]
        return tuple((rng.random(shape) < kept).astype(np.float32) / np.float32(kept) for shape in shapes)


def _check_parameters(parameters: F32, size: int) -> None:
    if parameters.shape != (size,) or parameters.dtype != np.float32:
        raise UsageError(
            f"parameters of shape {parameters.shape} and type {parameters.dtype} do not fit a network of {size} "
            "float32 parameters"
        )


def select_heads(network: MLP, names: Sequence[str]) -> MLP:
    """Returns a network of its own that computes the heads ``names`` alone, without dropout: what serving needs."""
    heads = tuple(head for head in network.config.heads if head.name in names)
    part = MLP(msgspec.structs.replace(network.config, heads=heads, dropout=0.0), network.seed)
    places = network.layers()
    for name, place in part.layers().items():
        part.parameters[place] = network.parameters[places[name]]
    return part
