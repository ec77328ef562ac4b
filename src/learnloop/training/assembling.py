"""From options to an algorithm, on numpy or on a device."""

from __future__ import annotations

from learnloop.algorithms.algorithm import Algorithm
from learnloop.algorithms.building import build_algorithm
from learnloop.core.errors import MissingExtraError, UsageError
from learnloop.core.spaces import Spaces
from learnloop.nn.mlp import MLP
from learnloop.nn.network import Network
from learnloop.training.options import TrainingOptions


def assemble(options: TrainingOptions, spaces: Spaces, num_lanes: int, seed: int) -> Algorithm:
    """Returns the algorithm that ``options`` describe, fresh.

    Raises:
        UsageError: the config does not fit the spaces or the memory, or torch has no such device.
        MissingExtraError: a device other than ``cpu`` needs torch.
    """
    config = options.algorithm_config()
    try:
        algorithm = build_algorithm(config, spaces, num_lanes=num_lanes, seed=seed)
        if options.device != "cpu":
            networks = {name: _on_device(network, options.device) for name, network in algorithm.networks().items()}
            algorithm = build_algorithm(config, spaces, num_lanes=num_lanes, seed=seed, **networks)
    except MemoryError as error:
        raise UsageError(
            f"{options.algorithm} with {num_lanes} lanes needs more memory than there is ({error}); lower n_steps, "
            "buffer_size, n_envs or net_arch"
        ) from error
    algorithm.shuffled = options.shuffled
    return algorithm


def _on_device(network: Network, device: str) -> Network:
    if not isinstance(network, MLP):
        return network
    try:
        from learnloop.nn.torch_mlp import on_device
    except ImportError as error:
        raise MissingExtraError(f"device {device!r}", "torch") from error
    return on_device(network, device)
