"""What learns from logged data alone: it takes a data set, and gradient steps on minibatches of it.

It never acts to learn, so it knows nothing of what no logged action led to. What it has learned can act, in an
environment or for live agents, but nothing is learned from that: record it, make a data set of it, load that.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn

import numpy as np

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.base.config import AlgorithmConfig, Ranges, check_max_norm, value_at
from learnloop.algorithms.base.dealing import deal
from learnloop.algorithms.base.metrics import MAX_ROWS
from learnloop.algorithms.live.episodes import Chosen, LiveStep
from learnloop.algorithms.off_policy.learner import CHANGE_INTERVAL, DORMANT_INTERVAL
from learnloop.algorithms.offline.logged_steps import LoggedSteps, Minibatch
from learnloop.core.arrays import F32
from learnloop.core.checks import check_range
from learnloop.core.datasets import Dataset
from learnloop.core.errors import CorruptError, UsageError
from learnloop.core.seeding import generator
from learnloop.core.spaces import Discrete
from learnloop.core.stepping import Actions, EnvStep, Masks
from learnloop.nn.network import Network
from learnloop.nn.optimizers import Optimizer
from learnloop.system.state_file import State


class OfflineConfig(AlgorithmConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the configs of all that learn from logged data share. Defaults are those of d3rlpy."""

    net_arch: tuple[int, ...] = (256, 256)
    activation: Literal["tanh", "relu"] = "relu"
    init: Literal["orthogonal", "xavier", "he", "uniform"] = "uniform"
    batch_size: int = 256
    """Steps of one gradient step, drawn with replacement."""
    max_grad_norm: float | None = None
    """The gradient of each network is scaled down to this norm; None: it is not."""

    ranges: ClassVar[Ranges] = {"batch_size": (1, None)}

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        super().__post_init__()
        check_max_norm(self.max_grad_norm)
        if self.dropout:
            raise UsageError(
                f"dropout is {self.dropout}; what learns from logged data has none. Use layer_norm, or weight_decay of "
                "bc"
            )
        if self.live_steps is not None:
            raise UsageError(
                f"live_steps is {self.live_steps}; what learns from logged data learns nothing from live agents. Leave "
                "it out, and call set_progress for schedules"
            )


class Descent(NamedTuple):
    """One network's part of a gradient step."""

    name: str
    """In figures; empty where there is but one network."""
    network: Network
    """Whose ``forward`` was called last for this step."""
    optimizer: Optimizer
    gradient: F32
    """Of the loss with respect to the outputs."""
    loss: float


