"""A point in an agent where a policy chooses, and learns from what its choices earned.

The log of decisions and rewards is the truth; the learner is what has been read of it. A checkpoint is a shortcut to
that state, never a second truth: opening a point loads the newest checkpoint and learns the rewards that came after.
Several processes may share a point: each learns at once from its own rewards and at each ``sync`` from the others'.

What the learner has learned of a decision is, at any moment, what the rewards up to ``_sequence`` in the log say
together with those that this process applied since (``_ahead``), whether the decision is in memory or not.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from learnloop.algorithms import ContextualBandit, draw
from learnloop.algorithms.bandits.contextual import AnyConfig
from learnloop.core.clock import now
from learnloop.core.errors import ContextError, UsageError
from learnloop.core.ids import new_id
from learnloop.core.protocols import Context
from learnloop.core.records import MAX_REWARD, Decision, Json, ModelCheckpoint, Reward
from learnloop.core.rewards import RewardParts
from learnloop.core.seeding import generator
from learnloop.decisions.log import rewards_of
from learnloop.decisions.online.checkpoints import Checkpoints
from learnloop.decisions.online.inputs import plain_actions, plain_context, plain_mask
from learnloop.decisions.online.pending import Pending, PendingDecisions
from learnloop.nn import ContextSchema
from learnloop.store import Store

MAX_PENDING = 20_000
"""Decisions whose encoded context is kept in memory; older ones are read from the store when their reward comes."""
CHECKPOINT_EVERY = 5_000
"""Learned rewards between two checkpoints."""
_PAGE = 1_000


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
        self.declared = schema
        self.damage: str | None = None
        """What could not be used or learned, and why; the rest was."""
        self._store = store
        self._lock = threading.RLock()
        self._pending = PendingDecisions(MAX_PENDING)
        self._ahead: dict[str, Reward] = {}
        self._checkpoints = Checkpoints(store, agent_id, name)
        self._sequence = 0
        self.bandit = self._restore(config)
        self._checkpointed_at = self.bandit.num_updates
        self.sync()
        self._seed = seed
        self._rng = self._new_rng()
        _points.add(self)

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
        names, known, allowed = plain_actions(actions), plain_context(context), plain_mask(mask)
        bandit = self.bandit
        with self._lock:
            prepared = bandit.prepare(known)
            probabilities = bandit.probabilities(prepared, names, allowed, self._rng)
            index = draw(probabilities, self._rng)
            decision = Decision(
                decision_id=new_id(),
                episode_id=episode_id,
                span_id=span_id,
                agent_id=self.agent_id,
                policy=self.name,
                algorithm=bandit.tag,
                num_updates=bandit.num_updates,
                context=known,
                actions=names,
                mask=allowed,
                action=names[index],
                propensity=float(probabilities[index]),
                probabilities=probabilities.tolist(),
                created_at=now(),
            )
            pending = Pending(prepared, decision.action, episode_id, RewardParts({}, {}))
            if episode_id is not None:
                pending.parts.episode.update(self._pending.begin(episode_id))
            self._pending.add(decision.decision_id, pending)
            self._learn(pending)  # where its episode was rewarded before it was made
            self._pending.trim()
        return decision, index

    def apply(self, reward: Reward) -> None:
        """Learns from ``reward``, which is on its way to the log: for its decision, or for its episode's decisions.

        A reward without a value changes nothing; a further part of a reward, or a part that is given again, corrects
        what was learned.

        Raises:
            LearnloopError: the decision is not in memory and the log cannot be read; ``sync`` will learn it.
        """
        with self._lock:
            if reward.decision_id is None or reward.decision_id not in self._pending:
                self._ensure_loaded([reward])
            targets = self._targets(reward)
            for pending in targets:
                self._take(pending, reward)
            if targets:
                self._ahead[reward.reward_id] = reward
            self._pending.trim()

    def knows(self, decision_id: str) -> bool:
        """Returns whether this decision of the point is in memory."""
        with self._lock:
            return decision_id in self._pending

    def sync(self) -> None:
        """Learns the rewards of the log that this process has not seen: those of a crash, and of other processes.

        Choices wait for one page at the most.
        """
        while True:
            with self._lock:
                if not self._sync_page():
                    return

    def checkpoint_due(self) -> bool:
        """Returns whether enough was learned since the last checkpoint."""
        return self.bandit.num_updates - self._checkpointed_at >= CHECKPOINT_EVERY

    def checkpoint(self, timeout_seconds: float = 30.0) -> ModelCheckpoint | None:
        """Stores the learner's state, durably; returns its record, None where nothing new was learned.

        The state is that of the log up to a sequence: what was learned is flushed first and what is in the log is
        learned, both while nothing else can be learned.

        Raises:
            StoreError, UnreachableError: it could not be written; the log still has everything.
        """
        if self._store.blobs is None:
            return None
        self._store.write(
            [], timeout_seconds=timeout_seconds
        )  # so that the wait below, which holds up choices, is short
        self.sync()
        with self._lock:
            self._store.write([], timeout_seconds=timeout_seconds)
            self.sync()
            self._ahead.clear()  # what the log does not have by now was dropped and will never be in it
            num_updates, sequence = self.bandit.num_updates, self._sequence
            if num_updates == self._checkpointed_at:
                return None
            artifact = self.bandit.to_artifact()
        record = self._checkpoints.save(artifact, num_updates, sequence, self._declared_features())
        self._checkpointed_at = num_updates
        return record

    def after_fork(self) -> None:
        """Makes a forked child's copy usable: locks of its own, and draws of its own unless they are to repeat."""
        self._lock = threading.RLock()
        if self._seed is None:
            self._rng = self._new_rng()

    def _restore(self, config: AnyConfig) -> ContextualBandit:
        restored = self._checkpoints.newest()
        self.damage = restored.damage
        bandit = restored.bandit
        if bandit is not None and bandit.config == config and restored.declared == self._declared_features():
            self._sequence = restored.sequence
            return bandit
        mine = {"agent_id": self.agent_id, "policy": self.name}
        if not self._store.select(Decision, where=mine, limit=1):
            self._sequence = self._store.last_sequence(Reward)  # no reward so far can be for this policy
        return ContextualBandit(config, schema=self.declared)

    def _declared_features(self) -> Json | None:
        return None if self.declared is None else dict(self.declared.features)

    def _new_rng(self) -> np.random.Generator:
        """Returns the generator of this point; one that has learned before goes on in another stream."""
        if self._seed is None:
            return np.random.default_rng()
        return generator(self._seed, self.agent_id, self.name, self.bandit.num_updates)

    def _sync_page(self) -> bool:
        """Learns one page of the log in its order; returns whether there may be more.

        Rewards that this process applied before are taken again: they change nothing, unless another process gave the
        same part in between, and then the last one in the log counts, here as everywhere.
        """
        page = self._store.rewards_after(self._sequence, limit=_PAGE)
        if page:
            self._ensure_loaded([reward for _, reward in page])
        for sequence, reward in page:
            for pending in self._targets(reward):
                self._take(pending, reward)
            self._ahead.pop(reward.reward_id, None)
            self._sequence = sequence
        self._pending.trim()
        return len(page) == _PAGE

    def _targets(self, reward: Reward) -> list[Pending]:
        if reward.decision_id is not None:
            return [self._pending[reward.decision_id]] if reward.decision_id in self._pending else []
        return self._pending.of_episode(reward.episode_id or "") if reward.span_id is None else []

    def _take(self, pending: Pending, reward: Reward) -> None:
        pending.parts.take(reward)
        if reward.decision_id is None:
            self._pending.note_episode_reward(reward.episode_id or "", reward)
        self._learn(pending)

    def _learn(self, pending: Pending) -> None:
        """Brings the learner to the decision's present total."""
        total = pending.parts.total
        if total is None or total == pending.learned:
            return
        if not abs(total) <= MAX_REWARD:
            self.damage = f"a reward of {total} at {self.name} was not learned: at most {MAX_REWARD:g} can be"
            return
        if pending.learned is None:
            self.bandit.learn(pending.prepared, pending.action, total)
        else:
            self.bandit.correct(pending.prepared, pending.action, total - pending.learned)
        pending.learned = total
        pending.prepared = pending.prepared._replace(x=None)  # the vector is large; a correction encodes it again

    def _ensure_loaded(self, rewards: Sequence[Reward]) -> None:
        """Brings the decisions that ``rewards`` are for into memory, with the reward parts that are learned."""
        decision_ids = {
            each.decision_id for each in rewards if each.decision_id and each.decision_id not in self._pending
        }
        whole = [each for each in rewards if each.decision_id is None and each.span_id is None]
        episode_ids = {each.episode_id for each in whole if each.episode_id}
        partial = {each for each in episode_ids if not self._pending.is_whole(each)}
        mine: dict[str, Any] = {"agent_id": self.agent_id, "policy": self.name}
        if decision_ids:
            self._load(list(self._store.iterate(Decision, where={**mine, "decision_id": decision_ids})))
        if partial:
            decisions = list(self._store.iterate(Decision, where={**mine, "episode_id": partial}))
            self._load([each for each in decisions if each.decision_id not in self._pending])
            for episode_id in partial:
                ids = [each.decision_id for each in decisions if each.episode_id == episode_id]
                self._pending.complete(episode_id, ids)

    def _load(self, decisions: Sequence[Decision]) -> None:
        if not decisions:
            return
        learned = rewards_of(self._store, decisions, before=self._sequence + 1)
        ahead: dict[tuple[str | None, str | None], list[Reward]] = {}
        for reward in self._ahead.values():
            key = (reward.decision_id, None if reward.decision_id else reward.episode_id)
            ahead.setdefault(key, []).append(reward)
        for decision in decisions:
            parts = learned[decision.decision_id]
            for key in ((None, decision.episode_id), (decision.decision_id, None)):
                for reward in ahead.get(key, ()):
                    parts.take(reward)
            try:
                prepared = self.bandit.prepare(plain_context(decision.context))
            except ContextError as error:
                self.damage = f"a logged decision of {self.name} has other features than its policy: {error}"
                continue
            self._pending.add(decision.decision_id, Pending(prepared, decision.action, decision.episode_id, parts))


_points: weakref.WeakSet[DecisionPoint] = weakref.WeakSet()


def _after_fork() -> None:
    for point in list(_points):
        point.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def declared_schema(features: dict[str, Any] | None) -> ContextSchema | None:
    """Returns the schema of declared ``features``; None where none were.

    Raises:
        UsageError: a kind is unknown.
    """
    if features is None:
        return None
    try:
        return msgspec.convert({"features": features}, ContextSchema)
    except msgspec.ValidationError as error:
        raise UsageError(f"the features {features} cannot be declared: {error}") from error
