"""The part of a network that a policy needs, on numpy where that can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from learnloop.nn.mlp.network import MLP, select_heads
from learnloop.nn.network import Network
from learnloop.nn.network_builders import BuiltByName


@runtime_checkable
class OnDevice(Protocol):
    """A network on another back end that computes what an MLP does."""

    def to_mlp(self) -> MLP:
        """Returns a copy on numpy."""
        ...


def serving_network(network: Network, heads: Sequence[str]) -> Network:
    """Returns a copy of ``network`` for a policy: its ``heads`` alone, or all of a module of one's own."""
    if isinstance(network, OnDevice):
        network = network.to_mlp()
    if isinstance(network, BuiltByName):
        return network.select(heads)
    return select_heads(network, heads) if isinstance(network, MLP) else network.twin()
