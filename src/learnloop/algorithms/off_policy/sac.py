"""Soft actor-critic: learns to earn while it stays as random as it can afford, over continuous or discrete actions.

Source: Haarnoja et al. 2018, Soft Actor-Critic Algorithms and Applications, algorithm 1; over discrete actions
Christodoulou 2019, Soft Actor-Critic for Discrete Action Settings, algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from learnloop.algorithms.base.config import Ranges, Schedule
from learnloop.algorithms.base.dealing import deal
from learnloop.algorithms.off_policy.learner import OffPolicyAlgorithm, OffPolicyConfig
from learnloop.algorithms.off_policy.sac_continuous import ContinuousLosses
from learnloop.algorithms.off_policy.sac_discrete import DiscreteLosses
from learnloop.algorithms.off_policy.twin_critic import MEANING, TwinCritic, critic_heads
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.arrays import F32
from learnloop.core.errors import DivergedError, UsageError
from learnloop.core.seeding import generator
from learnloop.core.spaces import Box, Discrete
from learnloop.core.stepping import Actions, Masks
from learnloop.nn.mlp.config import Head
from learnloop.nn.optimizers import Adam
from learnloop.system.state_file import State

LARGEST_SPAN = 1e30
"""Of the bounds of an action."""
BETAS = (0.9, 0.999)
EPSILON = 1e-8


class SACConfig(OffPolicyConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="sac"):
    """SAC's hyper-parameters, with Stable-Baselines3's names and defaults, but for ``buffer_size`` (a million)."""

    learning_rate: Schedule = 3e-4
    """Of actor, critics and temperature."""
    net_arch: tuple[int, ...] = (256, 256)
    """The hidden layers of the actor and of each critic."""
    tau: float = 0.005
    target_update_interval: int = 1
    """Gradient steps between updates of the target critics."""
    ent_coef: str | float = "auto"
    """What entropy is worth: a number, ``auto`` to learn it, or ``auto_0.1`` to learn it from .1 on."""
    target_entropy: str | float = "auto"
    """The entropy that ``auto`` aims at, in nats. ``auto``: minus the number of continuous actions; over discrete ones
    ``target_entropy_ratio`` of the largest possible."""
    target_entropy_ratio: float = 0.98
    """Christodoulou's choice, which is known to be poor where one action is right: the policy must stay almost uniform,
    and the temperature grows without bound where it cannot. .3 to .7 is a better start then."""

    ranges: ClassVar[Ranges] = {"target_entropy_ratio": (0, 1)}

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        super().__post_init__()
        initial_temperature(self.ent_coef)
        if isinstance(self.target_entropy, str) and self.target_entropy != "auto":
            raise UsageError(f"target_entropy is {self.target_entropy!r}; allowed are a number and auto")
        if not isinstance(self.target_entropy, str) and not math.isfinite(self.target_entropy):
            raise UsageError(f"target_entropy is {self.target_entropy}; it must be finite")


class SAC(OffPolicyAlgorithm):
    """SAC over a bounded box, or over discrete actions.

    The two critics are one network of two heads, which share nothing. The actor gives means and logarithms of standard
    deviations, or logits. Of ``networks`` the ``actor`` gives two numbers for each continuous action, or one for each
    discrete one. The ``critic`` gives two values of an observation and an action, or of an observation two values of
    each discrete action: those of the first critic, then those of the second.

    Attributes:
        temperature: what entropy is worth.
    """

    tag = "sac"
    config_type = SACConfig
    network_names = ("actor", "critic")
    config: SACConfig

    def _build(self) -> None:
        config, space = self.config, self.spaces.action
        if not (isinstance(space, Discrete) or (isinstance(space, Box) and space.is_bounded)):
            raise UsageError(f"sac needs a box with all bounds or a discrete action space, not {space}; use ppo or a2c")
        if isinstance(space, Box):
            _check_span(space)
        super()._build()
        num_inputs, num_values, meaning = self.encoder.size, 1, "the values of both critics"
        head = Head(name="policy", size=space.n if isinstance(space, Discrete) else 2 * space.size)
        if isinstance(space, Box):
            num_inputs += space.size
        else:
            num_values, meaning = space.n, MEANING
        self.actor = self._build_network("actor", [head], "the parameters of the action distribution", shared=True)
        critics = critic_heads(num_values)
        self.critic = self._build_network("critic", critics, meaning, shared=False, input_size=num_inputs)
        self._twin = TwinCritic(self.critic, config.tau)
        self.target = self._kept_networks["network.target"] = self._twin.target
        self.temperature = Temperature(config.ent_coef)
        self._losses = self._build_losses(space)
        self._actor_optimizer = self._kept_optimizers["optimizer.actor."] = Adam(self.actor)
        self._kept_optimizers["optimizer.critic."] = self._twin.optimizer
        self._critic_before = np.empty_like(self.critic.parameters)

    # Acting ------------------------------------------------------------------------------------------------------

    def _explore(self, observations: F32, masks: Masks | None) -> Actions:
        if self._is_random:
            return self._losses.draw_uniform(len(observations), masks, self._rng)
        outputs = self.actor.predict(observations)
        self._check_outputs(outputs)
        return self._losses.draw(outputs, masks, self._rng)

    def _to_space(self, actions: Actions) -> Actions:
        return self._losses.to_space(actions)

    def _from_space(self, actions: Actions) -> Actions:
        return self._losses.from_space(actions)

    # Learning ----------------------------------------------------------------------------------------------------

    def _update(self, count: int, learning_rate: float) -> None:
        config, losses, rng = self.config, self._losses, self._rng
        for _ in range(count):
            sample = self.replay.sample(config.batch_size, rng)
            ent_coef = self.temperature.value
            following = losses.next_values(sample, ent_coef, rng)
            targets = sample.rewards + sample.discounts * np.where(sample.terminated, np.float32(0), following)
            if self.shuffled:
                targets = deal(targets, rng)
            gap = losses.look(sample, rng)
            self._learn_critic(*losses.critic(sample, targets), learning_rate)
            self._learn_actor(*losses.actor(sample, ent_coef), learning_rate)
            self._learn_temperature(gap, ent_coef, learning_rate)
            if self.num_updates % config.target_update_interval == 0:
                self._twin.move_target()
            self.num_updates += 1

    def _learn_critic(self, loss: float, gradient: F32, learning_rate: float) -> None:
        np.copyto(self._critic_before, self.critic.parameters)
        norm = self._descend(self.critic, self._twin.optimizer, gradient, loss, learning_rate)
        self.metrics.add("train/critic_loss", loss)
        self.metrics.add("train/gradient_norm", norm)

    def _learn_actor(self, loss: float, gradient: F32, learning_rate: float) -> None:
        try:
            norm = self._descend(self.actor, self._actor_optimizer, gradient, loss, learning_rate)
        except DivergedError:
            np.copyto(self.critic.parameters, self._critic_before)
            self.critic.refresh()
            raise
        self.metrics.add("train/actor_loss", loss)
        self.metrics.add("train/actor_gradient_norm", norm)

    def _learn_temperature(self, gap: float, ent_coef: float, learning_rate: float) -> None:
        self.metrics.add("train/ent_coef", ent_coef)
        if self.temperature.is_learned:
            self.metrics.add("train/ent_coef_loss", self.temperature.loss(gap))
            self.temperature.step(gap, learning_rate)

    # Building, keeping -------------------------------------------------------------------------------------------

    def _build_losses(self, space: Box | Discrete) -> ContinuousLosses | DiscreteLosses:
        config = self.config
        networks = (self.actor, self.critic, self.target)
        target_entropy = None if isinstance(config.target_entropy, str) else float(config.target_entropy)
        if isinstance(space, Box):
            return ContinuousLosses(space, self.encoder.size, networks, target_entropy)
        return DiscreteLosses(space, networks, target_entropy, config.target_entropy_ratio)

    def policy(self) -> NetworkPolicy:
        """Returns a frozen copy of the policy; it takes the most likely action unless asked to sample."""
        return self._served(
            self.actor, ("policy",), "squashed" if isinstance(self.spaces.action, Box) else "distribution"
        )

    def value(self, observations: F32) -> F32:
        """Returns the soft value of encoded observations, shape ``(batch,)``; over continuous actions an estimate."""
        return self._losses.value(observations, self.temperature.value, generator(self.seed, "sac", "value"))

    def action_values(self, observations: F32, actions: Actions | None = None) -> F32:
        """Returns the lesser of both critics' values of ``actions``, in the units of the space, shape ``(batch,)``.

        Without ``actions`` those of each discrete action, shape ``(batch, n)``.
        """
        if actions is None and isinstance(self.spaces.action, Box):
            raise UsageError("continuous actions cannot be listed; give the actions whose values are wanted")
        return self._losses.action_values(observations, actions)

    def _more_state(self) -> State:
        tensors, values = super()._more_state()
        return State(tensors, {**values, "temperature": self.temperature.state()})

    def _restore_more(self, state: State) -> None:
        super()._restore_more(state)
        self.temperature.restore(state.values["temperature"])


def _check_span(space: Box) -> None:
    """Raises UsageError where a bound stands for none: a policy over all that fits into 32 bits learns nothing."""
    for low, high in zip(space.low, space.high, strict=True):
        if low is not None and high is not None and not high - low < LARGEST_SPAN:
            raise UsageError(
                f"sac scales its actions to their bounds, and an action from {low} to {high} has none in earnest; give "
                f"the space bounds less than {LARGEST_SPAN:g} apart, or use ppo or a2c"
            )


class Temperature:
    """The entropy coefficient alpha. A learned one rises while the entropy is below its target, and falls else.

    Its logarithm is learned, with Adam. The loss is that of Stable-Baselines3: log alpha times the gap between the
    entropy and its target. Source: Haarnoja et al. 2018, Soft Actor-Critic Algorithms and Applications, equation 18
    (there with alpha itself); Kingma and Ba 2015, Adam, algorithm 1.

    Attributes:
        is_learned: whether it is.
        value: alpha.
    """

    def __init__(self, ent_coef: str | float) -> None:
        """Takes a number to keep, ``auto`` to learn it from 1 on, or ``auto_0.1`` to learn it from .1 on."""
        self.is_learned = isinstance(ent_coef, str)
        self.value = initial_temperature(ent_coef)
        self._log = math.log(self.value) if self.is_learned else 0.0
        self._moments = [0.0, 0.0]
        self._num_steps = 0

    def loss(self, gap: float) -> float:
        """Returns the loss for the mean entropy less its target."""
        return self._log * gap

    def step(self, gap: float, learning_rate: float) -> None:
        """Takes a gradient step, with the mean entropy less its target as the gradient of the loss."""
        self._num_steps += 1
        first, second = self._moments
        first = BETAS[0] * first + (1 - BETAS[0]) * gap
        second = BETAS[1] * second + (1 - BETAS[1]) * gap * gap
        self._moments = [first, second]
        mean = first / (1 - BETAS[0] ** self._num_steps)
        square = second / (1 - BETAS[1] ** self._num_steps)
        self._log -= learning_rate * mean / (math.sqrt(square) + EPSILON)
        self.value = math.exp(self._log)

    def state(self) -> dict[str, Any]:
        """Returns all that it remembers, as JSON."""
        return {"value": self.value, "log": self._log, "moments": list(self._moments), "num_steps": self._num_steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from ``state``."""
        self.value, self._log = float(state["value"]), float(state["log"])
        self._moments = [float(each) for each in state["moments"]]
        self._num_steps = int(state["num_steps"])


def initial_temperature(ent_coef: str | float) -> float:
    """Returns what alpha starts with.

    Raises:
        UsageError: it is neither a number from 0 nor ``auto``, alone or with a number above 0.
    """
    if isinstance(ent_coef, str):
        kind, _, number = ent_coef.partition("_")
        try:
            value = float(number) if "_" in ent_coef else 1.0
        except ValueError:
            value = math.nan
        if kind == "auto" and 0 < value < math.inf:
            return value
    elif 0 <= ent_coef < math.inf:
        return float(ent_coef)
    raise UsageError(f"ent_coef is {ent_coef!r}; allowed are a number from 0, auto, and auto_NUMBER such as auto_0.1")
