"""What every sequential algorithm is: it chooses, takes what came of it, and learns.

Two ways to drive one. A trainer with environments calls ``choose``, ``record`` and ``learn`` for all its envs at once.
A live agent, or several at once, calls ``act``, ``observe`` and ``learn`` with the name of its episode. Episodes never
mix: each has its own transitions, and what follows its last one is never another episode's.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import msgspec
import numpy as np

from learnloop.algorithms.base.config import AlgorithmConfig
from learnloop.algorithms.base.metrics import LayerNorms, Metrics, dormant_ratio
from learnloop.algorithms.base.states import BaseState, check_same, count_of, part_of, prefixed, put_parameters
from learnloop.algorithms.live.episodes import Chosen, LiveEpisodes, LiveStep
from learnloop.algorithms.policies.network_policy import NetworkPolicy, OutputKind, serving_network
from learnloop.core.arrays import F32
from learnloop.core.checks import check_range
from learnloop.core.errors import CorruptError, DivergedError, UsageError, one_of
from learnloop.core.seeding import derive_seed, generator
from learnloop.core.spaces import Spaces
from learnloop.core.stepping import Actions, EnvStep, Masks
from learnloop.nn.encoders.action_codec import ActionCodec
from learnloop.nn.encoders.normalisation import Normaliser
from learnloop.nn.encoders.observation_encoder import ObservationEncoder
from learnloop.nn.mlp.network import MLP, Head, MLPConfig
from learnloop.nn.network import Network
from learnloop.nn.optimizers import Optimizer, clip_coefficient, gradient_norm
from learnloop.system.state_file import State

NORMS_INTERVAL = 16
"""The gradient's norm in each layer is looked at so seldom, in gradient steps: it takes about a tenth of one."""


