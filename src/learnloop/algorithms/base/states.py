"""How the parts of an algorithm are put into its state and taken out again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from learnloop.core.spaces import Spaces
from learnloop.nn.network import Network

Tensors = Mapping[str, NDArray[Any]]


def prefixed(prefix: str, tensors: Tensors) -> dict[str, NDArray[Any]]:
    """Returns copies of ``tensors`` under names that begin with ``prefix``."""
    return {f"{prefix}{name}": np.array(value) for name, value in tensors.items()}


def part_of(tensors: Tensors, prefix: str) -> dict[str, NDArray[Any]]:
    """Returns the tensors that ``prefixed`` put under ``prefix``, under their own names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def count_of(values: Mapping[str, Any], name: str) -> int:
    """Returns the counter ``name`` of a state.

    Raises:
        ValueError: it is no whole number from 0.
    """
    value = values[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is {value!r}, not a whole number from 0")
    return value


def put_array(name: str, own: NDArray[Any], found: NDArray[Any]) -> None:
    """Writes ``found`` over ``own``.

    Raises:
        ValueError: it has another shape or type.
    """
    if found.shape != own.shape or found.dtype != own.dtype:
        raise ValueError(f"{name} has shape {found.shape} and type {found.dtype}, not {own.shape} and {own.dtype}")
    own[...] = found


def put_parameters(network: Network, parameters: NDArray[Any], name: str) -> None:
    """Lets ``network`` compute with ``parameters``.

    Raises:
        ValueError: they are of another number, or not all finite.
    """
    wanted = network.parameters.shape
    if parameters.shape != wanted or not np.isfinite(parameters).all():
        raise ValueError(f"{name} has shape {parameters.shape}, not {wanted}, or holds what is not finite")
    np.copyto(network.parameters, parameters)
    network.refresh()


class BaseState(msgspec.Struct, frozen=True, kw_only=True):
    """What the states of all algorithms have."""

    config: dict[str, Any]
    spaces: Spaces
    num_envs: int = msgspec.field(name="num_lanes")
    num_steps: int
    num_updates: int
    progress: float
    rng: dict[str, Any]


_PLACES = ("buffer_folder",)
"""Options that say where things lie, which may be elsewhere when a training goes on."""


def check_same(what: str, found: msgspec.Struct, ours: msgspec.Struct) -> None:
    """Returns if ``found`` has the fields of ``ours``, but for places.

    Raises:
        ValueError: it does not.
    """
    for name in ours.__struct_fields__:
        there, wanted = getattr(found, name), getattr(ours, name)
        if there != wanted and name not in _PLACES:
            raise ValueError(f"its {what} has {name} {there}, not {wanted}")
