"""Torch modules that a builder with a name makes, one for each tower of a network. Importing it needs torch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from learnloop.core.errors import ExtensionError, UsageError, one_of
from learnloop.core.extensions import POINTS
from learnloop.nn.mlp_config import Head
from learnloop.nn.network_builders import BUILT_IN
from learnloop.nn.torch_network import TorchNetwork, check_module

Builder = Callable[[int, int], Any]
State = Mapping[str, NDArray[Any]]

TRUNK = "trunk"


class NamedConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which modules a network has, and what they give."""

    module: str
    """The name of their builder."""
    input_size: int
    heads: tuple[Head, ...]
    """Their outputs, one after the other; a constant one has parameters of its own and no module."""
    shared: bool
    """True: one module gives all heads. False: each has its own."""
    given: tuple[str, ...]
    """The heads that are outputs of the network; the others are left out."""

    def __post_init__(self) -> None:
        """Refuses heads that are not there, and none that depends on the input."""
        unknown = [name for name in self.given if name not in {head.name for head in self.heads}]
        if unknown or all(head.constant for head in self.outputs):
            raise UsageError(
                f"of the heads {one_of([head.name for head in self.heads])} the network gives {list(self.given)}; at "
                "least one that is not constant is needed"
            )

    @property
    def outputs(self) -> list[Head]:
        """The heads that are given, in their order."""
        return [head for head in self.heads if head.name in self.given]

    def towers(self) -> dict[str, int]:
        """Returns how many outputs each module has, by the name of its tower."""
        if self.shared:
            return {TRUNK: sum(head.size for head in self.heads if not head.constant)}
        return {head.name: head.size for head in self.outputs if not head.constant}


class _Towers(torch.nn.Module):
    """All modules of a network side by side, with its constant heads; each of both by a name of their own."""

    def __init__(self, config: NamedConfig, build: Builder) -> None:
        super().__init__()
        self.config = config
        self.towers = torch.nn.ModuleDict()
        for name, size in config.towers().items():
            self.towers[f"tower_{name}"] = _built(config.module, build, config.input_size, size)
        self.constants = torch.nn.ParameterDict(
            {f"head_{head.name}": torch.full((head.size,), head.initial) for head in config.outputs if head.constant}
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Returns the heads that are given, shape ``(batch, output_size)``."""
        found = {name: tower(inputs) for name, tower in self.towers.items()}
        parts, start = [], 0
        for head in self.config.heads:
            if head.name in self.config.given and head.constant:
                parts.append(self.constants[f"head_{head.name}"].expand(len(inputs), -1))
            elif head.name in self.config.given and not self.config.shared:
                parts.append(found[f"tower_{head.name}"])
            elif head.name in self.config.given:
                parts.append(found[f"tower_{TRUNK}"][:, start : start + head.size])
            start += 0 if head.constant else head.size
        return torch.cat(parts, dim=1)

    def keep(self, config: NamedConfig) -> None:
        """Drops the modules and the constants that ``config`` does not give."""
        self.config = config
        for name in set(self.towers) - {f"tower_{name}" for name in config.towers()}:
            del self.towers[name]
        for name in set(self.constants) - {f"head_{head.name}" for head in config.outputs}:
            del self.constants[name]


class NamedNetwork(TorchNetwork):
    """A network over modules that a builder made.

    Attributes:
        config: of which builder, and what it gives.
    """

    module: _Towers

    def __init__(self, module: _Towers, device: str = "cpu") -> None:
        """Takes over ``module``."""
        config = self.config = module.config
        size = sum(head.size for head in config.outputs)
        super().__init__(module, input_size=config.input_size, output_size=size, device=device)

    @classmethod
    def build(cls, config: NamedConfig, *, seed: int = 0, device: str = "cpu") -> Self:
        """Returns a fresh network; ``learnloop.nn.network_builders.build_network`` says what it raises."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = _Towers(config, POINTS["network"].get(config.module, BUILT_IN))
        return cls(module, device)

    @classmethod
    def restore(cls, config: Mapping[str, Any], state: State) -> Self:
        """Returns the network that ``to_config`` and ``state`` describe."""
        network = cls.build(msgspec.convert(config, NamedConfig))
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in state.items()}
        try:
            network.module.load_state_dict(tensors)
        except RuntimeError as error:
            raise ExtensionError(
                f"the network {network.config.module!r} is not what it was when this was stored: {error}"
            ) from error
        return network

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns all tensors of its modules, by name.

        Raises:
            UsageError: numpy has no such type.
        """
        try:
            return {name: tensor.cpu().numpy() for name, tensor in self.module.state_dict().items()}
        except TypeError as error:
            raise UsageError(f"a tensor of the network {self.config.module!r} cannot be stored: {error}") from error

    def select(self, heads: Sequence[str]) -> Self:
        """Returns a copy that gives ``heads`` alone, on the CPU."""
        given = tuple(head.name for head in self.config.outputs if head.name in heads)
        module = copy.deepcopy(self.module)
        module.keep(msgspec.structs.replace(self.config, given=given))
        return type(self)(module)

    def to_config(self) -> dict[str, Any]:
        """Returns its config as JSON; ``restore`` reads it."""
        config: dict[str, Any] = msgspec.to_builtins(self.config)
        return config


def _built(name: str, build: Builder, input_size: int, output_size: int) -> torch.nn.Module:
    """Returns the module of one tower.

    Raises:
        ExtensionError: the builder raised something, or gave no module.
        UsageError: as of ``check_module``.
    """
    try:
        module = build(input_size, output_size)
    except Exception as error:  # whatever the builder raises
        raise ExtensionError(
            f"the network {name!r} raised {type(error).__name__} for {input_size} inputs and {output_size} outputs: "
            f"{error}"
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise ExtensionError(f"the network {name!r} gave a {type(module).__name__}; a torch.nn.Module is needed")
    try:
        check_module(module, input_size, output_size, torch.device("cpu"))
    except UsageError as error:
        raise UsageError(f"the network {name!r} cannot be used: {error}") from error
    return module
