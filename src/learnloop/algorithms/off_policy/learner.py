"""What DQN and SAC share: transitions go into a replay, and updates learn from what is drawn of it."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.base.config import AlgorithmConfig, Ranges, value_at
from learnloop.algorithms.base.states import part_of, prefixed
from learnloop.algorithms.live.episodes import Chosen, LiveStep
from learnloop.algorithms.live.replay import LiveReplay
from learnloop.algorithms.on_policy.historical import check_transitions
from learnloop.algorithms.replay.n_step import NStepEnvs
from learnloop.algorithms.replay.prioritised import MARGIN, Entries, ReplayBuffer, Transitions
from learnloop.core.arrays import F32, I64
from learnloop.core.errors import ActionError, UsageError
from learnloop.core.stepping import Actions, EnvStep, Masks
from learnloop.nn.network import Network
from learnloop.nn.optimizers import BLOCK
from learnloop.system.state_file import State

LARGEST_REWARD = 3e38
"""Rewards are kept as float32."""
CHANGE_INTERVAL = 8
"""How far the parameters moved in a call of ``learn`` is looked at so seldom, in updates: it costs SAC 2 % else."""
DORMANT_INTERVAL = 1000
"""Dormant units are looked for so seldom, in updates: it costs as much as an update."""


class OffPolicyConfig(AlgorithmConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the configs of DQN and SAC share."""

    activation: Literal["tanh", "relu"] = "relu"
    init: Literal["orthogonal", "xavier", "he", "uniform"] = "uniform"
    buffer_size: int = 100_000
    """Transitions that the replay holds; ``ReplayBuffer.num_bytes`` says its memory."""
    learning_starts: int = 100
    """Steps before the first update; until then actions are drawn uniformly."""
    batch_size: int = 256
    """Transitions of one gradient step, drawn with replacement."""
    tau: float = 1.0
    """How far a target update moves the target network; 1: it becomes a copy."""
    train_freq: int = 1
    """Steps of each env between updates."""
    gradient_steps: int = 1
    """Gradient steps of an update; -1: as many as steps were recorded since the last one, of all envs together."""
    target_update_interval: int = 1
    n_steps: int = 1
    """How many rewards are in a return before it is bootstrapped. Above 1 it is biased to the policy that acted."""
    buffer_dtype: Literal["float32", "float16"] = "float32"
    """How observations are kept; ``float16`` takes half the memory, has 3 digits and ends at 65504."""
    buffer_folder: str | None = None
    """Where observations are kept in a memory-mapped file, which goes with the process; None: in memory."""
    share_observations: bool = True
    """Whether the replay has room for one observation a transition: enough where transitions follow each other. False:
    for two."""

    ranges: ClassVar[Ranges] = {
        **dict.fromkeys(("buffer_size", "batch_size", "train_freq", "target_update_interval", "n_steps"), (1, None)),
        "learning_starts": (0, None),
        "tau": (0, 1),
    }

    def __post_init__(self) -> None:
        """Refuses values without a meaning, and those that contradict each other."""
        super().__post_init__()
        if self.gradient_steps != -1 and self.gradient_steps < 1:
            raise UsageError(
                f"gradient_steps is {self.gradient_steps}; allowed is from 1, or -1 for as many as steps were recorded"
            )
        if self.batch_size > self.buffer_size:
            raise UsageError(
                f"batch_size is {self.batch_size}, more than the {self.buffer_size} transitions of buffer_size"
            )
        if self.learning_starts > self.buffer_size:
            raise UsageError(
                f"learning_starts is {self.learning_starts}, more than the {self.buffer_size} transitions of "
                "buffer_size: what comes before would be forgotten unlearned"
            )
        if self.dropout:
            raise UsageError(
                f"dropout is {self.dropout}; DQN and SAC learn from actions of many former networks, and have none. "
                "Use layer_norm"
            )


