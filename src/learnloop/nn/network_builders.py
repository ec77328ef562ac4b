"""Networks of others, by name: what was added builds torch modules for the sizes that an algorithm needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from learnloop.core.errors import UsageError, needs_extra
from learnloop.core.extensions import POINTS
from learnloop.nn.mlp.config import MLPConfig
from learnloop.nn.network import Network

DEFAULT = "mlp"
"""The name of the network where nothing else is said."""
BUILT_IN: Mapping[str, str] = {DEFAULT: "Hidden layers of net_arch, on numpy."}


@runtime_checkable
class BuiltByName(Protocol):
    """A network whose builder has a name, under which it is built again where it was stored."""

    def select(self, heads: Sequence[str]) -> Network:
        """Returns a copy that gives the outputs of ``heads`` alone, on the CPU: what serving needs."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns all its tensors, those that do not learn too, by name; copy what must last."""
        ...


def check_builder(name: str, value: object) -> None:
    """Returns if ``value`` may build the network ``name``; it is not called yet.

    Raises:
        UsageError: it cannot be called.
    """
    if not callable(value):
        raise UsageError(
            f"the network {name!r} is {value!r}; a function of (input_size, output_size) that returns a "
            "torch.nn.Module, or a class of such modules, is needed"
        )


def check_network(name: str) -> None:
    """Returns if ``name`` is that of a network.

    Raises:
        NotFoundError: it is not; the nearest names are said.
        ExtensionError: it is a package's and cannot be imported.
    """
    if name != DEFAULT:
        POINTS["network"].get(name, BUILT_IN)


def build_network(name: str, default: MLPConfig, *, seed: int, device: str = "cpu") -> Network:
    """Returns the network ``name`` in the place of one of architecture ``default``: of the same inputs and heads.

    Args:
        name: under which its builder was added.
        default: where its heads share nothing, each gets a module of its own; else one module gives all of them.
        seed: of what torch draws while modules are built.
        device: one of torch's.

    Raises:
        NotFoundError: nothing was added under this name.
        ExtensionError: the builder raised something, or gave no module.
        UsageError: the module does not map such inputs to such outputs, or depends on other rows or on chance.
        MissingExtraError: torch is not installed.
    """
    named, builder = _builder(name)
    config = named.NamedConfig(
        module=name,
        input_size=default.input_size,
        heads=default.heads,
        shared=default.shared,
        given=tuple(head.name for head in default.heads),
    )
    network: Network = named.NamedNetwork.build(config, builder, seed=seed, device=device)
    return network


def restore_network(config: Mapping[str, Any], state: Mapping[str, np.ndarray[Any, Any]]) -> Network:
    """Returns the network that ``to_config`` and ``state`` describe, on the CPU.

    Raises:
        NotFoundError, MissingExtraError: its builder or torch is not here.
        ExtensionError: the builder does not build what it did.
        UsageError, msgspec.ValidationError: the config cannot be read.
    """
    named, builder = _builder(str(config.get("module")))
    network: Network = named.NamedNetwork.restore(config, state, builder)
    return network


def _builder(name: str) -> tuple[ModuleType, Any]:
    """Returns the module that needs torch, and what was added under ``name``."""
    with needs_extra(f"the network {name!r}", "torch"):
        from learnloop.nn.torch import named_network
    return named_network, POINTS["network"].get(name, BUILT_IN)
