"""Learns one policy online: from each reward as it comes, for its decision or for its episode's decisions.

The log of decisions and rewards is the truth; the learner is what has been read of it. A checkpoint is a shortcut to
that state, never a second truth: a learner begins with the newest checkpoint, and ``sync`` learns the rewards that came
after it. Several processes may share a policy: each learns at once from its own rewards and at each ``sync`` from the
others'. The learners of one process sync together (``sync_all``), so that the log is read once for all of them.

What the learner has learned of a decision is, at any moment, what the rewards up to ``_sequence`` in the log say
together with those that this process applied since (``_ahead``), whether the decision is in memory or not. A deferred
decision counts once it is activated; one with rewards that was not yet is waited for (``_waiting``).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from learnloop.algorithms import BanditConfig, ContextualBandit, Prepared
from learnloop.core.errors import LearnloopError, UsageError
from learnloop.core.records import MAX_REWARD, Decision, DecisionActivation, DecisionMode, ModelCheckpoint, Reward
from learnloop.core.rewards import RewardParts
from learnloop.decisions.log import question_of, rewards_of
from learnloop.decisions.online.checkpoints import Checkpoints
from learnloop.decisions.online.pending import Pending, PendingDecisions
from learnloop.decisions.service.settings import DecisionSettings
from learnloop.store import Store

MAX_PENDING = 20_000
"""Decisions whose encoded context is kept in memory; older ones are read from the store when their reward comes."""
CHECKPOINT_EVERY = 5_000
"""Learned rewards between two checkpoints."""
MAX_WAITING = 20_000
"""Deferred decisions that may still be activated; of older ones nothing is learned online."""
_PAGE = 1_000


class OnlineLearner:
    """What a policy of one agent learns as it is used; safe to use from several threads. Sync it before it is asked.

    Args:
        store: the log.
        agent_id: whose policy.
        policy: which policy.
        settings: with a model of kind ``online``.
    """

    def __init__(self, store: Store, agent_id: str, policy: str, settings: DecisionSettings) -> None:
        self.agent_id = agent_id
        self.policy = policy
        self.damage: str | None = None
        """What could not be used or learned, and why; the rest was."""
        self.lock = threading.RLock()
        """Held while a decision is made, so that what chose is what is noted to have chosen."""
        self._store = store
        self._pending = PendingDecisions(MAX_PENDING)
        self._ahead: dict[str, Reward] = {}
        self._waiting: dict[str, None] = {}
        self._checkpoints = Checkpoints(store, agent_id, policy)
        self._sequence = 0
        self._is_frozen = settings.mode is DecisionMode.FROZEN
        self.bandit = self._restore(_config_of(settings))
        self._checkpointed_at = self.bandit.num_updates
        _learners.add(self)

    @property
    def num_updates(self) -> int:
        """How many rewards it has learned from."""
        return self.bandit.num_updates

    def follow(self, settings: DecisionSettings) -> bool:
        """Takes over changed settings; returns whether it can: another model is learned from the log, by another."""
        config = _config_of(settings)
        if config.model != self.bandit.config.model:
            return False
        is_frozen = settings.mode is DecisionMode.FROZEN
        with self.lock:
            self.bandit.explore_by(config.exploration)
            if is_frozen and not self._is_frozen:
                self.checkpoint()  # so that it is the same after a restart
            self._is_frozen = is_frozen
        return True

    def expect(self, decision: Decision, prepared: Prepared) -> None:
        """Notes a decision that was just made, on its way to the log: its rewards find it here.

        One with an id that a client gave is noted by ``expect_kept``.
        """
        with self.lock:
            if decision.decision_id in self._pending:
                return
            pending = Pending(
                prepared, decision.action, decision.episode_id, RewardParts({}, {}), is_waiting=decision.is_deferred
            )
            if decision.is_deferred:
                self._waiting[decision.decision_id] = None
            if decision.episode_id is not None:
                pending.parts.episode.update(self._pending.begin(decision.episode_id))
            self._pending.add(decision.decision_id, pending)
            if pending.parts.episode:  # it was rewarded before this decision was made
                self._learn(pending)
            self._pending.trim()

    def expect_kept(self, decisions: Sequence[Decision]) -> None:
        """Notes decisions that were just made under ids that clients gave, as the log keeps them.

        Another server, or another request to this one, may have decided under the same id: what was logged first is
        what is learned from, not what this process would have chosen. Decisions of other policies are left out.
        """
        with self.lock:
            for decision in decisions:
                if (decision.agent_id, decision.policy) == (self.agent_id, self.policy):
                    self.expect(decision, self.bandit.prepare(question_of(decision), strict=False))

    def apply(self, reward: Reward) -> None:
        """Learns from ``reward``, which is on its way to the log: for its decision, or for its episode's decisions.

        A reward without a value changes nothing; a further part of a reward, or a part that is given again, corrects
        what was learned.

        Raises:
            LearnloopError: the decision is not in memory and the log cannot be read; ``sync`` will learn it.
        """
        if self._is_frozen:
            return
        with self.lock:
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
        with self.lock:
            return decision_id in self._pending

    @property
    def sequence(self) -> int:
        """The log up to here is learned."""
        return self._sequence

    @property
    def is_frozen(self) -> bool:
        """Whether it learns nothing at present; once it is frozen no more, it learns what came meanwhile."""
        return self._is_frozen

    def sync(self) -> None:
        """Learns the rewards of the log that this process has not seen: those of a crash, and of other processes.

        As ``sync_all`` of this learner alone.
        """
        sync_all(self._store, [self])

    def learn_page(self, page: Sequence[tuple[int, Reward]], *, is_last: bool) -> None:
        """Learns one page of the log in its order, as far as it has not done so, unless it is frozen.

        Rewards that this process applied before are taken again: they change nothing, unless another process gave the
        same part in between, and then the last one in the log counts, here as everywhere.

        Args:
            page: rewards with their sequences; between ``sequence`` and the first of them the log has none.
            is_last: whether the log ended there when it was read.

        Raises:
            LearnloopError: the log cannot be read; the next ``sync`` goes on.
        """
        with self.lock:
            if self._is_frozen:
                return
            unseen = [(sequence, reward) for sequence, reward in page if sequence > self._sequence]
            if unseen:
                self._ensure_loaded([reward for _, reward in unseen])
            for sequence, reward in unseen:
                for pending in self._targets(reward):
                    self._take(pending, reward)
                self._ahead.pop(reward.reward_id, None)
                self._sequence = sequence
            self._pending.trim()
            if is_last:
                self._learn_activated()

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
        with self.lock:
            self._store.write([], timeout_seconds=timeout_seconds)
            self.sync()
            self._ahead.clear()  # what the log does not have by now was dropped and will never be in it
            num_updates, sequence = self.bandit.num_updates, self._sequence
            if num_updates == self._checkpointed_at:
                return None
            artifact = self.bandit.to_artifact()
            waiting = list(self._waiting)
        record = self._checkpoints.save(artifact, num_updates, sequence, waiting)
        self._checkpointed_at = num_updates
        return record

    def after_fork(self) -> None:
        """Makes a forked child's copy usable: a lock of its own."""
        self.lock = threading.RLock()

    def _restore(self, config: BanditConfig) -> ContextualBandit:
        restored = self._checkpoints.newest()
        self.damage = restored.damage
        bandit = restored.bandit
        if bandit is not None and bandit.config.model == config.model:
            self._sequence = restored.sequence
            self._waiting = dict.fromkeys(restored.waiting)
            bandit.explore_by(config.exploration)
            return bandit
        mine = {"agent_id": self.agent_id, "policy": self.policy}
        if not self._store.select(Decision, where=mine, limit=1):
            self._sequence = self._store.last_sequence(Reward)  # no reward so far can be for this policy
        return ContextualBandit(config)

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
        total = None if pending.is_waiting else pending.parts.total
        if total is None or total == pending.learned:
            return
        if not abs(total) <= MAX_REWARD:
            self.damage = f"a reward of {total} at {self.policy} was not learned: at most {MAX_REWARD:g} can be"
            return
        if pending.learned is None:
            self.bandit.learn(pending.prepared, pending.action, total)
        else:
            self.bandit.correct(pending.prepared, pending.action, total - pending.learned)
        pending.learned = total
        pending.prepared = Prepared(pending.prepared.context, None)  # the vector is large, and can be made again

    def _ensure_loaded(self, rewards: Sequence[Reward]) -> None:
        """Brings the decisions that ``rewards`` are for into memory, with the reward parts that are learned."""
        decision_ids = {
            each.decision_id for each in rewards if each.decision_id and each.decision_id not in self._pending
        }
        whole = [each for each in rewards if each.decision_id is None and each.span_id is None]
        episode_ids = {each.episode_id for each in whole if each.episode_id}
        partial = {each for each in episode_ids if not self._pending.is_whole(each)}
        mine: dict[str, Any] = {"agent_id": self.agent_id, "policy": self.policy}
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
            prepared = self.bandit.prepare(question_of(decision), strict=False)
            is_waiting = decision.is_deferred and self._waits(decision.decision_id)
            pending = Pending(prepared, decision.action, decision.episode_id, parts, is_waiting=is_waiting)
            self._pending.add(decision.decision_id, pending)

    def _waits(self, decision_id: str) -> bool:
        """Returns whether a deferred decision that comes into memory has not been counted yet."""
        if decision_id in self._waiting:
            return True
        if self._store.find(DecisionActivation, decision_id) is not None:
            return False  # it was activated before its first reward came
        self._waiting[decision_id] = None
        return True

    def _learn_activated(self) -> None:
        """Learns what was earned by deferred decisions that have been activated."""
        if not self._waiting:
            return
        found = self._store.iterate(DecisionActivation, where={"decision_id": set(self._waiting)})
        for decision_id in [each.decision_id for each in found]:
            if decision_id not in self._pending:
                self._load(list(self._store.iterate(Decision, where={"decision_id": decision_id})))
            del self._waiting[decision_id]
            if decision_id in self._pending:
                pending = self._pending[decision_id]
                pending.is_waiting = False
                self._learn(pending)
        while len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._pending.trim()


