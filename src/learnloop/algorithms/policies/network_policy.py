"""Policies that a network computes: frozen, greedy unless asked to sample; those over an MLP need numpy alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.base.states import part_of, prefixed
from learnloop.algorithms.policies.heads import (
    DistributionHead,
    PolicyHead,
    SquashedHead,
    UniformHead,
    ValuesHead,
)
from learnloop.core.arrays import F32, F64
from learnloop.core.errors import CorruptError, DivergedError, MissingExtraError, UsageError
from learnloop.core.protocols import PolicyArtifact
from learnloop.core.seeding import generator
from learnloop.core.spaces import Box, Discrete, Spaces
from learnloop.core.stepping import Actions, Masks
from learnloop.nn.encoders.action_codec import ActionCodec
from learnloop.nn.encoders.normalisation import Normaliser
from learnloop.nn.encoders.observation_encoder import ObservationEncoder
from learnloop.nn.mlp.network import MLP, select_heads
from learnloop.nn.network import Network
from learnloop.nn.network_builders import BuiltByName, restore_network

TAG = "network"
MODULES = "network."
"""Tensors of modules that a builder made have names that begin so."""
_DIVERGED = "the policy's network computes numbers that are not finite; load an earlier version"

OutputKind = Literal["distribution", "q_values", "duelling", "squashed", "uniform"]
"""What the first outputs of the network are: parameters of a distribution over actions, the value of each action,
the state's value followed by the advantage of each action, or those of a Gaussian squashed by tanh. ``uniform`` has no
network."""


class _Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    learned_by: str
    spaces: Spaces
    outputs: OutputKind
    network: dict[str, Any] | None


class NetworkPolicy:
    """A policy over the actions of a space; never learns.

    Attributes:
        spaces: what it sees and what it may do.
        learned_by: the tag of the algorithm that made it.
        outputs: what its network's outputs mean.
    """

    def __init__(
        self,
        spaces: Spaces,
        network: Network | None,
        *,
        outputs: OutputKind,
        learned_by: str,
        normaliser: Normaliser | None = None,
        sampling: bool = False,
        seed: int = 0,
    ) -> None:
        """Keeps ``network`` itself: hand over a copy.

        Args:
            spaces: of the policy.
            network: None for ``uniform``.
            outputs: what the network's outputs mean.
            learned_by: the tag of the algorithm.
            normaliser: of observations, before the network; None: none.
            sampling: draw actions instead of taking the most likely one.
            seed: of the draws.
        """
        self.spaces = spaces
        self.learned_by = learned_by
        self.outputs: OutputKind = outputs
        self._network = network
        self._normaliser = normaliser
        self._sampling = sampling or outputs == "uniform"
        self._rng = generator(seed, "policy")
        self._encoder = ObservationEncoder(spaces.observation)
        self._codec = ActionCodec(spaces.action)
        self._start = spaces.action.start if isinstance(spaces.action, Discrete) else 0
        self._head = _head(spaces, outputs)
        self._scores = None if self._sampling else self._head.scores

    @property
    def sampled(self) -> NetworkPolicy:
        """A policy over the same network that draws its actions."""
        return NetworkPolicy(
            self.spaces,
            self._network,
            outputs=self.outputs,
            learned_by=self.learned_by,
            normaliser=self._normaliser,
            sampling=True,
        )

    def act(self, observation: Any, mask: Any = None) -> Any:
        """Returns the action for one observation, in the form of the action space.

        Raises:
            ContextError: the observation does not fit the space.
            ActionError: the mask does not fit, or allows nothing.
            DivergedError: the network's outputs are not finite.
        """
        if mask is None and self._scores is not None:
            return self._act_greedily(self._encoder.encode(observation)[None])
        allowed = self._codec.check_mask(mask)
        masks = None if allowed is None else allowed[None]
        return self._codec.to_outside(self.choose(self._encoder.encode(observation)[None], masks)[0])

    def _act_greedily(self, observations: F32) -> int:
        """Returns the discrete action of the highest output for one row: a short way, for serving."""
        row = self._outputs(observations)[0, self._scores]
        best = int(row.argmax())  # NaN counts as the highest
        if not math.isfinite(row[best]):
            raise DivergedError(_DIVERGED)
        return best + self._start

    def choose(self, observations: F32, masks: Masks | None = None) -> Actions:
        """Returns an action for each row of encoded observations, shape ``(batch, encoder.size)``."""
        return self._head.choose(self._evaluate(observations), masks, self._rng if self._sampling else None)

    def probabilities(self, observation: Any, mask: Any = None) -> F64:
        """Returns the probability of each discrete action for one observation, shape ``(n,)``; 0 where masked.

        A policy by values gives its best action all of it, shared by ties.

        Raises:
            UsageError: the actions are not discrete.
        """
        allowed = self._codec.check_mask(mask)
        outputs = self._evaluate(self._encoder.encode(observation)[None])
        found: F64 = self._head.probabilities(outputs, None if allowed is None else allowed[None])[0]
        return found

    def _evaluate(self, observations: F32) -> F32:
        outputs = self._outputs(observations)
        if not np.isfinite(outputs).all():
            raise DivergedError(_DIVERGED)
        return outputs

    def _outputs(self, observations: F32) -> F32:
        if self._network is None:
            return np.zeros((len(observations), 0), dtype=np.float32)
        inputs = observations if self._normaliser is None else self._normaliser.apply(observations)
        return self._network.predict(inputs)

    def to_artifact(self) -> PolicyArtifact:
        """Returns all that is needed to build it again.

        Raises:
            UsageError: its network is a torch module that no name stands for, so that nobody could build it again.
        """
        network = self._network
        tensors = {} if network is None else _tensors_of(network)
        config = _Config(
            learned_by=self.learned_by,
            spaces=self.spaces,
            outputs=self.outputs,
            network=None if network is None else dict(network.to_config()),
        )
        if self._normaliser is not None:
            tensors |= {f"normaliser.{name}": value for name, value in self._normaliser.state().items()}
        return PolicyArtifact(TAG, msgspec.to_builtins(config), tensors)

    @classmethod
    def from_artifact(cls, artifact: PolicyArtifact) -> NetworkPolicy:
        """Returns the policy that ``to_artifact`` described.

        Raises:
            CorruptError: the config or the parameters are not those of such a policy.
            NotFoundError, ExtensionError: its network's builder is not here, or does not build what it did.
            MissingExtraError: its network needs torch.
        """
        try:
            config = msgspec.convert(artifact.config, _Config)
            network = None if config.network is None else _stored_network(config.network, artifact.tensors)
            normaliser = Normaliser.from_tensors(artifact.tensors, "normaliser.")
            policy = cls(
                config.spaces, network, outputs=config.outputs, learned_by=config.learned_by, normaliser=normaliser
            )
            policy._check_stored()
            return policy
        except MissingExtraError:
            raise
        except (msgspec.ValidationError, UsageError, MemoryError) as error:
            raise CorruptError(f"a stored {TAG} policy cannot be read: {error}") from error

    def _check_stored(self) -> None:
        """Raises UsageError where network, normaliser and spaces do not fit each other, or a number is not finite."""
        network, size = self._network, self._encoder.size
        found = None if network is None else (network.input_size, network.output_size)
        wanted = None if self._head.num_outputs is None else (size, self._head.num_outputs)
        if found != wanted:
            raise UsageError(f"its network has (inputs, outputs) {found}; {self.outputs} in these spaces has {wanted}")
        if network is not None and not np.isfinite(network.parameters).all():
            raise UsageError("a parameter is not finite")
        if self._normaliser is not None:
            self._normaliser.check(size)


def _tensors_of(network: Network) -> dict[str, NDArray[Any]]:
    if isinstance(network, BuiltByName):
        return prefixed(MODULES, network.state())
    if isinstance(network, MLP):
        return {"parameters": network.parameters.copy()}
    raise UsageError(
        f"a policy over a {type(network).__name__} cannot be stored: nobody could build the module again. Register "
        "what builds it, ll.register('network', name, builder), and train with network=name"
    )


def _stored_network(config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Network:
    if "module" in config:
        return restore_network(config, part_of(tensors, MODULES))
    return MLP.from_config(config, tensors.get("parameters"))


def _head(spaces: Spaces, outputs: OutputKind) -> PolicyHead:
    """Returns what reads the network's outputs.

    Raises:
        UsageError: such outputs do not fit the action space.
    """
    space = spaces.action
    if outputs == "uniform":
        return UniformHead(space)
    if outputs == "distribution":
        return DistributionHead(space)
    if outputs == "squashed" and isinstance(space, Box) and space.is_bounded:
        return SquashedHead(space)
    if outputs == "q_values" and isinstance(space, Discrete):
        return ValuesHead(space)
    if outputs == "duelling" and isinstance(space, Discrete):
        return ValuesHead(space, is_duelling=True)
    raise UsageError(f"a policy with {outputs} outputs cannot act in {space}")


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
    return select_heads(network, heads) if isinstance(network, MLP) else network.copy()