class Algorithm(ABC):
    """Updates a policy from the transitions that it is told of.

    Attributes:
        config: its hyper-parameters.
        spaces: what it sees and what it may do.
        num_envs: how many environments ``choose`` and ``record`` serve at once.
        seed: all its random numbers derive from it.
        num_steps: environment steps that it has learned of, those of live episodes included.
        num_updates: gradient steps.
        metrics: figures of the updates since they were last taken, by SB3's names.
        shuffled: whether what is learned from is shuffled among the actions of an update, so that nothing can be
            learned: for the shuffled control of a proof.
    """

    tag: ClassVar[str]
    """Its name."""
    config_type: ClassVar[type[AlgorithmConfig]]
    """Of its hyper-parameters; its tag is the algorithm's."""
    is_offline: ClassVar[bool] = False
    """Whether it learns from a data set, and never from its own actions."""
    network_names: ClassVar[tuple[str, ...]] = ()
    """The names of its networks, each of which may be one of the caller's own."""
    kept_counts: ClassVar[tuple[str, ...]] = ()
    """The attributes that count something and are part of a state, where they have no leading underscore."""
    drawn_as: ClassVar[str | None] = None
    """Whose random numbers it has; None: its own, which derive from the seed and its ``tag``."""

    def __init__(
        self, config: AlgorithmConfig, spaces: Spaces, *, num_envs: int = 1, seed: int = 0, **networks: Network | None
    ) -> None:
        """Builds it.

        Args:
            config: its hyper-parameters.
            spaces: what it sees and what it may do.
            num_envs: how many environments ``choose`` serves.
            seed: of everything random.
            networks: of one's own in the place of MLPs, by the names that ``networks`` returns; None: an MLP.

        Raises:
            UsageError: the config, the spaces, the networks or the memory do not fit each other.
        """
        check_range("num_envs", num_envs, 1)
        if unknown := networks.keys() - set(self.network_names):
            raise UsageError(f"{self.tag} has no network {one_of(unknown)}; it has {one_of(self.network_names)}")
        self.config = config
        self.spaces = spaces
        self.num_envs = num_envs
        self.seed = seed
        self.num_steps = 0
        self.num_updates = 0
        self.progress = 0.0
        self.shuffled = False
        self.metrics = Metrics()
        self.encoder = ObservationEncoder(spaces.observation)
        self.actions = ActionCodec(spaces.action)
        self._rng = generator(seed, self.drawn_as or self.tag)
        self._given = networks
        self._networks: dict[str, Network] = {}
        self._kept_networks: dict[str, Network] = {}
        """Those whose parameters are part of a state, by the names of their tensors."""
        self._kept_optimizers: dict[str, Optimizer] = {}
        """The same of optimisers, by what the names of their tensors begin with."""
        self._live = LiveEpisodes()
        self._is_live = False
        self._knows_progress = False
        self._layer_norms: dict[int, LayerNorms] = {}
        self._build()

    # With environments -------------------------------------------------------------------------------------------

    @abstractmethod
    def choose(self, observations: F32, masks: Masks | None = None) -> Actions:
        """Returns an action for each env, exploring, and remembers what ``record`` will need.

        Args:
            observations: encoded, shape ``(num_envs, encoder.size)``.
            masks: which choices are allowed, shape ``(num_envs, num_choices)``; None: all.
        """

    @abstractmethod
    def record(self, step: EnvStep) -> None:
        """Takes what came of the actions that ``choose`` returned last."""

    @abstractmethod
    def learn(self) -> bool:
        """Updates if enough is recorded, and returns whether it did.

        Raises:
            DivergedError: a loss, a gradient or a parameter is not finite; the parameters are those before the update.
        """

    @abstractmethod
    def interrupt(self) -> None:
        """Cuts the running episodes of all envs, as truncated: the environments are about to start new ones."""

    # With live agents --------------------------------------------------------------------------------------------

    def act(self, observation: Any, *, episode: str = "episode", mask: Any = None) -> Any:
        """Returns the next action of ``episode``, exploring, in the form of the action space.

        Its reward is told to ``observe`` under the same name. Any number of episodes may run at once.

        Args:
            observation: as the observation space says.
            episode: which one; it begins with its first action and ends with ``terminated`` or ``truncated``.
            mask: which choices are allowed; None: all.

        Raises:
            ContextError: the observation does not fit the space.
            ActionError: the mask does not fit, or allows nothing.
            UsageError: the episode waits for the reward of its last action.
        """
        encoded = self.encoder.encode(observation)
        allowed = self.actions.check_mask(mask)
        self._live.check_free(episode)
        chosen = self._choose(encoded[None], None if allowed is None else allowed[None])
        for finished in self._live.begin(episode, encoded, allowed, chosen):
            self._take_live(episode, finished)
        return self.actions.to_outside(chosen.actions[0])

    def observe(
        self,
        reward: float,
        *,
        episode: str = "episode",
        next_observation: Any = None,
        next_mask: Any = None,
        terminated: bool = False,
        truncated: bool = False,
    ) -> None:
        """Takes the reward of the last action of ``episode``.

        Args:
            reward: a finite number. Where it stays unknown, ``discard`` the episode: missing is not zero.
            episode: which one.
            next_observation: what the action led to; may be left out where the episode goes on (the next ``act`` says
                it) or has terminated, and is needed where it was truncated.
            next_mask: which choices ``next_observation`` allows where it was truncated: what would have come is worth
                the value of those. None: all.
            terminated: the episode ended in the task itself.
            truncated: the episode was cut from outside, such as by a time limit.

        Raises:
            RewardError: the reward is not a finite number.
            ActionError: the mask does not fit, or allows nothing.
            UsageError: the episode has no action that waits for a reward, or an argument is missing.
        """
        encoded = None if next_observation is None else self.encoder.encode(next_observation)
        allowed = self.actions.check_mask(next_mask)
        finished = self._live.finish(episode, reward, encoded, allowed, terminated=terminated, truncated=truncated)
        if finished is not None:
            self._take_live(episode, finished)

    def _take_live(self, episode: str, step: LiveStep) -> None:
        self._record_live(episode, step)
        self._is_live = True
        if self.config.live_steps is not None:
            self.set_progress(self.num_steps / self.config.live_steps)

    def discard(self, episode: str) -> None:
        """Forgets what was not learned of ``episode`` yet, and that it runs."""
        self._live.discard(episode)
        self._discard_live(episode)

    # What a subclass gives ---------------------------------------------------------------------------------------

    def _build(self) -> None:  # noqa: B027 - some have no parts of their own
        """Makes networks, buffers and counters, once ``config`` and all else that ``__init__`` is given is there.

        Raises:
            UsageError: the config, the spaces, the networks or the memory do not fit each other.
        """

    @abstractmethod
    def _choose(self, observations: F32, masks: Masks | None) -> Chosen:
        """Returns explored actions for a batch of observations, shape ``(batch, encoder.size)``."""

    @abstractmethod
    def _record_live(self, episode: str, step: LiveStep) -> None:
        """Takes a whole transition of a live episode, in its order."""

    @abstractmethod
    def _discard_live(self, episode: str) -> None:
        """Forgets the transitions of a live episode that were not learned yet."""

    # What comes of it --------------------------------------------------------------------------------------------

    @abstractmethod
    def policy(self) -> NetworkPolicy:
        """Returns a frozen copy of what was learned, deployable."""

    def state(self) -> State:
        """Returns a copy of everything: weights, optimisers, buffers, random number generators, counters.

        Live episodes are not in it: their clients are gone after a restart.
        """
        more = self._more_state()
        tensors = {name: network.parameters.copy() for name, network in self._kept_networks.items()}
        for prefix, optimizer in self._kept_optimizers.items():
            tensors |= prefixed(prefix, optimizer.state())
        counts = {name.lstrip("_"): getattr(self, name) for name in self.kept_counts}
        return State(tensors | more.tensors, self._base_values() | counts | more.values)

    def restore(self, state: State) -> None:
        """Goes on from ``state``, bit for bit.

        Raises:
            CorruptError: it is not the state of such an algorithm.
        """
        try:
            self._restore_base(state.values)
            for name, network in self._kept_networks.items():
                put_parameters(network, state.tensors[name], name)
            for prefix, optimizer in self._kept_optimizers.items():
                optimizer.restore(part_of(state.tensors, prefix))
            for name in self.kept_counts:
                setattr(self, name, count_of(state.values, name.lstrip("_")))
            self._restore_more(state)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptError(f"the state is not one of this {self.tag}: {error}") from error

    def networks(self) -> dict[str, Network]:
        """Returns its networks by the names of the constructor's arguments: what a call with others replaces."""
        return dict(self._networks)

    def parameter_hash(self) -> str:
        """Returns the SHA-256 of the parameters of all networks that learn, as they are now.

        The same seed gives the same one on one thread.
        """
        digest = hashlib.sha256()
        for network in self.networks().values():
            digest.update(network.parameters.tobytes())
        return digest.hexdigest()

    def set_progress(self, progress: float) -> None:
        """Says how much of the training is done, from 0 to 1: what schedules depend on."""
        if math.isnan(progress):
            raise UsageError("the progress is nan; allowed is from 0 to 1")
        self._knows_progress = True
        self.progress = min(max(progress, 0.0), 1.0)

    def _warn_of_schedules(self) -> None:
        """Warns once where live agents are learned from, schedules are asked for, and nobody says the progress."""
        if not self._is_live or self._knows_progress:
            return
        self._knows_progress = True
        if changing := self.config.changing():
            warnings.warn(
                f"{', '.join(changing)} of {self.tag} change with the progress of the training, which nobody told: "
                "they stay as they began. Set live_steps to the steps that it takes, or call set_progress",
                stacklevel=3,
            )

    # Shared by all that learn ------------------------------------------------------------------------------------

    def _build_network(
        self, name: str, heads: Sequence[Head], meaning: str, *, shared: bool, input_size: int | None = None
    ) -> Network:
        """Returns the network that the constructor was given as ``name``, or an MLP as the config says.

        Args:
            name: under which ``networks`` returns it, and a state has its parameters.
            heads: its outputs.
            meaning: of the outputs, for a message.
            shared: whether the heads of an MLP share their hidden layers.
            input_size: how many numbers it sees; None: those of an observation.

        Raises:
            UsageError: the one that was given has other inputs or outputs.
        """
        config = self.config
        architecture = MLPConfig(
            input_size=self.encoder.size if input_size is None else input_size,
            hidden=config.net_arch,
            heads=tuple(heads),
            shared=shared,
            activation=config.activation,
            layer_norm=config.layer_norm,
            dropout=config.dropout,
            init=config.init,
        )
        seed = derive_seed(self.seed, self.drawn_as or self.tag, name)
        network: Network = self._given.get(name) or MLP(architecture, seed=seed)
        wanted = (architecture.input_size, architecture.output_size)
        if (network.input_size, network.output_size) != wanted:
            raise UsageError(
                f"the {name} maps {network.input_size} numbers to {network.output_size}; {self.tag} with these spaces "
                f"needs {wanted[0]} to {wanted[1]}: {meaning}"
            )
        self._networks[name] = self._kept_networks[f"network.{name}"] = network
        return network

    def _served(
        self, network: Network, heads: Sequence[str], outputs: OutputKind, normaliser: Normaliser | None = None
    ) -> NetworkPolicy:
        """Returns a frozen policy over the ``heads`` that the network has of these."""
        served = serving_network(network, heads)
        return NetworkPolicy(self.spaces, served, outputs=outputs, learned_by=self.tag, normaliser=normaliser)

    def _more_state(self) -> State:
        """Returns what a state has beside networks, optimisers and what all algorithms have."""
        return State({}, {})

    def _restore_more(self, state: State) -> None:  # noqa: B027 - some have nothing more
        """Takes over what ``_more_state`` returned, and drops what was open.

        Raises:
            KeyError, TypeError, ValueError: it is not the state of such an algorithm.
        """

    def _descend(
        self,
        network: Network,
        optimizer: Optimizer,
        gradient: F32,
        loss: float,
        learning_rate: float,
        max_grad_norm: float | None = None,
    ) -> float:
        """Takes a gradient step of ``network`` if all is finite, and returns the norm of the gradient before clipping.

        Args:
            network: whose ``forward`` was called last for this step.
            optimizer: of the network.
            gradient: of the loss with respect to the outputs.
            loss: its value.
            learning_rate: of this step.
            max_grad_norm: what the norm is cut to; None: it is not.

        Raises:
            DivergedError: the loss or the gradient is not finite; nothing was changed.
        """
        norm = self._find_gradient(network, gradient, loss)
        self._move(network, optimizer, norm, learning_rate, max_grad_norm)
        return norm

    def _find_gradient(self, network: Network, gradient: F32, loss: float) -> float:
        """Leaves the gradient of the parameters in ``network`` and returns its norm; the first part of a step.

        Raises:
            DivergedError: as of ``_descend``.
        """
        if not math.isfinite(loss):
            self._diverge(f"the loss is {loss}", 1)
        network.backward(gradient)
        return self._checked_norm(network.gradients)

    def _checked_norm(self, gradients: F32) -> float:
        """Returns the norm of ``gradients``, shape ``(num_parameters,)``, if it is finite."""
        norm = gradient_norm(gradients)
        if not math.isfinite(norm):
            self._diverge(f"the gradient has norm {norm}", int(np.count_nonzero(~np.isfinite(gradients))))
        self.metrics.set("train/num_non_finite", 0)  # a norm that is finite has no term that is not
        return norm

    def _move(
        self, network: Network, optimizer: Optimizer, norm: float, learning_rate: float, max_grad_norm: float | None
    ) -> None:
        """Moves ``network`` along its gradient, of L2 norm ``norm``; the second part of a step."""
        if self.num_updates % NORMS_INTERVAL == 0:
            self._note_layers(network)
        optimizer.step(learning_rate, clip_coefficient(norm, max_grad_norm))

    def _check_outputs(self, outputs: F32) -> None:
        if not math.isfinite(float(np.add.reduce(outputs, axis=None))):
            raise DivergedError(f"after update {self.num_updates} the network's outputs are not finite")

    def _note_layers(self, network: Network) -> None:
        """Notes the norm of the gradient of each layer, before clipping."""
        norms = self._layer_norms.get(id(network))
        if norms is None:
            networks = self.networks()
            names = [name for name, each in networks.items() if each is network]
            norms = LayerNorms(network, f"{names[0]}/" if len(networks) > 1 else "")
            self._layer_norms[id(network)] = norms
        norms.note(self.metrics)

    def _note_dormant(self, observations: F32 | None = None) -> None:
        """Notes the share of dormant units of the first network for these, or for what its last ``forward`` saw."""
        ratio = dormant_ratio(next(iter(self._networks.values())), observations)
        if ratio is not None:
            self.metrics.set("train/dormant_ratio", ratio)

    def _note_change(self, before: Sequence[F32]) -> float:
        """Notes how far the parameters of all networks moved, relative to where they were, and returns how far.

        Args:
            before: what they were, by the order of the networks; the arrays are written over.
        """
        moved = norm = 0.0
        for old, network in zip(before, self._networks.values(), strict=True):
            norm += float(old @ old)
            np.subtract(network.parameters, old, out=old)
            moved += float(old @ old)
        self.metrics.set("train/weight_change", math.sqrt(moved / norm) if norm else float("nan"))
        self.metrics.set("train/n_updates", self.num_updates)
        return math.sqrt(moved)

    def _all_parameters(self) -> list[F32]:
        """Returns copies of the parameters of all networks, by their order."""
        return [network.parameters.copy() for network in self._networks.values()]

    def _diverge(self, what: str, num_non_finite: int) -> NoReturn:
        self.metrics.set("train/num_non_finite", num_non_finite)
        raise DivergedError(f"update {self.num_updates + 1}: {what}; the parameters are those before it")

    def _base_values(self) -> dict[str, Any]:
        return {
            "algorithm": self.tag,
            "config": msgspec.to_builtins(self.config),
            "spaces": msgspec.to_builtins(self.spaces),
            "num_lanes": self.num_envs,
            "num_steps": self.num_steps,
            "num_updates": self.num_updates,
            "progress": self.progress,
            "rng": self._rng.bit_generator.state,
        }

    def _restore_base(self, values: Mapping[str, Any]) -> None:
        """Takes over what ``_base_values`` returned.

        Raises:
            CorruptError: it is of another algorithm, config, spaces or number of envs; nothing was changed.
        """
        try:
            state = msgspec.convert(values, BaseState)
            check_same("config", msgspec.convert(state.config, type(self.config)), self.config)
            check_same("spaces", state.spaces, self.spaces)
            if state.num_envs != self.num_envs:
                raise ValueError(f"its num_envs is {state.num_envs}, not {self.num_envs}")
            self._rng.bit_generator.state = state.rng
        except (msgspec.ValidationError, UsageError, KeyError, TypeError, ValueError) as error:
            raise CorruptError(f"the state is not one of this {self.tag} and cannot be read: {error}") from error
        self.num_steps = state.num_steps
        self.num_updates = state.num_updates
        self.progress = state.progress
        self._is_live, self._knows_progress = False, state.progress > 0
        self._live = LiveEpisodes()
