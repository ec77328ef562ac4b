"""From options to an algorithm: with the default network or another one, on numpy or on a device."""

from __future__ import annotations

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.building import build_algorithm
from learnloop.core.errors import UsageError, needs_extra
from learnloop.core.seeding import derive_seed
from learnloop.core.spaces import Spaces
from learnloop.nn.mlp.network import MLP
from learnloop.nn.network import Network
from learnloop.nn.network_builders import DEFAULT, BuiltByName, build_network
from learnloop.training.options import TrainingOptions


def assemble(
    options: TrainingOptions, spaces: Spaces, num_lanes: int, seed: int, *, network_seed: int | None = None
) -> Algorithm:
    """Returns the algorithm that ``options`` describe, fresh.

    Args:
        options: of the training.
        spaces: of its environment or its data set.
        num_lanes: how many environments run side by side.
        seed: of everything random.
        network_seed: of a network that is named; None: ``seed``. Where parameters come from another process, the
            tensors that do not learn must be the ones that it has.

    Raises:
        UsageError: the config does not fit the spaces or the memory, torch has no such device, or the network that is
            named does not fit, or the algorithm has none that it could stand in for.
        NotFoundError, ExtensionError: there is no such network, or it cannot be built.
        MissingExtraError: a device other than ``cpu``, and a network that is named, need torch.
    """
    config = options.algorithm_config()
    try:
        algorithm = build_algorithm(config, spaces, num_lanes=num_lanes, seed=seed)
        if options.device != "cpu" or options.network != DEFAULT:
            drawn = seed if network_seed is None else network_seed
            networks = {name: _other(each, name, options, drawn) for name, each in algorithm.networks().items()}
            if options.network != DEFAULT and not any(isinstance(each, BuiltByName) for each in networks.values()):
                raise UsageError(f"{options.algorithm} has no network that {options.network!r} could stand in for")
            algorithm = build_algorithm(config, spaces, num_lanes=num_lanes, seed=seed, **networks)
    except MemoryError as error:
        raise UsageError(
            f"{options.algorithm} with {num_lanes} lanes needs more memory than there is ({error}); lower n_steps, "
            "buffer_size, n_envs or net_arch"
        ) from error
    algorithm.shuffled = options.shuffled
    return algorithm


def _other(network: Network, name: str, options: TrainingOptions, seed: int) -> Network:
    """Returns what stands in for ``network``, which the algorithm calls ``name``: an MLP, if it is to be another."""
    if not isinstance(network, MLP):
        return network
    if options.network == DEFAULT:
        return _on_device(network, options.device)
    drawn = derive_seed(seed, "network", name)
    return build_network(options.network, network.config, seed=drawn, device=options.device)


def _on_device(network: MLP, device: str) -> Network:
    with needs_extra(f"device {device!r}", "torch"):
        from learnloop.nn.torch.mlp import on_device
    return on_device(network, device)
