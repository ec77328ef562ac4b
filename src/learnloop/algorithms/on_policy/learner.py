"""What PPO and A2C share: a network with a policy and a value, and rollouts that are learned from once."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.base.config import AlgorithmConfig, Ranges, check_max_norm, value_at
from learnloop.algorithms.base.dealing import deal, deal_centred
from learnloop.algorithms.base.scaling import ObservationScaler, RewardScaler
from learnloop.algorithms.base.states import part_of, prefixed
from learnloop.algorithms.live.episodes import Chosen, LiveSegments, LiveStep
from learnloop.algorithms.on_policy.advantages import explained_variance, gae
from learnloop.algorithms.on_policy.correction import JudgedSteps, corrected
from learnloop.algorithms.on_policy.historical import check_segment
from learnloop.algorithms.on_policy.rollout import Batch, Rollout, Segment, Steps, join, joined_segments, live_steps
from learnloop.algorithms.policies.heads import policy_heads
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.arrays import F32, Bools
from learnloop.core.errors import DivergedError, UsageError
from learnloop.core.stepping import Actions, EnvStep, Masks
from learnloop.nn.distributions import Evaluation, make_distribution
from learnloop.nn.mlp.config import Head
from learnloop.nn.optimizers import Adam, Optimizer
from learnloop.system.state_file import State, Tensors

LIVE_ROOM = 4
"""Live steps for so many updates are kept. Where nobody calls ``learn``, the oldest make room, and are counted in
``rollout/num_dropped_steps``."""


class OnPolicyConfig(AlgorithmConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the configs of PPO and A2C share."""

    n_steps: int = 2048
    """How many steps of each env an update learns from."""
    gae_lambda: float = 0.95
    """Between bias (0) and variance (1) of advantages."""
    normalize_advantage: bool = True
    """Whether advantages are brought to mean 0 and standard deviation 1 before they are learned from."""
    ent_coef: float = 0.0
    """The weight of the policy's entropy: how much a random policy is preferred."""
    vf_coef: float = 0.5
    """The weight of the value's loss."""
    max_grad_norm: float | None = 0.5
    """The gradient is scaled down to this norm; None: it is not."""
    shared_trunk: bool = False
    """Whether policy and value share their hidden layers."""
    log_std_init: float = 0.0
    """Where the logarithm of the standard deviation of continuous actions starts."""
    normalize_observations: bool = False
    """Whether observations are brought to mean 0 and standard deviation 1 by what was seen so far."""
    normalize_rewards: bool = False
    """Whether rewards are divided by the standard deviation of the discounted return so far."""

    ranges: ClassVar[Ranges] = {
        "n_steps": (1, None),
        "gae_lambda": (0, 1),
        "ent_coef": (0, 1e6),
        "vf_coef": (0, 1e6),
        "log_std_init": (-20, 5),
    }

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        super().__post_init__()
        check_max_norm(self.max_grad_norm)