class OfflineAlgorithm(Algorithm):
    """The part of algorithms that learn from logged data that is not their loss.

    With ``shuffled``, what is learned from rewards (the targets of values, and the advantages that weigh actions; for
    behaviour cloning the actions) is dealt among the rows of each minibatch. Rewards alone would not do: where
    each step pays 1 and only the length of an episode counts, as in CartPole, shuffled rewards are the true ones.
    What is left is what can be learned without rewards: to act as the logs do.

    Attributes:
        num_steps: of the data set.
    """

    config: OfflineConfig
    is_offline = True
    compares: ClassVar[bool] = True
    """Whether it compares actions by their rewards, and so needs a data set with at least two."""

    def _build(self) -> None:
        self._steps: LoggedSteps | None = None
        self._fingerprint: str | None = None
        """Of the data set that was loaded, or that a restored state learned from; None: not looked at yet."""
        self._acting_rng = generator(self.seed, self.tag, "acting")

    # The data set ------------------------------------------------------------------------------------------------

    def load(self, dataset: Dataset) -> None:
        """Takes the data set that ``update`` learns from, instead of any that was loaded before.

        Its arrays are kept, not copied: they must stay as they are.

        Raises:
            UsageError: its spaces, shapes, numbers or actions do not fit; only one action was ever taken, and this
                algorithm compares actions; or a restored state learned from another data set. Nothing is changed.
        """
        steps = LoggedSteps(dataset, self.spaces, self.config.batch_size, self.config.gamma)
        if self.compares and steps.has_one_action():
            raise UsageError(
                f"in the data set of {dataset.source} only one action was ever taken; behaviour cloning (bc) can copy "
                f"it, nothing can be compared, which is what {self.tag} does. Log different actions"
            )
        if self._steps is None and self._fingerprint is not None and dataset.fingerprint() != self._fingerprint:
            raise UsageError(
                f"the data set of {dataset.source} is not the one that the restored {self.tag} has learned from; load "
                "that one to go on, or build a fresh algorithm"
            )
        self._steps, self._fingerprint = steps, None
        self.num_steps = len(steps)
        self._forget_derived()

    @property
    def fingerprint(self) -> str | None:
        """The SHA-256 of the data set that it learns from; None: none is loaded."""
        if self._fingerprint is None and self._steps is not None:
            self._fingerprint = self._steps.dataset.fingerprint()
        return self._fingerprint

    def _forget_derived(self) -> None:
        """Drops what was computed from the data set or the networks, since they are others now."""

    # Learning ----------------------------------------------------------------------------------------------------

    def update(self, count: int = 1) -> None:
        """Takes ``count`` gradient steps on minibatches of the data set, at the learning rate of the progress as it is.

        Many calls with few steps give the same parameters as one with as many, bit for bit.

        Raises:
            UsageError: no data set is loaded, or ``count`` is below 1.
            DivergedError: a loss or a gradient is not finite; the parameters are those before that gradient step.
        """
        steps = self._steps
        if steps is None:
            raise UsageError(f"{self.tag} learns from logged data, and none is loaded; call load with a data set")
        check_range("count", count, 1)
        learning_rate = value_at(self.config.learning_rate, self.progress)
        self.metrics.set("train/learning_rate", learning_rate)
        num_before = self.num_updates
        is_due = num_before // CHANGE_INTERVAL != (num_before + count) // CHANGE_INTERVAL
        before = self._all_parameters() if is_due else []
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite stops it, with the update's number
            for _ in range(count):
                self._step(steps.draw(self._rng), learning_rate)
                self.num_updates += 1
        self.metrics.set("train/n_updates", self.num_updates)
        if is_due:
            self._note_change(before)
        if num_before // DORMANT_INTERVAL != self.num_updates // DORMANT_INTERVAL:
            self._note_dormant(steps.some_observations(MAX_ROWS))

    @abstractmethod
    def _step(self, minibatch: Minibatch, learning_rate: float) -> None:
        """Takes one gradient step."""

    def _descend_all(self, descents: Sequence[Descent], learning_rate: float) -> None:
        """Takes a gradient step of each network, or of none where a number is not finite: all are found first."""
        norms = [self._find_gradient(each.network, each.gradient, each.loss) for each in descents]
        for (name, network, optimizer, _, part), norm in zip(descents, norms, strict=True):
            self._move(network, optimizer, norm, learning_rate, self.config.max_grad_norm)
            if name:
                self.metrics.add(f"train/{name}_loss", part)
                self.metrics.add(f"train/{name}_gradient_norm", norm)
        self.metrics.add("train/loss", sum(each.loss for each in descents))
        self.metrics.add("train/gradient_norm", math.hypot(*norms))

    def _dealt(self, values: F32) -> F32:
        """Returns ``values``, shape ``(batch,)``; those of a shuffled control are dealt among the rows."""
        return deal(values, self._rng) if self.shuffled else values

    # Acting ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _act(self, observations: F32, masks: Masks | None) -> Actions:
        """Returns an action for each row, as what was learned has it."""

    def choose(self, observations: F32, masks: Masks | None = None) -> Actions:
        """Returns an action for each env: a draw from the learned policy, or its best one where it draws none.

        Nothing is learned from what comes of them, and acting changes no training. ``Algorithm.choose`` has the
        arguments.
        """
        if len(observations) != self.num_envs:
            raise UsageError(f"{len(observations)} observations were given for {self.num_envs} envs")
        return self._act(observations, masks)

    def act(self, observation: Any, *, episode: str = "episode", mask: Any = None) -> Any:
        """Returns an action in the form of the action space; no episode is remembered, and no reward waited for.

        Raises:
            ContextError: the observation does not fit the space.
            ActionError: the mask does not fit, or allows nothing.
        """
        allowed = self.actions.check_mask(mask)
        encoded = self.encoder.encode(observation)
        actions = self._act(encoded[None], None if allowed is None else allowed[None])
        return self.actions.to_outside(actions[0])

    def _choose(self, observations: F32, masks: Masks | None) -> Chosen:
        return Chosen(self._act(observations, masks))

    def record(self, step: EnvStep) -> None:
        """Raises UsageError: it learns from a data set."""
        self._refuse("record")

    def observe(self, reward: float, **_: Any) -> None:
        """Raises UsageError: it learns from a data set."""
        self._refuse("observe")

    def learn(self) -> bool:
        """Raises UsageError: it learns from a data set. To return False would let a trainer wait for ever."""
        self._refuse("learn")

    def interrupt(self) -> None:
        """Does nothing: no episode is remembered."""

    def discard(self, episode: str) -> None:
        """Does nothing: no episode is remembered."""

    def _record_live(self, episode: str, step: LiveStep) -> None:
        self._refuse("observe")

    def _discard_live(self, episode: str) -> None:
        """Does nothing: no episode is remembered."""

    def _refuse(self, what: str) -> NoReturn:
        raise UsageError(
            f"{what} was called, but {self.tag} learns from a data set: give it one with load, and call update. To "
            "learn by acting, use ppo, a2c, dqn or sac"
        )

    # Building, keeping -------------------------------------------------------------------------------------------

    def _discrete(self) -> Discrete:
        space = self.spaces.action
        if not isinstance(space, Discrete):
            raise UsageError(f"{self.tag} needs a discrete action space, not {space}; bc takes all")
        return space

    def _more_state(self) -> State:
        """Returns what else is kept; of the data set the fingerprint alone."""
        return State({}, {"acting_rng": self._acting_rng.bit_generator.state, "data": self.fingerprint})

    def restore(self, state: State) -> None:
        """Goes on from ``state``, bit for bit, once the data set is loaded that it learned from.

        Raises:
            CorruptError: it is not the state of such an algorithm, or it learned from another data set than the loaded
                one.
        """
        try:
            data = _fingerprint_of(state.values)
        except (KeyError, TypeError) as error:
            raise CorruptError(f"the state is not one of this {self.tag}: {error}") from error
        if self._steps is not None and data not in (None, self.fingerprint):
            raise CorruptError(
                f"the state is not one of this {self.tag}: it has learned from the data set {data}, not from "
                f"{self.fingerprint}"
            )
        super().restore(state)
        self._fingerprint = data
        self._forget_derived()

    def _restore_more(self, state: State) -> None:
        self._acting_rng.bit_generator.state = state.values["acting_rng"]


def _fingerprint_of(values: Mapping[str, Any]) -> str | None:
    data = values["data"]
    if data is not None and not isinstance(data, str):
        raise TypeError(f"its data is {data!r}, not the fingerprint of a data set")
    return data
