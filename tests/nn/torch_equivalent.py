"""The torch modules that an MLP of the same parameters must agree with, written independently of it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from learnloop.nn.mlp.network import MLP


def leaves(network: MLP, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Returns the named tensors of ``network`` as torch leaves that require gradients; vectors stay flat."""
    return {
        name: torch.tensor(network.parameters[part], dtype=dtype, requires_grad=True)
        for name, part in network.layers().items()
    }


def outputs(
    network: MLP, tensors: dict[str, Tensor], inputs: Tensor, tables: dict[tuple[str, int], Tensor] | None = None
) -> Tensor:
    """Returns what ``network`` should compute; ``tables`` has the dropout factors of each row by tower and layer."""
    config = network.config
    activate = {"tanh": torch.tanh, "relu": torch.relu}[config.activation]
    columns = []
    for head in config.heads:
        if head.constant:
            columns.append(tensors[head.name].expand(len(inputs), head.size))
            continue
        tower = "trunk" if config.shared else head.name
        seen = inputs
        for index, width in enumerate(config.hidden):
            name = f"{tower}.{index}"
            seen = torch.nn.functional.linear(seen, tensors[f"{name}.weight"].view(width, -1), tensors[f"{name}.bias"])
            if config.layer_norm:
                scale, shift = tensors[f"{name}.scale"], tensors[f"{name}.shift"]
                seen = torch.nn.functional.layer_norm(seen, (width,), scale, shift)
            seen = activate(seen)
            if tables is not None:
                seen = seen * tables[tower, index]
        name = f"{head.name}.{len(config.hidden)}"
        weight = tensors[f"{name}.weight"].view(head.size, -1)
        columns.append(torch.nn.functional.linear(seen, weight, tensors[f"{name}.bias"]))
    return torch.cat(columns, dim=1)


def flat_gradient(network: MLP, tensors: dict[str, Tensor]) -> np.ndarray:
    """Returns the leaves' gradients in the order of ``network.parameters``."""
    result = np.zeros(network.parameters.size)
    for name, part in network.layers().items():
        gradient = tensors[name].grad
        if gradient is not None:
            result[part] = gradient.numpy()
    return result