class OffPolicyAlgorithm(Algorithm):
    """The part of DQN and SAC that is not their loss.

    Attributes:
        replay: what was recorded, newest ``buffer_size`` transitions.
    """

    config: OffPolicyConfig
    kept_counts: ClassVar[tuple[str, ...]] = ("_num_collected", "_next_dormant")

    def _build(self) -> None:
        config, num_envs = self.config, self.num_envs
        if config.buffer_size < num_envs * config.n_steps:
            raise UsageError(
                f"buffer_size is {config.buffer_size}; {num_envs} envs with returns of {config.n_steps} steps need "
                f"at least {num_envs * config.n_steps}"
            )
        self.replay = self._build_replay()
        self._live_replay = LiveReplay(self.replay, config.n_steps, config.gamma)
        self._window: NStepEnvs | None = None
        if config.n_steps > 1:
            self._window = NStepEnvs(config.n_steps, num_envs, config.gamma, self.spaces.action)
        self._env_rows = np.arange(num_envs)
        self._seen: F32 | None = None
        """The array that ``record`` was given last: what ``choose`` usually gets."""
        self._numbers: I64 = np.zeros(0, dtype=np.int64)
        """Of the observations that the envs are at, in the replay; empty where they are not known."""
        self._chosen: Actions | None = None
        """What ``choose`` returned last, as the replay keeps it."""
        self._num_collected = 0
        self._next_dormant = DORMANT_INTERVAL

    # Acting ------------------------------------------------------------------------------------------------------

    def choose(self, observations: F32, masks: Masks | None = None) -> Actions:
        """Returns an action for each env, exploring; ``Algorithm.choose`` has the arguments."""
        if observations is not self._seen:
            self._see(observations, masks)
        if masks is not None and not masks.any(axis=1).all():
            env_index = int(np.argmin(masks.any(axis=1)))
            raise ActionError(f"the mask of env {env_index} allows no action; it must allow at least one")
        self._chosen = self._explore(observations, masks)
        return self._to_space(self._chosen)

    def _see(self, observations: F32, masks: Masks | None) -> None:
        if len(observations) != self.num_envs:
            raise UsageError(f"{len(observations)} observations were given for {self.num_envs} envs")
        if not len(self._numbers) or not self.replay.shows(self._numbers, observations):
            self.interrupt()
            self._numbers = self._env_rows + self.replay.see(observations, masks)

    def _choose(self, observations: F32, masks: Masks | None) -> Chosen:
        return Chosen(self._to_space(self._explore(observations, masks)))

    @property
    def _is_random(self) -> bool:
        """Whether too little is recorded for anything but uniform actions."""
        return self.num_steps < self.config.learning_starts

    @abstractmethod
    def _explore(self, observations: F32, masks: Masks | None) -> Actions:
        """Returns actions for a batch of observations, as the replay keeps them."""

    def _to_space(self, actions: Actions) -> Actions:
        """Returns actions in the units of the space."""
        return actions

    def _from_space(self, actions: Actions) -> Actions:
        """Returns actions as the replay keeps them."""
        return actions

    # Recording ---------------------------------------------------------------------------------------------------

    def record(self, step: EnvStep) -> None:
        """Takes what came of the actions that ``choose`` returned last.

        Raises:
            DivergedError: a reward is not finite in 32 bits.
        """
        actions = self._chosen
        if actions is None:
            raise UsageError("record was called without choose; each record tells what came of one choose")
        self._check_rewards(step.rewards.tolist())
        first = self.replay.see(step.observations, step.masks)
        at = self._env_rows + first
        entries = self._entries(actions, step, at)
        self._numbers, self._seen, self._chosen = at, step.observations, None
        valid = step.valid
        if self._window is not None:
            released = self._window.push(entries, valid)
            if released is not None:
                self.replay.add(released)
        else:
            self.replay.add(entries if valid is None else entries.rows(valid))
        self._count(self.num_envs if valid is None else int(np.count_nonzero(valid)))

    def _entries(self, actions: Actions, step: EnvStep, at: I64) -> Entries:
        """Returns the transitions of one step; ``at`` are the numbers of the observations that it led to."""
        following, truncated = at, step.truncated
        if np.count_nonzero(step.terminated) or np.count_nonzero(truncated):
            truncated = truncated & ~step.terminated
            following = np.where(step.terminated, self._numbers, at)
            cut = np.flatnonzero(truncated)
            if len(cut):
                masks = step.final_masks
                first = self.replay.see(step.final_observations[cut], None if masks is None else masks[cut])
                following[cut] = first + np.arange(len(cut))
        return Entries(self._numbers, actions, step.rewards, following, self.config.gamma, step.terminated, truncated)

    def _check_rewards(self, rewards: list[float]) -> None:
        if not sum(map(abs, rewards)) < LARGEST_REWARD:  # NaN too
            worst = next((each for each in rewards if not abs(each) < LARGEST_REWARD), None)
            if worst is not None:
                self._diverge(f"a reward is {worst}", 1)

    def _count(self, num_steps: int) -> None:
        """Counts steps that were recorded."""
        self.num_steps += num_steps
        self._num_collected += num_steps

    def interrupt(self) -> None:
        """Cuts the running episodes of all envs, as truncated."""
        if self._window is not None and len(self._numbers):
            released = self._window.cut(self._numbers)
            if released is not None:
                self.replay.add(released)
        self._numbers = self._numbers[:0]
        self._seen = self._chosen = None

    def _record_live(self, episode: str, step: LiveStep) -> None:
        self._check_rewards([step.reward])
        self._live_replay.record(episode, step, self._from_space(step.chosen.actions)[0])
        self._count(1)

    def _discard_live(self, episode: str) -> None:
        self._live_replay.discard(episode)

    def learn_from(self, transitions: Transitions, *, num_updates: int = 0) -> None:
        """Puts historical transitions, which any policy may have chosen, into the replay, and updates if wanted.

        They need no correction: what is learned of one step holds for whatever policy comes after it. Returns of
        several steps are of the policy that acted, so ``n_steps`` must be 1. They do not count as steps.

        Args:
            transitions: with encoded observations.
            num_updates: gradient steps to take then.

        Raises:
            UsageError: they do not fit the spaces, hold numbers that are not finite, or ``n_steps`` is not 1.
        """
        if self.config.n_steps != 1:
            raise UsageError(
                f"n_steps is {self.config.n_steps}; historical transitions can be learned with n_steps 1 only: longer "
                "returns are of the policy that acted, and are not corrected"
            )
        if self._chosen is not None:
            raise UsageError("learn_from was called between choose and record; call record first")
        checked = check_transitions(transitions, self.spaces.action, self.encoder.size)
        stored = checked._replace(actions=self._from_space(checked.actions))
        self.replay.add_transitions(stored, self.config.gamma)
        self._numbers, self._seen = self._numbers[:0], None
        self._learn_offline(num_updates)

    def _learn_offline(self, num_updates: int) -> None:
        """Takes gradient steps that no environment step goes with."""
        if num_updates:
            self._learn(num_updates)

    # Learning ----------------------------------------------------------------------------------------------------

    def learn(self) -> bool:
        """Updates once ``train_freq`` steps of each env are recorded, or as many of live episodes."""
        config = self.config
        if self._num_collected < config.train_freq * self.num_envs:
            return False
        num_collected, self._num_collected = self._num_collected, 0
        if self.num_steps <= config.learning_starts or not len(self.replay):
            return False
        self._warn_of_schedules()
        self._learn(num_collected if config.gradient_steps == -1 else config.gradient_steps)
        return True

    def _learn(self, count: int) -> None:
        is_due = self.num_updates // CHANGE_INTERVAL != (self.num_updates + count) // CHANGE_INTERVAL
        before = self._all_parameters() if is_due else []
        learning_rate = value_at(self.config.learning_rate, self.progress)
        self.metrics.set("train/learning_rate", learning_rate)
        self._update(count, learning_rate)
        self.metrics.set("train/n_updates", self.num_updates)
        if is_due:
            self._note_change(before)
        if self.num_updates >= self._next_dormant:
            self._next_dormant = self.num_updates + DORMANT_INTERVAL
            # a sample of a stream of its own: diagnostics change no training
            sample = self.replay.sample(min(256, len(self.replay)), np.random.default_rng(self.num_updates))
            self._note_dormant(sample.observations)

    @abstractmethod
    def _update(self, count: int, learning_rate: float) -> None:
        """Takes ``count`` gradient steps."""

    # Building, keeping -------------------------------------------------------------------------------------------

    def _build_replay(self) -> ReplayBuffer:
        return ReplayBuffer(self.config.buffer_size, self.encoder.size, self.spaces.action, **self._replay_options())

    def _replay_options(self) -> dict[str, Any]:
        config = self.config
        return {
            "dtype": config.buffer_dtype,
            "folder": None if config.buffer_folder is None else Path(config.buffer_folder),
            "share_observations": config.share_observations,
            "margin": max(MARGIN, 4 * self.num_envs * (config.n_steps + 2)),
        }

    def _more_state(self) -> State:
        tensors = self.replay.state()  # copies already, and large
        tensors = {f"replay.{name}": value for name, value in tensors.items()} | {"numbers": self._numbers.copy()}
        if self._window is not None:
            tensors |= prefixed("window.", self._window.state())
        return State(tensors, {})

    def _restore_more(self, state: State) -> None:
        self.replay.restore(part_of(state.tensors, "replay."))
        if self._window is not None:
            self._window.restore(part_of(state.tensors, "window."))
        self._numbers = self._checked_numbers(state.tensors["numbers"])
        self._seen = self._chosen = None
        self._live_replay.clear()

    def _checked_numbers(self, numbers: NDArray[Any]) -> I64:
        if numbers.dtype != np.int64 or numbers.shape not in ((0,), (self.num_envs,)):
            raise ValueError(f"numbers of observations have shape {numbers.shape} and type {numbers.dtype}")
        return numbers.copy()


class TargetUpdate:
    """Moves a target network towards the one that learns: theta' <- theta' + tau (theta - theta').

    Source: Lillicrap et al. 2016, Continuous control with deep reinforcement learning, algorithm 1.
    """

    def __init__(self, network: Network, target: Network) -> None:
        self._network = network
        self._target = target
        size = network.parameters.size
        scratch = np.empty(min(BLOCK, size), dtype=np.float32)
        parts = [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]
        self._blocks = [
            (network.parameters[part], target.parameters[part], scratch[: part.stop - part.start]) for part in parts
        ]

    def move(self, tau: float) -> None:
        """Moves it by the share ``tau``; 1: it becomes a copy."""
        if tau == 1:
            np.copyto(self._target.parameters, self._network.parameters)
        else:
            share = np.array(tau, dtype=np.float32)
            for source, target, scratch in self._blocks:
                np.subtract(source, target, scratch)
                np.multiply(scratch, share, scratch)
                np.add(target, scratch, target)
        self._target.refresh()
