"""A point in an agent where a policy chooses, and learns from what its choices earned.

The log of decisions and rewards is the truth; the learner is what has been read of it. A checkpoint is a shortcut to
that state, never a second truth: opening a point loads the newest checkpoint and learns the rewards that came after.
Several processes may share a point: each learns at once from its own rewards and at each ``sync`` from the others'.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from safetensors.numpy import load, save
from sqlalchemy import delete

from learnloop.algorithms import ContextualBandit, Prepared, draw
from learnloop.algorithms.contextual import AnyConfig
from learnloop.core.clock import now
from learnloop.core.errors import ContextError, CorruptError, NotFoundError
from learnloop.core.ids import new_id
from learnloop.core.protocols import Context, PolicyArtifact
from learnloop.core.records import Agent, Decision, ModelCheckpoint, Reward
from learnloop.core.seeding import generator
from learnloop.decisions.log import RewardParts, reward_total, rewards_of
from learnloop.nn import ContextSchema
from learnloop.store import Store
from learnloop.store import schema as tables

MAX_PENDING = 20_000
"""Decisions whose encoded context is kept in memory; older ones are read from the store when their reward comes."""
CHECKPOINT_EVERY = 5_000
"""Learned rewards between two checkpoints."""
KEPT_CHECKPOINTS = 2
"""How many checkpoints of a point are kept; an older one is removed when a new one is durable."""
_PAGE = 1_000


class _Pending:
    """A decision that a reward may still come for."""

    __slots__ = ("action", "learned", "parts", "prepared")

    def __init__(self, prepared: Prepared, action: str, parts: RewardParts) -> None:
        self.prepared = prepared
        self.action = action
        self.parts = parts
        self.learned = reward_total(parts)


class DecisionPoint:
    """One policy of one agent that learns as it is used; safe to use from several threads.

    Args:
        store: the log.
        agent_id: whose policy.
        name: which policy.
        config: the algorithm.
        schema: the features of its contexts; taken from the first context where None.
        seed: makes its draws repeatable; None for draws that nobody can foresee.
    """

    def __init__(
        self,
        store: Store,
        agent_id: str,
        name: str,
        config: AnyConfig,
        *,
        schema: ContextSchema | None = None,
        seed: int | None = None,
    ) -> None:
        self.agent_id = agent_id
        self.name = name
        self._store = store
        self._lock = threading.RLock()
        self.damage: str | None = None
        """Why the newest checkpoint could not be used; the state was then learned anew from the log."""
        self._sequence = 0
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._by_episode: dict[str, list[str]] = {}
        self.bandit = self._restore(config) or ContextualBandit(config, schema=schema)
        self._checkpointed_at = self.bandit.num_updates
        self.sync()
        self._rng = np.random.default_rng() if seed is None else self._generator(seed)

    def choose(
        self,
        actions: Sequence[str],
        context: Context,
        mask: Sequence[bool] | None,
        *,
        episode_id: str | None = None,
        span_id: str | None = None,
    ) -> tuple[Decision, int]:
        """Returns a decision, not yet stored, and the index of its action.

        Raises:
            ContextError: the context does not fit the policy's features.
            ActionError: no action is allowed, or two have one name.
        """
        bandit = self.bandit
        with self._lock:
            prepared = bandit.prepare(context)
            probabilities = bandit.probabilities(prepared, actions, mask, self._rng)
            index = draw(probabilities, self._rng)
            num_updates = bandit.num_updates
        decision = Decision(
            decision_id=new_id(),
            episode_id=episode_id,
            span_id=span_id,
            agent_id=self.agent_id,
            policy=self.name,
            algorithm=bandit.tag,
            num_updates=num_updates,
            context=dict(context),
            actions=list(actions),
            mask=None if mask is None else [bool(allowed) for allowed in mask],
            action=actions[index],
            propensity=float(probabilities[index]),
            probabilities=probabilities.tolist(),
            created_at=now(),
        )
        with self._lock:
            self._remember(decision, _Pending(prepared, decision.action, RewardParts({}, {})))
        return decision, index

    def apply(self, reward: Reward) -> None:
        """Learns from ``reward``: for its decision, or for this point's decisions in its episode.

        A reward without a value, and one that was applied before, changes nothing; a further part of a reward, or a
        part that is given again, corrects what was learned.

        Raises:
            RewardError: the value is not a finite number.
        """
        with self._lock:
            targets = self._targets(reward)
            if not targets:
                self._load([reward], before=None, without=reward.reward_id)
                targets = self._targets(reward)
            for decision_id in targets:
                self._learn(self._pending[decision_id], reward)

    def sync(self) -> None:
        """Learns the rewards of the log that this process has not seen: those of a crash, and of other processes."""
        with self._lock:
            while page := self._store.rewards_after(self._sequence, limit=_PAGE):
                self._load([reward for _, reward in page], before=page[0][0])
                for sequence, reward in page:
                    for decision_id in self._targets(reward):
                        self._learn(self._pending[decision_id], reward)
                    self._sequence = sequence

    def checkpoint_due(self) -> bool:
        """Returns whether enough was learned since the last checkpoint."""
        return self.bandit.num_updates - self._checkpointed_at >= CHECKPOINT_EVERY

    def checkpoint(self) -> ModelCheckpoint | None:
        """Stores the learner's state, durably; returns its record, None where nothing new was learned.

        The state is that of the log up to a sequence: what was learned is flushed first and what is in the log is
        learned, both while nothing else can be learned.
        """
        self._store.write([])  # waits for what is queued, so that the wait below, which holds up choices, is short
        with self._lock:
            self._store.write([])
            self.sync()
            num_updates, sequence = self.bandit.num_updates, self._sequence
            if num_updates == self._checkpointed_at or self._store.blobs is None:
                return None
            state = _pack(self.bandit.to_artifact())
        record = ModelCheckpoint(
            checkpoint_id=new_id(),
            agent_id=self.agent_id,
            policy=self.name,
            checkpoint_path=self._store.blobs.put(state),
            performance_metrics={"reward_sequence": sequence},
            training_iteration=num_updates,
            created_at=now(),
        )
        self._store.write([Agent(agent_id=self.agent_id, created_at=record.created_at), record])
        self._checkpointed_at = num_updates
        self._remove_old_checkpoints()
        return record

    def _restore(self, config: AnyConfig) -> ContextualBandit | None:
        """Returns the learner of the newest checkpoint, None where there is none or it was of another algorithm."""
        newest = self._store.select(
            ModelCheckpoint, where={"agent_id": self.agent_id, "policy": self.name}, limit=1, descending=True
        )
        if not newest or self._store.blobs is None:
            return None
        try:
            bandit = ContextualBandit.from_artifact(_unpack(self._store.blobs.get(newest[0].checkpoint_path)))
        except (CorruptError, NotFoundError) as error:
            self.damage = f"a checkpoint of {self.name} could not be used and the log was learned anew: {error}"
            return None
        if bandit.config != config:
            return None
        self._sequence = int(newest[0].performance_metrics["reward_sequence"])
        return bandit

    def _remove_old_checkpoints(self) -> None:
        """Keeps the newest checkpoints only: they are shortcuts, and each is as large as the learner."""
        mine = {"agent_id": self.agent_id, "policy": self.name}
        found = self._store.select(ModelCheckpoint, where=mine, limit=1_000, descending=True)
        kept, old = found[:KEPT_CHECKPOINTS], found[KEPT_CHECKPOINTS:]
        if not old:
            return
        table = tables.model_checkpoints
        gone = delete(table).where(table.c.checkpoint_id.in_([each.checkpoint_id for each in old]))
        self._store.run(lambda connection: connection.execute(gone).rowcount)
        for address in {each.checkpoint_path for each in old} - {each.checkpoint_path for each in kept}:
            if self._store.blobs is not None:
                self._store.blobs.remove(address)

    def _generator(self, seed: int) -> np.random.Generator:
        """Returns the generator of this point; one that has learned before goes on in another stream."""
        return generator(seed, self.agent_id, self.name, self.bandit.num_updates)

    def _targets(self, reward: Reward) -> list[str]:
        if reward.decision_id is not None:
            return [reward.decision_id] if reward.decision_id in self._pending else []
        return self._by_episode.get(reward.episode_id or "", [])

    def _learn(self, pending: _Pending, reward: Reward) -> None:
        pending.parts.take(reward)
        total = reward_total(pending.parts)
        if total is None or total == pending.learned:
            return
        if pending.learned is None:
            self.bandit.learn(pending.prepared, pending.action, total)
        else:
            self.bandit.correct(pending.prepared, pending.action, total - pending.learned)
        pending.learned = total
        pending.prepared = pending.prepared._replace(x=None)  # the vector is large; a correction encodes it again

    def _remember(self, decision: Decision, pending: _Pending) -> None:
        self._pending[decision.decision_id] = pending
        if decision.episode_id is not None:
            self._by_episode.setdefault(decision.episode_id, []).append(decision.decision_id)
        if len(self._pending) > MAX_PENDING:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        oldest, _ = self._pending.popitem(last=False)
        for episode_id in list(self._by_episode)[:1]:  # both are in the order of the decisions
            ids = self._by_episode[episode_id]
            if oldest in ids:
                ids.remove(oldest)
            if not ids:
                del self._by_episode[episode_id]

    def _load(self, rewards: Iterable[Reward], *, before: int | None, without: str | None = None) -> None:
        """Brings the decisions that ``rewards`` are for into memory, with the reward parts learned before."""
        decision_ids = {each.decision_id for each in rewards if each.decision_id} - self._pending.keys()
        episode_ids = {each.episode_id for each in rewards if each.episode_id and not each.decision_id}
        mine = {"agent_id": self.agent_id, "policy": self.name}
        decisions: list[Decision] = []
        if decision_ids:
            decisions += self._store.iterate(Decision, where={**mine, "decision_id": decision_ids})
        if episode_ids - self._by_episode.keys():
            decisions += self._store.iterate(Decision, where={**mine, "episode_id": episode_ids})
        fresh = {each.decision_id: each for each in decisions if each.decision_id not in self._pending}
        parts = rewards_of(self._store, fresh.values(), before=before, without=without)
        for decision_id, decision in fresh.items():
            try:
                prepared = self.bandit.prepare(decision.context)
            except ContextError:
                continue  # logged with other features than this policy has: it cannot learn from it
            self._remember(decision, _Pending(prepared, decision.action, parts[decision_id]))


def _pack(artifact: PolicyArtifact) -> bytes:
    """Returns an artefact as one blob: the length of its JSON, the JSON, its tensors."""
    head = msgspec.json.encode({"algorithm": artifact.algorithm, "config": artifact.config})
    return (
        len(head).to_bytes(8, "big")
        + head
        + save({name: np.ascontiguousarray(t) for name, t in artifact.tensors.items()})
    )


def _unpack(blob: bytes) -> PolicyArtifact:
    stream = io.BytesIO(blob)
    length = int.from_bytes(stream.read(8), "big")
    try:
        head: dict[str, Any] = msgspec.json.decode(stream.read(length))
        return PolicyArtifact(head["algorithm"], head["config"], load(stream.read()))
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        raise CorruptError(f"a checkpoint cannot be read: {error}") from error
