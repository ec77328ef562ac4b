"""The default network as a torch module, with the same parameters in the same order: for a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from learnloop.core.errors import UsageError
from learnloop.nn.mlp.layout import Layout
from learnloop.nn.mlp.network import MLP
from learnloop.nn.torch.network import TorchNetwork


class TorchMLP(nn.Module):
    """Computes what an ``MLP`` computes. Its one parameter is the MLP's whole vector."""

    def __init__(self, network: MLP) -> None:
        """Starts with a copy of the parameters of ``network``.

        Raises:
            UsageError: it has dropout, whose masks live in numpy.
        """
        super().__init__()
        if network.config.dropout:
            raise UsageError(f"dropout is {network.config.dropout}; on a device other than cpu only dropout=0 works")
        self.config = network.config
        self._layout = Layout(network.config)
        self.flat = nn.Parameter(torch.from_numpy(network.parameters.copy()))

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the outputs, shape ``(batch, output_size)``."""
        heads = [head for head in self.config.heads if not head.constant]
        towers = {tower: self._hidden(tower, inputs) for tower in self._layout.towers}
        index = len(self.config.hidden)
        found = {}
        for head in heads:
            seen = towers[head.name] if self._layout.is_stacked else towers["trunk"]
            weight = self._tensor(f"{head.name}.{index}.weight").view(head.size, -1)
            found[head.name] = functional.linear(seen, weight, self._tensor(f"{head.name}.{index}.bias"))
        for head in self.config.heads:
            if head.constant:
                found[head.name] = self._tensor(head.name).expand(len(inputs), -1)
        return torch.cat([found[head.name] for head in self.config.heads], dim=1)

    def _hidden(self, tower: str, values: Tensor) -> Tensor:
        for index, (width, num_inputs) in enumerate(self._layout.hidden_shapes()):
            weight = self._tensor(f"{tower}.{index}.weight").view(width, num_inputs)
            values = functional.linear(values, weight, self._tensor(f"{tower}.{index}.bias"))
            if self.config.layer_norm:
                scale, shift = self._tensor(f"{tower}.{index}.scale"), self._tensor(f"{tower}.{index}.shift")
                values = functional.layer_norm(values, (width,), scale, shift)
            values = torch.tanh(values) if self.config.activation == "tanh" else torch.relu(values)
        return values

    def _tensor(self, name: str) -> Tensor:
        return self.flat[self._layout.slices[name]]


class DeviceMLP(TorchNetwork):
    """An MLP on one of torch's devices."""

    def __init__(self, network: MLP, device: str) -> None:
        """Starts with a copy of the parameters of ``network``."""
        super().__init__(
            TorchMLP(network), input_size=network.input_size, output_size=network.output_size, device=device
        )
        self._config = network.config

    def to_mlp(self) -> MLP:
        """Returns a copy on numpy."""
        return MLP(self._config, parameters=self.parameters)


def on_device(network: MLP, device: str) -> DeviceMLP:
    """Returns ``network`` on one of torch's devices; ``torch`` is its CPU.

    Raises:
        UsageError: torch has no such device, or the network has dropout.
    """
    return DeviceMLP(network, "cpu" if device == "torch" else device)