class OnPolicyAlgorithm(Algorithm):
    """The part of PPO and A2C that is not their loss.

    Its network gives the parameters of the action distribution, then the value, as one row of outputs.

    Attributes:
        segments: live steps that were not learned from yet, an episode each.
        observation_scaler: brings observations to mean 0 and standard deviation 1, where that is configured.
        reward_scaler: divides rewards by the standard deviation of the discounted return, where that is configured.
        num_stale: live steps whose action an earlier policy chose than the one that learned from them.
    """

    config: OnPolicyConfig
    network_names = ("network",)

    def _build(self) -> None:
        config, num_envs = self.config, self.num_envs
        self.distribution = make_distribution(self.spaces.action)
        # The policy starts almost uniform: Huang et al. 2022, detail 2.
        heads = policy_heads(self.spaces.action, gain=0.01, log_std=config.log_std_init)
        heads.append(Head(name="value", size=1))
        meaning = "the parameters of the action distribution, then the value"
        self.network = self._build_network("network", heads, meaning, shared=config.shared_trunk)
        self.optimizer = self._build_optimizer()
        self._kept_networks = {"parameters": self.network}
        self._kept_optimizers = {"optimizer.": self.optimizer}
        self._rollout = Rollout(config.n_steps, num_envs, self.encoder.size, self.spaces.action)
        self.observation_scaler = ObservationScaler(self.encoder.size) if config.normalize_observations else None
        self.reward_scaler = RewardScaler(num_envs, config.gamma) if config.normalize_rewards else None
        self._chosen: Chosen | None = None
        self._last_observations: F32 | None = None
        self.segments = LiveSegments(LIVE_ROOM * config.n_steps * num_envs)
        self.num_stale = 0
        self._resetting: Bools | None = None
        """Which envs will only reset themselves in the next step."""

    # Acting ------------------------------------------------------------------------------------------------------

    def choose(self, observations: F32, masks: Masks | None = None) -> Actions:
        """Returns an action for each env, drawn from the policy; ``Algorithm.choose`` has the arguments."""
        rollout, at = self._rollout, self._rollout.position
        if rollout.is_full:
            raise UsageError(f"the rollout holds its {rollout.num_steps} steps; call learn before the next choose")
        if self.observation_scaler is not None:
            observations = self.observation_scaler.see(observations, self._resetting)
        chosen = self._choose_scaled(observations, masks)
        rollout.observations[at] = observations
        rollout.actions[at] = chosen.actions
        rollout.log_probs[at] = chosen.log_probs
        rollout.values[at] = chosen.values
        if chosen.dropout is not None:
            rollout.dropout[at] = chosen.dropout
        if masks is not None:
            rollout.masks[at] = masks
            rollout.has_masks = True
        self._chosen = chosen
        return chosen.actions

    def _choose(self, observations: F32, masks: Masks | None) -> Chosen:
        if self.observation_scaler is None:
            return self._choose_scaled(observations, masks)
        seen = self.observation_scaler.see(observations)
        return self._choose_scaled(seen, masks)._replace(seen=seen)

    def _choose_scaled(self, observations: F32, masks: Masks | None) -> Chosen:
        dropout = None
        if self.network.num_masks:
            dropout = self._rng.integers(self.network.num_masks, size=len(observations))
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is told below, by its update
            outputs = self.network.predict(observations, dropout)
            actions, log_probs = self.distribution.sample(outputs[:, :-1], self._rng, masks)
        values = outputs[:, -1].copy()
        if not math.isfinite(float(log_probs.sum())):  # values are looked at before they are learned from
            raise DivergedError(f"after update {self.num_updates} the network's outputs are not finite")
        return Chosen(actions, log_probs, values, dropout, None, self.num_updates)

    # Recording ---------------------------------------------------------------------------------------------------

    def record(self, step: EnvStep) -> None:
        """Takes what came of the actions that ``choose`` returned last."""
        if self._chosen is None:
            raise UsageError("record was called without choose; each record tells what came of one choose")
        rollout, at = self._rollout, self._rollout.position
        rewards = step.rewards
        ended = np.logical_or(step.terminated, step.truncated)
        if self.reward_scaler is not None:
            rewards = self.reward_scaler.see(rewards, ended, step.valid)
        rollout.rewards[at] = rewards
        rollout.ended[at] = ended
        if ended.any():
            cut = np.flatnonzero(step.truncated & ~step.terminated)
            if len(cut):
                rollout.bootstraps[at, cut] = self.value(step.final_observations[cut])
        if step.valid is None:
            self.num_steps += self.num_envs
        else:
            self.num_steps += self._record_valid(step.valid)
        rollout.position += 1
        self._last_observations, self._resetting = step.observations, step.resetting
        self._chosen = None

    def _record_valid(self, valid: Bools) -> int:
        """Marks the envs that only reset themselves; returns how many others there are."""
        num_valid = int(np.count_nonzero(valid))
        if num_valid < self.num_envs:
            at = self._rollout.position
            self._rollout.valid[at] = valid
            self._rollout.ended[at] |= ~valid
            self._rollout.has_invalid = True
        return num_valid

    def interrupt(self) -> None:
        """Cuts the running episodes of all envs, as truncated."""
        at = self._rollout.position - 1
        self._resetting = None
        if self.reward_scaler is not None:
            self.reward_scaler.reset()
        if at < 0 or self._last_observations is None:
            return
        running = np.flatnonzero(~self._rollout.ended[at])
        if len(running):
            self._rollout.bootstraps[at, running] = self.value(self._last_observations[running])
            self._rollout.ended[at, running] = True

    def value(self, observations: F32) -> F32:
        """Returns the values of encoded observations, shape ``(batch,)``; dropout is off."""
        if self.observation_scaler is not None:
            observations = self.observation_scaler.apply(observations)
        return self.network.predict(observations)[:, -1].copy()

    def _record_live(self, episode: str, step: LiveStep) -> None:
        if step.chosen.seen is not None:
            step = step._replace(observation=step.chosen.seen[0])
        ended = step.terminated or step.truncated
        if self.reward_scaler is not None:
            step = step._replace(reward=self.reward_scaler.see_live(episode, step.reward, ended=ended))
        self.segments.add(episode, step)
        if self.segments.num_dropped:
            self.metrics.set("rollout/num_dropped_steps", self.segments.num_dropped)
        self.num_steps += 1

    def _discard_live(self, episode: str) -> None:
        self.segments.discard(episode)
        if self.reward_scaler is not None:
            self.reward_scaler.discard(episode)

    # Learning ----------------------------------------------------------------------------------------------------

    def learn(self) -> bool:
        """Updates once ``n_steps`` of each env are recorded, or as many of live episodes; returns whether it did."""
        batches = []
        if self._rollout.is_full:
            batches.append(self.rollout_batch())
        if self.segments.num_steps >= self.config.n_steps * self.num_envs:
            self._warn_of_schedules()
            batches.append(self.live_batch(self.segments))
            self.segments.clear()
        if not batches:
            return False
        batch = join(batches, self.spaces.action)
        if batch.size:  # all envs may have done nothing but reset themselves
            self._learn_batch(batch)
        if self._rollout.is_full:
            self._rollout.clear()
        return bool(batch.size)

    def learn_from(self, segments: Sequence[Segment]) -> None:
        """Updates from historical segments, which another policy may have chosen; ``correction`` says how.

        Observations are encoded, ``Segment.log_probs`` are those that were logged.

        Raises:
            UsageError: there are none, or one is not what ``check_segment`` allows.
        """
        if not segments:
            raise UsageError("there are no segments to learn from")
        checked = [check_segment(segment, self.spaces.action, self.encoder.size) for segment in segments]
        self._learn_batch(self.historical_batch(joined_segments(checked, self.spaces.action)))

    def rollout_batch(self) -> Batch:
        """Returns the steps of the rollout, which is full, with what they were worth.

        Raises:
            UsageError: no step was recorded.
        """
        rollout, last = self._rollout, self._last_observations
        if last is None:
            raise UsageError("the rollout's last observations are not known; call record before learn")
        last_values = self.value(last)
        advantages = gae(
            rollout.rewards,
            rollout.values,
            rollout.next_values(last_values),
            rollout.ended,
            gamma=self.config.gamma,
            gae_lambda=self.config.gae_lambda,
        )
        return rollout.batch(advantages, with_dropout=bool(self.network.num_masks))

    def live_batch(self, segments: Iterable[Sequence[LiveStep]]) -> Batch:
        """Returns live steps with what they were worth; those from before the last update are corrected."""
        steps, num_updates = live_steps(segments, self.spaces.action, with_dropout=bool(self.network.num_masks))
        is_own = num_updates == self.num_updates
        num_stale = int(np.count_nonzero(~is_own))
        if num_stale:
            self.num_stale += num_stale
            self.metrics.set("train/num_stale_steps", self.num_stale)
        return self._corrected(steps, is_own, self._judged(steps) if num_stale else None)

    def historical_batch(self, steps: Steps) -> Batch:
        """Returns historical steps, as they were logged, with what they were worth."""
        if self.observation_scaler is not None:
            steps = steps._replace(observations=self.observation_scaler.apply(steps.observations))
        if self.reward_scaler is not None:
            steps = steps._replace(rewards=self.reward_scaler.apply(steps.rewards).astype(np.float32))
        if self.network.num_masks:
            steps = steps._replace(dropout=self._rng.integers(self.network.num_masks, size=steps.size))
        return self._corrected(steps, np.zeros(steps.size, dtype=np.bool_), self._judged(steps))

    def _judged(self, steps: Steps) -> JudgedSteps:
        outputs = self.network.predict(steps.observations, steps.dropout).copy()
        evaluation = self.distribution.evaluate(outputs[:, :-1], steps.actions, steps.masks)
        return JudgedSteps(evaluation.log_probs.copy(), outputs[:, -1])

    def _corrected(self, steps: Steps, is_own: Bools, judged: JudgedSteps | None) -> Batch:
        bootstraps = self.value(steps.next_observations) if len(steps.cut) else np.zeros(0, dtype=np.float32)
        config = self.config
        return corrected(steps, is_own, judged, bootstraps, gamma=config.gamma, gae_lambda=config.gae_lambda)

    def _learn_batch(self, batch: Batch) -> None:
        before = self._all_parameters()
        if not np.isfinite(batch.returns).all():
            self._diverge("a reward or a value is not finite", int(np.count_nonzero(~np.isfinite(batch.returns))))
        if self.shuffled:
            advantages = deal_centred(batch.advantages, self._rng)
            batch = batch._replace(advantages=advantages, returns=deal(batch.returns, self._rng))
        self.metrics.set("train/learning_rate", value_at(self.config.learning_rate, self.progress))
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite stops it, with the update's number
            self._update(batch)
        if not math.isfinite(self._note_change(before)):
            raise DivergedError(f"after update {self.num_updates} the parameters are not finite")
        self.metrics.set("train/explained_variance", explained_variance(batch.values, batch.returns))
        self._note_dormant()  # over the last minibatch: its layers are computed already

    @abstractmethod
    def _update(self, batch: Batch) -> None:
        """Takes the gradient steps of one batch."""

    def _evaluate(self, batch: Batch) -> tuple[F32, Evaluation]:
        """Returns the outputs for ``batch`` and what the policy says of its actions now."""
        outputs = self.network.forward(batch.observations, batch.dropout)
        return outputs, self.distribution.evaluate(outputs[:, :-1], batch.actions, batch.masks)

    def _step(self, gradient: F32, loss: float, learning_rate: float) -> None:
        """Takes one gradient step along the gradient of the loss with respect to the outputs.

        Raises:
            DivergedError: the loss or the gradient is not finite; nothing was changed.
        """
        limit = self.config.max_grad_norm
        norm = self._descend(self.network, self.optimizer, gradient, loss, learning_rate, limit)
        self.num_updates += 1
        self.metrics.add("train/gradient_norm", norm)

    # Building, keeping ----------------------------------------------------------------------------------------------

    def _build_optimizer(self) -> Optimizer:
        return Adam(self.network, eps=1e-5)

    def policy(self) -> NetworkPolicy:
        """Returns a frozen copy of the policy."""
        scaler = self.observation_scaler
        normaliser = None if scaler is None else scaler.normaliser()
        return self._served(self.network, ("policy", "log_std"), "distribution", normaliser)

    def _more_state(self) -> State:
        tensors: Tensors = prefixed("rollout.", self._rollout.state())
        for name, array in (("last_observations", self._last_observations), ("resetting", self._resetting)):
            if array is not None:
                tensors[name] = array.copy()
        for name, scaler in self._scalers().items():
            tensors |= prefixed(f"{name}_scaler.", scaler.state())
        return State(tensors, {})

    def _restore_more(self, state: State) -> None:
        self._rollout.restore(part_of(state.tensors, "rollout."))
        self._last_observations = state.tensors.get("last_observations")
        self._resetting = state.tensors.get("resetting")
        for name, scaler in self._scalers().items():
            scaler.restore(part_of(state.tensors, f"{name}_scaler."))
        self._chosen = None
        self.segments.clear()

    def _scalers(self) -> dict[str, ObservationScaler | RewardScaler]:
        """Returns what observations and rewards are scaled by, by name; empty where nothing is scaled."""
        scalers = {"observation": self.observation_scaler, "reward": self.reward_scaler}
        return {name: scaler for name, scaler in scalers.items() if scaler is not None}
