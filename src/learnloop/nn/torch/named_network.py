"""Torch modules that a builder with a name makes, one for each tower of a network. Importing it needs torch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from learnloop.core.checks import check_range
from learnloop.core.errors import ExtensionError, UsageError, one_of
from learnloop.core.protocols import TENSOR_TYPES
from learnloop.nn.mlp.config import MAX_SIZE, Head
from learnloop.nn.torch.network import TorchNetwork, check_module, trial_inputs

Builder = Callable[[int, int], Any]
State = Mapping[str, NDArray[Any]]

TRUNK = "trunk"
TRIAL = "trial"
"""Among the tensors of a state: the outputs for ``trial_inputs``, which tell whether a builder does what it did."""
_TOLERANCE = 1e-3
"""How far outputs of a restored network may be from what they were, by another machine's rounding, relative to the
largest."""


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
        """Refuses sizes that no layer has, heads that are not there, and none that depends on the input."""
        check_range("input_size", self.input_size, 1, MAX_SIZE)
        in_order = tuple(head.name for head in self.outputs)
        if self.given != in_order or all(head.constant for head in self.outputs):
            raise UsageError(
                f"of the heads {one_of([head.name for head in self.heads])} the network gives {list(self.given)}; "
                "some of them in their order, at least one not constant, are needed"
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
    def build(cls, config: NamedConfig, build: Builder, *, seed: int = 0, device: str = "cpu") -> Self:
        """Returns a fresh network; ``learnloop.nn.network_builders.build_network`` says what it raises.

        It is built three times: what its modules are may depend on ``seed`` alone, and what they compute on their
        tensors alone. Else a policy would not be, where it is loaded, what it was where it was learned.
        """
        network = cls(_fresh(config, build, seed), device)
        state = network.state()
        _check_again(network.module, _fresh(config, build, seed), config.module)
        other = cls(_fresh(config, build, seed + 1), device)
        other._load(state)
        _check_stored(network, other)
        return network

    @classmethod
    def restore(cls, config: Mapping[str, Any], state: State, build: Builder) -> Self:
        """Returns the network that ``to_config`` and ``state`` describe; ``build`` has the name in the config."""
        wanted = msgspec.convert(config, NamedConfig)
        try:
            network = cls(_fresh(wanted, build, 0))
        except UsageError as error:
            raise ExtensionError(f"{_changed(wanted.module)}: {error}") from error
        network._load(state)
        if not _is_close(network.predict(trial_inputs(network.input_size)), state[TRIAL]):
            raise ExtensionError(f"{_changed(wanted.module)}: it computes something else")
        return network

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns all tensors of its modules, by name, and what the network computes for ``trial_inputs``.

        Raises:
            UsageError: a tensor is of a type that a policy cannot keep.
        """
        return {**_looked_at(self.module)[0], TRIAL: self.predict(trial_inputs(self.input_size))}

    def _load(self, state: State) -> None:
        """Takes over the tensors of ``state``.

        Raises:
            ExtensionError: they are not those that this network has.
            UsageError: one holds a number that is not finite.
        """
        wanted = {name: (value.shape, value.dtype) for name, value in self.state().items()}
        given = {name: (np.shape(value), np.asarray(value).dtype) for name, value in state.items()}
        for name in sorted({*wanted, *given}):
            if wanted.get(name) != given.get(name):
                raise ExtensionError(
                    f"{_changed(self.config.module)}: {name} is {_describe_tensor(wanted.get(name))}, and was "
                    f"{_describe_tensor(given.get(name))}"
                )
        for name, value in state.items():
            if not np.isfinite(value).all():
                raise UsageError(f"the tensor {name} holds numbers that are not finite")
        self.module.load_state_dict(
            {name: torch.from_numpy(np.array(value)) for name, value in state.items() if name != TRIAL}
        )

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


def _fresh(config: NamedConfig, build: Builder, seed: int) -> _Towers:
    """Returns modules that are built with ``seed``; torch's own numbers go on as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs too
        return _Towers(config, build)


def _check_again(first: _Towers, second: _Towers, name: str) -> None:
    """Looks at what was built twice with one seed.

    Raises:
        UsageError: it is one thing, or it differs.
    """
    towers = [tower for module in (first, second) for tower in module.towers.values()]
    tensors = [id(each) for tower in towers for each in (*tower.parameters(), *tower.buffers())]  # of each tower, once
    if len(set(tensors)) != len(tensors):
        raise UsageError(
            f"the network {name!r} cannot be used: the same tensors are in two modules; build a new module in each call"
        )
    (own, learning), (other, again) = _looked_at(first), _looked_at(second)
    different = sorted(
        {key for key in {*own, *other} if not np.array_equal(own.get(key, ()), other.get(key, ()))} | (learning ^ again)
    )
    if different:
        raise UsageError(
            f"the network {name!r} cannot be used: built twice with one seed it differs ({one_of(different)}); draw "
            "with torch, whose numbers come from the seed of the training"
        )


def _looked_at(module: _Towers) -> tuple[dict[str, NDArray[Any]], set[str]]:
    """Returns all tensors, and the names of those that learn."""
    learning = {name for name, each in module.named_parameters() if each.requires_grad}
    arrays = {name: _as_array(name, each, module.config.module) for name, each in module.state_dict().items()}
    return arrays, learning


def _check_stored(network: NamedNetwork, restored: NamedNetwork) -> None:
    inputs = trial_inputs(network.input_size)
    if not _is_close(restored.predict(inputs), network.predict(inputs)):
        raise UsageError(
            f"the network {network.config.module!r} cannot be used: it computes with numbers that are not in its "
            "state_dict, and would be another one where it is loaded. Make them parameters (requires_grad=False) or "
            "persistent buffers"
        )


def _is_close(found: NDArray[Any], expected: NDArray[Any]) -> bool:
    return bool(np.allclose(found, expected, rtol=0, atol=_TOLERANCE * max(1.0, float(np.abs(expected).max()))))


def _changed(name: str) -> str:
    return f"the network {name!r} is not what it was when this was stored"


def _describe_tensor(found: tuple[tuple[int, ...], np.dtype[Any]] | None) -> str:
    return "not there" if found is None else f"{found[1]} of shape {found[0]}"


def _as_array(name: str, value: object, module: str) -> NDArray[Any]:
    """Returns a tensor of a state_dict as numpy has it.

    Raises:
        UsageError: it is none, or of a type that a policy cannot keep.
    """
    kind = str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else type(value).__name__
    is_dense = isinstance(value, torch.Tensor) and value.layout == torch.strided and value.numel() > 0
    if not isinstance(value, torch.Tensor) or not is_dense or kind not in TENSOR_TYPES:
        raise UsageError(
            f"the network {module!r} cannot be used: {name} in its state_dict is {kind}, which a policy cannot keep; "
            f"allowed are dense tensors of {one_of(TENSOR_TYPES)} that are not empty"
        )
    array: NDArray[Any] = value.cpu().numpy()
    return array


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
