"""Deep Q-learning, with its double, duelling, prioritised and n-step forms, each on its own.

Source: Mnih et al. 2015, Human-level control through deep reinforcement learning, algorithm 1.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from learnloop.algorithms.base.config import Linear, Ranges, Schedule, check_max_norm, value_at
from learnloop.algorithms.base.dealing import deal
from learnloop.algorithms.off_policy.learner import OffPolicyAlgorithm, OffPolicyConfig, TargetUpdate
from learnloop.algorithms.policies.heads import duelling_gradient, duelling_values
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.algorithms.replay.prioritised import PrioritisedReplay, ReplayBuffer, ReplaySample
from learnloop.core.arrays import F32, I64
from learnloop.core.errors import UsageError
from learnloop.core.spaces import Discrete
from learnloop.core.stepping import Actions, Masks
from learnloop.nn.mlp.config import Head
from learnloop.nn.optimizers import Adam
from learnloop.system.state_file import State

MAX_ROWS = 8192
"""So many transitions are drawn at once at most."""
MAX_BYTES = 32_000_000
"""And so many bytes of observations."""
TARGET_ROWS = 512
"""So many go through the target network at once: what its layers give must stay in the cache."""


class DQNConfig(OffPolicyConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="dqn"):
    """DQN's hyper-parameters, with Stable-Baselines3's names and defaults, but for ``buffer_size`` (there 1,000,000).

    ``double``, ``duelling``, ``prioritised`` and ``n_steps`` are off, as there.
    """

    learning_rate: Schedule = 1e-4
    batch_size: int = 32
    train_freq: int = 4
    target_update_interval: int = 10_000
    """Steps, of all envs together, between updates of the target network. Gradient steps of ``learn_from`` count as
    the steps that ``train_freq`` and ``gradient_steps`` give each."""
    exploration_fraction: float = 0.1
    """Over this share of the training, ``exploration_initial_eps`` falls to ``exploration_final_eps``; live agents have
    ``live_steps``."""
    exploration_initial_eps: float = 1.0
    """The probability of a uniformly drawn action at first."""
    exploration_final_eps: float = 0.05
    max_grad_norm: float | None = 10.0
    """The gradient is scaled down to this norm; None: it is not."""
    double: bool = False
    """Whether the next action is chosen by the network and valued by the target network: less overestimation, for
    another pass of the network."""
    duelling: bool = False
    """Whether the network has a head for the value and one for the advantages."""
    prioritised: bool = False
    """Whether transitions of large error are drawn more often."""
    priority_alpha: float = 0.6
    """How much priorities count, from 0 (not) to 1."""
    priority_beta: Schedule = Linear(initial=0.4, final=1.0)
    """How much importance weights make up for them, from 0 (not) to 1; a schedule over the training."""
    priority_epsilon: float = 1e-6
    """Added to each error."""

    ranges: ClassVar[Ranges] = {
        "exploration_fraction": (1e-9, 1),
        "exploration_initial_eps": (0, 1),
        "exploration_final_eps": (0, 1),
        "priority_alpha": (0, 1),
        "priority_beta": (0, 1),
        "priority_epsilon": (1e-12, 1),
    }

    def __post_init__(self) -> None:
        """Refuses values without a meaning, and those that contradict each other."""
        super().__post_init__()
        if self.exploration_final_eps > self.exploration_initial_eps:
            raise UsageError(
                f"exploration_final_eps is {self.exploration_final_eps}, above exploration_initial_eps "
                f"({self.exploration_initial_eps}); exploration falls"
            )
        check_max_norm(self.max_grad_norm)

    def changing(self) -> list[str]:
        """Returns the names of the options whose values change with the progress of the training."""
        found = [name for name in super().changing() if name != "priority_beta" or self.prioritised]
        is_falling = self.exploration_final_eps != self.exploration_initial_eps
        return [*found, "exploration_initial_eps"] if is_falling else found


class DQN(OffPolicyAlgorithm):
    """DQN over discrete actions. Its network gives the value of each action, or, duelling, V and the advantages."""

    tag = "dqn"
    config_type = DQNConfig
    network_names = ("network",)
    kept_counts = (
        *OffPolicyAlgorithm.kept_counts,
        *("_steps_to_target", "_num_target_updates", "_updates_to_target"),
    )
    config: DQNConfig

    def _build(self) -> None:
        config, space = self.config, self.spaces.action
        if not isinstance(space, Discrete):
            raise UsageError(f"dqn needs a discrete action space, not {space}; use sac, ppo or a2c")
        super()._build()
        self._n = space.n
        heads, meaning = [Head(name="value", size=self._n)], "the value of each action"
        if config.duelling:
            heads = [Head(name="value", size=1), Head(name="advantage", size=self._n)]
            meaning = "V, then the advantages"
        self.network = self._build_network("network", heads, meaning, shared=True)
        self.target = self._kept_networks["network.target"] = self.network.copy()
        self.optimizer = self._kept_optimizers["optimizer.network."] = Adam(self.network)
        self._target_mover = TargetUpdate(self.network, self.target)
        self._steps_to_target = 0
        self._num_target_updates = 0
        self._updates_to_target = 0
        """Gradient steps on historical transitions alone since they moved the target network last."""
        self._exploration = Linear(
            initial=config.exploration_initial_eps,
            final=config.exploration_final_eps,
            fraction=config.exploration_fraction,
        )
        self._gradients: dict[int, tuple[F32, I64]] = {}

    # Acting ------------------------------------------------------------------------------------------------------

    @property
    def exploration_rate(self) -> float:
        """The probability of a uniformly drawn action."""
        return 1.0 if self._is_random else value_at(self._exploration, self.progress)

    def _explore(self, observations: F32, masks: Masks | None) -> Actions:
        """Epsilon-greedy: with probability ``exploration_rate`` any allowed action, else the one of highest value."""
        rng, rate = self._rng, self.exploration_rate
        if len(observations) == 1:
            if rng.random() < rate:
                return self._draw_one(masks)
            return self._best(observations, masks)
        draws = rng.random(len(observations)) < rate
        if not draws.any():
            return self._best(observations, masks)
        actions = self._draw(len(observations), masks)
        if not draws.all():
            greedy = ~draws
            best = self._best(observations, masks)
            actions[greedy] = best[greedy]
        return actions

    def _draw_one(self, masks: Masks | None) -> Actions:
        if masks is not None:
            return self._draw(1, masks)
        return np.array([int(self._rng.random() * self._n)])

    def _draw(self, batch: int, masks: Masks | None) -> Actions:
        """Returns allowed actions, each as likely: the one whose random number is largest."""
        if masks is None:
            return self._rng.integers(self._n, size=batch)
        keys = self._rng.random((batch, self._n))
        keys[~masks] = -1.0
        actions: Actions = keys.argmax(axis=1)
        return actions

    def _best(self, observations: F32, masks: Masks | None) -> Actions:
        outputs = self.network.predict(observations)
        self._check_outputs(outputs)
        values = outputs[:, 1:] if self.config.duelling else outputs  # V is the same for all actions
        actions: Actions = _allowed(values, masks).argmax(axis=1)
        return actions

    # Recording ---------------------------------------------------------------------------------------------------

    def _count(self, num_steps: int) -> None:
        super()._count(num_steps)
        self._steps_to_target += num_steps
        interval = self.config.target_update_interval
        if self._steps_to_target >= interval:
            self._num_target_updates += self._steps_to_target // interval
            self._steps_to_target %= interval

    # Learning ----------------------------------------------------------------------------------------------------

    def _learn_offline(self, num_updates: int) -> None:
        """Takes gradient steps; the target network moves as often as if each had its share of environment steps.

        Else what is learned would be one step deep: the values of the network as it was built.
        """
        config = self.config
        interval, left = config.target_update_interval, num_updates
        steps_each = 1.0 if config.gradient_steps == -1 else config.train_freq * self.num_envs / config.gradient_steps
        between = max(1, round(interval / steps_each))
        while left:
            count = min(left, between - self._updates_to_target)
            self._learn(count)
            left -= count
            self._updates_to_target += count
            if self._updates_to_target == between:
                self._updates_to_target = 0
                self._num_target_updates += 1

    def _update(self, count: int, learning_rate: float) -> None:
        """Takes ``count`` gradient steps; the target network, which moves between steps only, stays as it is."""
        self._move_target()
        self.metrics.set("rollout/exploration_rate", self.exploration_rate)
        if isinstance(self.replay, PrioritisedReplay):
            self._update_prioritised(self.replay, count, learning_rate)
            return
        size = self.config.batch_size
        at_once = max(1, min(MAX_ROWS, MAX_BYTES // (8 * self.encoder.size)) // size)
        for start in range(0, count, at_once):
            number = min(at_once, count - start)
            sample = self.replay.sample(number * size, self._rng)
            following = self.target_values(sample)
            for first in range(0, number * size, size):
                rows = slice(first, first + size)
                part = sample.rows(rows)
                self._step(part, self._targets(part, following[rows]), learning_rate)

    def _update_prioritised(self, replay: PrioritisedReplay, count: int, learning_rate: float) -> None:
        """Schaul et al. 2016, algorithm 1: draws, learns, and gives what was drawn its new error as priority."""
        beta = value_at(self.config.priority_beta, self.progress)
        for _ in range(count):
            sample = replay.sample(self.config.batch_size, self._rng, beta)
            errors = self._step(sample, self._targets(sample, self.target_values(sample)), learning_rate)
            replay.update_priorities(sample, errors)
        self.metrics.set("train/priority_beta", beta)
        self.metrics.set("train/num_stale_priorities", replay.num_stale)

    def _move_target(self) -> None:
        """Does all target updates since the last gradient step at once: k of them move it by 1 - (1 - tau)^k."""
        if self._num_target_updates:
            self._target_mover.move(1 - (1 - self.config.tau) ** self._num_target_updates)
            self._num_target_updates = 0

    def target_values(self, sample: ReplaySample) -> F32:
        """Returns the target network's value of each action in what came next, shape ``(batch, n)``."""
        arrived = sample.next_observations
        if len(arrived) <= TARGET_ROWS:
            return self._values(self.target.predict(arrived)).copy()
        _, first, places = np.unique(sample.following, return_index=True, return_inverse=True)
        distinct = arrived.take(first, axis=0)  # of many draws from a young replay most are repeated
        values = np.empty((len(distinct), self._n), dtype=np.float32)
        for start in range(0, len(distinct), TARGET_ROWS):
            rows = slice(start, start + TARGET_ROWS)
            values[rows] = self._values(self.target.predict(distinct[rows]))
        return values.take(places, axis=0)

    def _values(self, outputs: F32) -> F32:
        return duelling_values(outputs) if self.config.duelling else outputs

    def _targets(self, sample: ReplaySample, following: F32) -> F32:
        """Returns r + gamma max_a Q'(s', a), shape ``(batch,)``; of a terminated episode r alone.

        Double: a is the best action of the network. Source: van Hasselt et al. 2016, Deep Reinforcement Learning with
        Double Q-learning, equation 4.
        """
        if self.config.double:
            judged = self._values(self.network.predict(sample.next_observations))
            best = _allowed(judged, sample.next_masks).argmax(axis=1)
            worth = following[np.arange(len(best)), best]
        else:
            worth = np.maximum.reduce(_allowed(following, sample.next_masks), axis=1)
        targets: F32 = sample.rewards + sample.discounts * np.where(sample.terminated, np.float32(0), worth)
        return deal(targets, self._rng) if self.shuffled else targets

    def _step(self, sample: ReplaySample, targets: F32, learning_rate: float) -> F32:
        """Takes one gradient step towards ``targets``; returns the errors Q - target, shape ``(batch,)``.

        The loss is Huber's: half the squared error up to 1, linear from there. Source: Mnih et al. 2015, methods,
        "training algorithm"; Stable-Baselines3's ``smooth_l1_loss``.
        """
        size = len(targets)
        outputs = self.network.forward(sample.observations)
        gradient, rows = self._gradient_buffer(size)
        errors: F32 = self._values(outputs)[rows, sample.actions] - targets
        slopes = np.minimum(np.maximum(errors, np.float32(-1)), np.float32(1))
        pulls = slopes if sample.weights is None else slopes * sample.weights
        loss = float(pulls @ (errors - np.float32(0.5) * slopes)) / size
        gradient.fill(0)
        gradient[rows, sample.actions] = pulls * np.float32(1 / size)
        pulled = duelling_gradient(gradient) if self.config.duelling else gradient
        norm = self._descend(self.network, self.optimizer, pulled, loss, learning_rate, self.config.max_grad_norm)
        self.num_updates += 1
        self.metrics.add("train/loss", loss)
        self.metrics.add("train/gradient_norm", norm)
        return errors

    def _gradient_buffer(self, size: int) -> tuple[F32, I64]:
        """Returns where the gradient of the values of ``size`` rows is written, and the numbers of the rows."""
        found = self._gradients.get(size)
        if found is None:
            buffer = np.zeros((self._n, size), dtype=np.float32).T  # as networks lay out their outputs
            found = self._gradients[size] = (buffer, np.arange(size))
        return found

    # Building, keeping -------------------------------------------------------------------------------------------

    def _build_replay(self) -> ReplayBuffer:
        config = self.config
        if not config.prioritised:
            return super()._build_replay()
        return PrioritisedReplay(
            config.buffer_size,
            self.encoder.size,
            self.spaces.action,
            alpha=config.priority_alpha,
            epsilon=config.priority_epsilon,
            **self._replay_options(),
        )

    def policy(self) -> NetworkPolicy:
        """Returns a frozen copy of the greedy policy."""
        return self._served(self.network, ("value", "advantage"), "duelling" if self.config.duelling else "q_values")

    def action_values(self, observations: F32) -> F32:
        """Returns Q of each action for encoded observations, shape ``(batch, n)``."""
        return self._values(self.network.predict(observations)).copy()

    def restore(self, state: State) -> None:
        """Goes on from ``state``; ``Algorithm.restore`` has the rest."""
        super().restore(state._replace(values={"updates_to_target": 0, **state.values}))  # old ones have none


def _allowed(values: F32, masks: Masks | None) -> F32:
    """Returns ``values``, minus infinity where not allowed."""
    return values if masks is None else np.where(masks, values, np.float32(-np.inf))
