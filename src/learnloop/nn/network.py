"""The protocol of networks. Algorithms write the gradient of their loss with respect to a network's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self

from learnloop.core.arrays import F32, I64


class Network(Protocol):
    """A differentiable function of vectors with one flat vector of parameters, on any back end.

    The returned arrays belong to the network and are valid until its next call; copy what must last.
    """

    @property
    def input_size(self) -> int:
        """How many numbers one input has."""
        ...

    @property
    def output_size(self) -> int:
        """How many numbers one output has: all heads, one after the other."""
        ...

    @property
    def parameters(self) -> F32:
        """The parameters, shape ``(num_parameters,)``; what is written here counts once ``refresh`` was called."""
        ...

    @property
    def gradients(self) -> F32:
        """What the last ``backward`` found, shape ``(num_parameters,)``. May be scaled in place."""
        ...

    @property
    def num_masks(self) -> int:
        """How many dropout masks it has; 0: it has no dropout."""
        ...

    def layers(self) -> Mapping[str, slice]:
        """Returns where each named tensor lies in ``parameters``."""
        ...

    def refresh(self) -> None:
        """Takes over what was written to ``parameters``."""
        ...

    def forward(self, inputs: F32, masks: I64 | None = None) -> F32:
        """Returns the outputs, shape ``(batch, output_size)``, and keeps what ``backward`` needs.

        Args:
            inputs: shape ``(batch, input_size)``.
            masks: which dropout mask each row is seen through, shape ``(batch,)``, from 0 to ``num_masks - 1``;
                None: dropout is off.
        """
        ...

    def backward(self, output_gradient: F32, *, parameters: bool = True, inputs: bool = False) -> F32 | None:
        """Writes the gradient of the loss into ``gradients`` (replacing what was there) and returns that of the inputs.

        Args:
            output_gradient: of the loss with respect to what the last ``forward`` returned, the same shape.
            parameters: whether ``gradients`` is wanted.
            inputs: whether the gradient of the inputs is wanted; None is returned if not.
        """
        ...

    def predict(self, inputs: F32, masks: I64 | None = None) -> F32:
        """Returns what ``forward`` would, without keeping anything: for acting, fast for one row."""
        ...

    def copy(self) -> Self:
        """Returns a network of the same architecture with a copy of the parameters, such as a target network."""
        ...

    def to_config(self) -> Mapping[str, Any]:
        """Returns its architecture as JSON."""
        ...