def sync_all(store: Store, learners: Sequence[OnlineLearner]) -> None:
    """Has learners learn the rewards of their log that they have not seen; each page of it is read once for all.

    Choices of a policy wait for one page at the most. Frozen policies are left out: they learn once they are frozen no
    more.

    Args:
        store: the log of all of them.
        learners: at whatever places of it they are.

    Raises:
        LearnloopError: what hindered the first learner that could not learn; the others did.
    """
    left = list(learners)
    failures: list[LearnloopError] = []
    while awake := [each for each in left if not each.is_frozen]:
        page = store.rewards_after(min(each.sequence for each in awake), limit=_PAGE)
        is_last = len(page) < _PAGE
        for learner in awake:
            try:
                learner.learn_page(page, is_last=is_last)
            except LearnloopError as error:
                failures.append(error)
                left.remove(learner)
        if is_last:
            break
    if failures:
        raise failures[0]


_learners: weakref.WeakSet[OnlineLearner] = weakref.WeakSet()


def _after_fork() -> None:
    for learner in list(_learners):
        learner.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _config_of(settings: DecisionSettings) -> BanditConfig:
    if settings.online is None:
        raise UsageError(f"the model of the settings is {settings.model}; only one of kind online learns online")
    return BanditConfig(settings.online, settings.exploration)
