"""Seed 1's learner of prompt mutations: chooses, takes transitions of many clients, and learns with PPO.

Choosing reads one snapshot of the network, which an update replaces whole; it never waits for one. What a snapshot
computes for an embedding (dropout mask included) is what learning sees of it, so that the ratio of a choice is 1 before
the first gradient step after it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from learnloop.algorithms.base.states import count_of, part_of, prefixed
from learnloop.algorithms.on_policy.segment_ppo import MAX_NORM, SegmentPPO, dropout_of, is_readable
from learnloop.compat.seed1.checkpoints import NamedCheckpoints
from learnloop.compat.seed1.settings import MUTATIONS, MutationSettings
from learnloop.compat.seed1.transition_buffer import SentTransition, TransitionBuffer, segments_of, steps_of
from learnloop.compat.seed1.update_process import job_of
from learnloop.compat.seed1.update_process import learn as learn_here
from learnloop.core.arrays import F32, F64, Bools
from learnloop.core.checks import check_range
from learnloop.core.clock import now
from learnloop.core.errors import (
    ActionError,
    ConflictError,
    ContextError,
    CorruptError,
    DivergedError,
    StoreError,
    UsageError,
)
from learnloop.core.ids import new_id
from learnloop.core.records import Decision, LearningUpdate
from learnloop.core.seeding import generator
from learnloop.nn.mlp.network import MAX_BATCH_SIZES
from learnloop.nn.network import Network
from learnloop.system.state_file import State

AGENT = "mutations"
POLICY = "prompt-mutation"
"""Under these names its decisions are in the log."""
FORMAT = "learnloop.mutations/v1"
LATEST = "latest"
RECENT = 100
"""Averages are over so many of the last episodes and updates."""
MAX_REWARD = 1e6
"""Rewards are from minus this to this: the squares of larger ones leave what float32 computes well."""
_SLACK_BYTES = 1 << 20
MIN_BATCH = 3
"""Fewer rows go through the network one by one."""
BATCH_STEP = 4
"""Others go in batches of this size, or of a multiple of it."""
MAX_BATCH = BATCH_STEP * MAX_BATCH_SIZES
"""More go in several, so that the network keeps the buffers of each size."""

_log = logging.getLogger(__name__)


class Snapshot(NamedTuple):
    """The network that chooses."""

    network: Network
    num_updates: int
    """Gradient steps behind it."""

    def outputs(self, states: Sequence[F32]) -> F32:
        """Returns the network's outputs for observations of shape ``(size,)``, shape ``(len(states), output_size)``.

        BLAS takes less time for four rows than for three, and for two apart than for two together: batches are filled
        up.
        """
        if len(states) < MIN_BATCH:
            return np.concatenate([self._predict(state[None]).copy() for state in states])
        batches = [states[first : first + MAX_BATCH] for first in range(0, len(states), MAX_BATCH)]
        return np.concatenate([self._batch_outputs(batch) for batch in batches])

    def _batch_outputs(self, states: Sequence[F32]) -> F32:
        number = len(states)
        rows = np.zeros((-(-number // BATCH_STEP) * BATCH_STEP, self.network.input_size), dtype=np.float32)
        np.stack(states, out=rows[:number])
        return self._predict(rows)[:number].copy()

    def diverged(self) -> DivergedError:
        """Returns the error of outputs that are not finite."""
        return DivergedError(f"after update {self.num_updates} the network's outputs are not finite; load another")

    def _predict(self, rows: F32) -> F32:
        return self.network.predict(rows, dropout_of(rows, self.num_updates, self.network.num_masks))


class Selection(NamedTuple):
    """A choice."""

    action: int
    log_prob: float
    value: float
    decision: Decision
    """Its record, not yet stored."""


class UpdateFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What an update tells."""

    policy_loss: float
    value_loss: float
    entropy: float
    approx_kl: float
    clip_fraction: float
    learning_rate: float
    buffer_size: int
    """Transitions that came while it ran and wait for the next one."""
    update_count: int


