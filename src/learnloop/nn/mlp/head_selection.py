"""A part of a network: some of its heads, with the layers that they need."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from learnloop.nn.mlp.network import MLP


def select_heads(network: MLP, names: Sequence[str]) -> MLP:
    """Returns a network of its own that computes the heads ``names`` alone, without dropout: what serving needs."""
    heads = tuple(head for head in network.config.heads if head.name in names)
    part = MLP(msgspec.structs.replace(network.config, heads=heads, dropout=0.0), network.seed)
    places = network.layers()
    for name, place in part.layers().items():
        part.parameters[place] = network.parameters[places[name]]
    return part
