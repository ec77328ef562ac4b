"""The architecture of an MLP, as data."""

from __future__ import annotations

from typing import Literal

import msgspec

from learnloop.core.checks import check_range
from learnloop.core.errors import UsageError

MAX_SIZE = 1_000_000
"""No layer is wider: a larger number is a slip, and would ask for more memory than there is."""


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of outputs that starts and learns in a way of its own, such as the values of actions."""

    name: str
    size: int
    gain: float = 1.0
    """Its weights start this many times as large as the init says (``uniform`` has no gain)."""
    constant: bool = False
    """Whether it is a vector of parameters that does not depend on the input, such as PPO's ``log_std``."""
    initial: float = 0.0
    """Where a constant head starts."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning, and those that contradict each other."""
        if not self.name or "." in self.name or self.name == "trunk":
            raise UsageError(f"a head has the name {self.name!r}; it must not be empty, hold a dot or be 'trunk'")
        check_range(f"the size of the head {self.name!r}", self.size, 1, MAX_SIZE)
        if not 0 <= self.gain < float("inf"):
            raise UsageError(f"the head {self.name!r} has gain {self.gain}; a finite number from 0 is needed")
        if not abs(self.initial) < float("inf"):
            raise UsageError(f"the head {self.name!r} starts at {self.initial}; a finite number is needed")
        if self.initial and not self.constant:
            raise UsageError(f"the head {self.name!r} has an initial value but is not constant; say constant=True")


class MLPConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A multi-layer perceptron: hidden layers, then heads whose outputs lie one after the other.

    A hidden layer is Linear -> LayerNorm (if wanted) -> activation -> dropout (if wanted). The outputs are linear.
    """

    input_size: int
    hidden: tuple[int, ...] = (64, 64)
    """The width of each hidden layer; empty: the heads see the input."""
    heads: tuple[Head, ...]
    shared: bool = True
    """True: one trunk of hidden layers for all heads. False: each head that is not constant has its own."""
    activation: Literal["tanh", "relu"] = "tanh"
    layer_norm: bool = False
    """Whether hidden layers are normalised over their units, with a learned scale and shift, before the activation."""
    dropout: float = 0.0
    """The share of hidden units that is dropped where masks are given; the others are scaled up to make up for it."""
    init: Literal["orthogonal", "xavier", "he", "uniform"] = "orthogonal"
    """How weights start; ``learnloop.nn.mlp.layout`` has the formulas."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning, and those that contradict each other."""
        check_range("input_size", self.input_size, 1, MAX_SIZE)
        for width in self.hidden:
            check_range("the size of a hidden layer", width, 1, MAX_SIZE)
        names = [head.name for head in self.heads]
        if len(set(names)) != len(names):
            raise UsageError(f"the heads are named {', '.join(names)}; each name must be another")
        if all(head.constant for head in self.heads):
            raise UsageError("a network needs at least one head that is not constant")
        check_range("dropout", self.dropout, 0, below=1)
        if not self.hidden and (self.dropout or self.layer_norm):
            raise UsageError("dropout and layer_norm act on hidden layers, and there are none; set hidden")

    @property
    def output_size(self) -> int:
        """How many outputs all heads have together."""
        return sum(head.size for head in self.heads)