class TrainingStats(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned so far; averages are over the last ``RECENT`` episodes or updates."""

    total_updates: int
    total_episodes: int
    avg_reward: float | None
    """Of the sums of rewards of episodes that ended; None: none has."""
    max_reward: float | None
    avg_policy_loss: float
    avg_value_loss: float
    avg_entropy: float
    avg_kl: float


class Updated(NamedTuple):
    """An update: its answer, and its record for the log."""

    figures: UpdateFigures
    record: LearningUpdate


class _History(msgspec.Struct, kw_only=True):
    """What came and was learned so far; lists are of the last ``RECENT``."""

    total_updates: int = 0
    total_episodes: int = 0
    max_reward: float | None = None
    returns: list[float] = []
    updates: list[tuple[float, float, float, float]] = []
    """Policy loss, value loss, entropy and approximate KL of each update."""

    def note_episode(self, total: float) -> None:
        """Counts an episode that ended, with the sum of its rewards."""
        self.total_episodes += 1
        self.returns = [*self.returns[1 - RECENT :], total]
        self.max_reward = total if self.max_reward is None else max(self.max_reward, total)

    def note_update(self, metrics: Mapping[str, float], buffer_size: int) -> UpdateFigures:
        """Counts an update with these metrics, and returns what it tells."""
        figures = UpdateFigures(
            policy_loss=metrics["train/policy_gradient_loss"],
            value_loss=metrics["train/value_loss"],
            entropy=-metrics["train/entropy_loss"],
            approx_kl=metrics["train/approx_kl"],
            clip_fraction=metrics["train/clip_fraction"],
            learning_rate=metrics["train/learning_rate"],
            buffer_size=buffer_size,
            update_count=self.total_updates + 1,
        )
        self.total_updates += 1
        losses = (figures.policy_loss, figures.value_loss, figures.entropy, figures.approx_kl)
        self.updates = [*self.updates[1 - RECENT :], losses]
        return figures

    def stats(self) -> TrainingStats | None:
        """Returns its totals and averages; None before the first update."""
        if not self.updates:
            return None
        policy_loss, value_loss, entropy, kl = np.mean(self.updates, axis=0).tolist()
        return TrainingStats(
            total_updates=self.total_updates,
            total_episodes=self.total_episodes,
            avg_reward=math.fsum(self.returns) / len(self.returns) if self.returns else None,
            max_reward=self.max_reward,
            avg_policy_loss=policy_loss,
            avg_value_loss=value_loss,
            avg_entropy=entropy,
            avg_kl=kl,
        )


class MutationLearner:
    """The object behind seed 1's endpoints.

    ``select`` and ``distribution`` are for one thread, the event loop's; everything else is for any.

    Args:
        settings: how it learns.
        folder: where ``save`` and ``load`` look; it is made by the first ``save``.
        learn: makes an update, such as ``UpdateProcess().learn``.

    Attributes:
        ppo: what learns.
        snapshot: what chooses.
        buffer: what waits to be learned from.
    """

    def __init__(self, settings: MutationSettings, folder: Path, learn: Callable[[State], State] = learn_here) -> None:
        self.settings = settings
        self.learn = learn
        self._seed = int(np.random.SeedSequence().generate_state(1)[0]) if settings.seed is None else settings.seed
        self._training = threading.Lock()
        """Held while the network learns, is saved or loaded."""
        self._lock = threading.Lock()
        """Held, briefly, while the buffer and the history are changed."""
        self.ppo = settings.ppo(self._seed)
        self.snapshot = self._snapshot_of(self.ppo)
        max_bytes = max_checkpoint_bytes(settings, self.ppo.network.parameters.size)
        self._checkpoints = NamedCheckpoints(folder, FORMAT, max_bytes)
        self._rng = generator(self._seed, "mutations", "choices")
        self.buffer = TransitionBuffer(settings.buffer_size, settings.input_dim)
        self._history = _History()

    # Choosing ----------------------------------------------------------------------------------------------------

    def select(self, state: F32, *, deterministic: bool = False) -> Selection:
        """Returns a mutation for an embedding, drawn from the policy, or the most likely one.

        The log probability is the policy's in both cases; the record's propensity of a most likely one is 1.

        Raises:
            ContextError: the embedding is not what the network reads.
            DivergedError: the network's outputs are not finite.
        """
        self.check_state("the embedding", state)
        (found,) = self.select_many([state], [deterministic])
        if isinstance(found, DivergedError):
            raise found
        return found

    def select_many(self, states: Sequence[F32], deterministic: Sequence[bool]) -> list[Selection | DivergedError]:
        """Returns what ``select`` would return or raise for each of ``states``, in one pass through the network.

        Args:
            states: embeddings that ``check_state`` let through.
            deterministic: which of them get the most likely mutation.
        """
        snapshot, distribution = self.snapshot, self.ppo.distribution
        outputs = snapshot.outputs(states)
        is_finite: Bools = np.logical_and.reduce(np.isfinite(outputs), axis=1)
        outputs[~is_finite] = 0  # nothing is chosen by them
        logits, certain = outputs[:, :-1], np.array(deterministic)
        actions, log_probs = distribution.sample(logits, self._rng)
        chances = _softmax(logits)
        if certain.any():
            actions = np.where(certain, distribution.mode(logits), actions)
            log_probs = distribution.evaluate(logits, actions).log_probs
            chances = np.where(certain[:, None], np.eye(len(MUTATIONS))[actions], chances)
        columns = (is_finite.tolist(), actions.tolist(), log_probs.tolist(), outputs[:, -1].tolist(), chances.tolist())
        return [
            Selection(action, log_prob, value, _decision(snapshot, state, action, probabilities))
            if is_good
            else snapshot.diverged()
            for state, is_good, action, log_prob, value, probabilities in zip(states, *columns, strict=True)
        ]

    def distribution(self, state: F32) -> list[float]:
        """Returns the probability with which ``select`` would draw each mutation for an embedding.

        Raises:
            ContextError, DivergedError: as ``select``.
        """
        self.check_state("the embedding", state)
        snapshot = self.snapshot
        outputs = snapshot.outputs([state])
        if not np.isfinite(outputs).all():
            raise snapshot.diverged()
        probabilities: list[float] = _softmax(outputs[:, :-1])[0].tolist()
        return probabilities

    def check_state(self, name: str, state: F32) -> None:
        """Returns if ``state`` is an embedding of the right length with numbers that the network can read.

        Raises:
            ContextError: it is not.
        """
        wanted = self.settings.input_dim
        if state.shape != (wanted,):
            raise ContextError(f"{name} has {state.size} numbers; this network reads {wanted}")
        if not is_readable(state):
            raise ContextError(f"{name} holds a number that is not finite in 32 bits, or is longer than {MAX_NORM:g}")

    # Transitions -------------------------------------------------------------------------------------------------

    def store(self, transition: SentTransition) -> int:
        """Takes a transition; returns how many wait to be learned from.

        Raises:
            UsageError: a field is not allowed; nothing was changed.
            ConflictError: the buffer is full; update first, then send it again.
        """
        self._check(transition)
        with self._lock:
            if self.buffer.is_full:
                raise ConflictError(
                    f"the buffer holds its {self.settings.buffer_size} experiences, and none is dropped; "
                    "POST /update, then send this one again"
                )
            total = self.buffer.add(transition)
            if total is not None:
                self._history.note_episode(total)
            return len(self.buffer)

    def _check(self, transition: SentTransition) -> None:
        self.check_state("state", transition.observation)
        self.check_state("next_state", transition.next_observation)
        check_range("action", transition.action, 0, len(MUTATIONS) - 1, error=ActionError)
        check_range("reward", transition.reward, -MAX_REWARD, MAX_REWARD)
        check_range("log_prob", transition.log_prob, -1e6, 1e-6)
        check_range("value", transition.value, -1e30, 1e30)

    def stats(self) -> TrainingStats | None:
        """Returns what came and was learned so far; None before the first update."""
        with self._lock:
            return self._history.stats()

    # Learning ----------------------------------------------------------------------------------------------------

    @property
    def has_enough(self) -> bool:
        """Whether an update has enough to learn from."""
        return len(self.buffer) >= self.settings.min_transitions

    def update(self) -> Updated | None:
        """Learns once from all transitions, and has the new network choose; None where there are too few.

        A second call waits for the first one.

        Raises:
            DivergedError: a number was not finite; the network is that of before, and the transitions wait again.
        """
        with self._training:
            if not self.has_enough:
                return None
            with self._lock:
                taken = self.buffer.take()
            started, clock = now(), time.perf_counter()
            try:
                done = self.learn(self._job(taken))
                self.ppo.restore(State(done.tensors, done.values["ppo"]))
            except BaseException:
                with self._lock:
                    self.buffer.settle(learned=False)
                raise
            self.snapshot = self._snapshot_of(self.ppo)
            metrics = {**done.values["metrics"], "seconds/training": time.perf_counter() - clock}
            with self._lock:
                self.buffer.settle(learned=True)
                figures = self._history.note_update(metrics, len(self.buffer))
            interval = self.settings.checkpoint_interval
            if interval and figures.update_count % interval == 0:
                try:
                    self._checkpoints.save(LATEST, self._state())
                except StoreError as error:  # what was learned is in use all the same
                    _log.warning("update %d was not saved: %s", figures.update_count, error)
        record = LearningUpdate(
            learning_update_id=new_id(),
            agent_id=AGENT,
            policy=POLICY,
            settings_version=0,
            reward_sequence=0,
            num_samples=len(taken),
            num_held_out=0,
            verdict=None,
            reasons=["learned from experiences that clients sent, at their command; not judged"],
            metrics=metrics,
            started_at=started,
            ended_at=now(),
        )
        return Updated(figures, record)

    def _job(self, taken: list[SentTransition]) -> State:
        settings = self.settings
        rate_factor = settings.decay ** (self._history.total_updates // settings.decay_interval)
        steps = steps_of(segments_of(taken), settings.input_dim)
        return job_of(settings, self._seed, rate_factor, self.ppo.state(), steps)

    # Keeping -----------------------------------------------------------------------------------------------------

    def save(self, name: str) -> None:
        """Writes all that it needs to go on as if it had never stopped: transitions and random numbers too.

        Raises:
            UsageError: the name cannot be one.
            StoreError: the disk refuses.
        """
        with self._training:
            saved = self._state()
        self._checkpoints.save(name, saved)

    def load(self, name: str) -> None:
        """Goes on from a checkpoint; what waits to be learned from is then what waited when it was saved.

        Raises:
            UsageError: the name cannot be one.
            NotFoundError: there is no such checkpoint.
            ConflictError, CorruptError: it cannot be used; nothing was changed.
        """
        settings, (tensors, values) = self.settings, self._checkpoints.load(name)
        try:
            seed = count_of(values, "seed")
            ppo = settings.ppo(seed)  # dropout masks derive from it
            ppo.restore(State(part_of(tensors, "ppo."), values["ppo"]))
            arrays = part_of(tensors, "buffer.")
            buffer = TransitionBuffer.restored(settings.buffer_size, settings.input_dim, arrays, values["buffer"])
            rng = generator(seed, "mutations", "choices")
            rng.bit_generator.state = values["choices"]
            history = msgspec.convert(values["history"], _History)
            for transition in buffer.transitions:
                self._check(transition)
        except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
            raise CorruptError(f"the checkpoint is not one of this learner: {error}") from error
        with self._training, self._lock:
            self._seed, self.ppo, self.buffer, self._rng, self._history = seed, ppo, buffer, rng, history
            self.snapshot = self._snapshot_of(ppo)

    def _state(self) -> State:
        state = self.ppo.state()
        with self._lock:
            buffer = self.buffer.copy()
            history = msgspec.to_builtins(self._history)
        arrays, rest = buffer.state()  # without the lock: this takes long where there is much
        values = {
            "seed": self._seed,
            "ppo": state.values,
            "choices": self._rng.bit_generator.state,
            "buffer": rest,
            "history": history,
        }
        return State(prefixed("ppo.", state.tensors) | prefixed("buffer.", arrays), values)

    @staticmethod
    def _snapshot_of(ppo: SegmentPPO) -> Snapshot:
        return Snapshot(ppo.network.copy(), ppo.num_updates)


def max_checkpoint_bytes(settings: MutationSettings, num_parameters: int) -> int:
    """Returns how large a checkpoint of such a learner may be."""
    transition = 2 * 4 * settings.input_dim + 64
    return 4 * 4 * num_parameters + 2 * settings.buffer_size * transition + _SLACK_BYTES


def _decision(snapshot: Snapshot, state: F32, action: int, probabilities: list[float]) -> Decision:
    """Returns the record of a choice."""
    return Decision(
        decision_id=new_id(),
        episode_id=None,
        agent_id=AGENT,
        policy=POLICY,
        algorithm="ppo",
        num_updates=snapshot.num_updates,
        context={},
        actions=list(MUTATIONS),
        action=MUTATIONS[action],
        propensity=probabilities[action],
        probabilities=probabilities,
        vector=state.astype("<f4", copy=False).tobytes(),
        created_at=now(),
    )


def _softmax(logits: F32) -> F64:
    """Returns probabilities that sum to 1 in float64, shape ``(batch, n)``."""
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    probabilities: F64 = weights / weights.sum(axis=1, keepdims=True)
    return probabilities
