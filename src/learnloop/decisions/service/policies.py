"""The policies of a store in memory, for whichever door asks: a program's own, or the server's.

A decision is made from one snapshot of a policy: its settings, its version and its model. ``refresh`` makes new ones
from what the store says and puts them in the place of the old ones, so a decision never waits for learning and all that
is logged of it belongs together. What an online policy learns is in its snapshot; all others are replaced whole.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

import msgspec
import numpy as np

from learnloop.algorithms.hashed.config import HashedConfig
from learnloop.algorithms.hashed.policy import untrained
from learnloop.core.checks import check_name
from learnloop.core.errors import CorruptError, LearnloopError, UsageError
from learnloop.core.records import Decision, Event, Reward
from learnloop.core.seeding import generator
from learnloop.decisions.learning.default_rewards import DefaultRewards
from learnloop.decisions.online.learner import OnlineLearner, sync_all
from learnloop.decisions.service.champions import champion_of
from learnloop.decisions.service.request import DecisionRequest
from learnloop.decisions.service.settings import DecisionSettings, VersionedSettings
from learnloop.decisions.service.settings_store import current, put_first
from learnloop.decisions.service.snapshot import PolicySnapshot, Scoring
from learnloop.registry import Registry
from learnloop.store import Store
from learnloop.store.queries.policies import policies_with_settings

MAX_POLICIES = 1_000
"""So many policies are kept in memory; those that were read longest ago make room, and are read again when asked."""
_CHANGES = ("alias.moved", "settings.changed")

_log = logging.getLogger(__name__)

Key = tuple[str, str]


class _Chooser(msgspec.Struct, frozen=True):
    """What draws for one policy, and the lock without which nobody may draw."""

    lock: threading.Lock
    rng: np.random.Generator


class Policies:
    """The policies of a store, in memory. Safe to use from many threads.

    Args:
        store: with settings and the log.
        registry: with the versions that are served: the alias ``champion`` of ``AGENT.POLICY``.
        seed: makes the draws of ``decide`` repeatable; None for draws that nobody can foresee.
    """

    def __init__(self, store: Store, registry: Registry, *, seed: int | None = None) -> None:
        self._store = store
        self._registry = registry
        self._seed = seed
        self._lock = threading.Lock()
        self._reading = threading.RLock()
        self._changed: set[str] = set()  # what could not be read again yet
        self._snapshots: OrderedDict[Key, PolicySnapshot] = OrderedDict()
        self._choosers: dict[Key, _Chooser] = {}
        self._defaults: dict[Key, DefaultRewards] = {}
        self._opened: dict[Key, OnlineLearner] = {}  # of policies that are about to be read
        self._begun: list[Future[VersionedSettings]] = []  # settings of policies that were asked first here
        self._event_sequence = store.last_sequence(Event)
        _all_policies.add(self)

    def find(self, agent_id: str, policy: str) -> PolicySnapshot | None:
        """Returns the policy as it is in memory; None where it has to be read first (``load``)."""
        return self._snapshots.get((agent_id, policy))

    def load(self, agent_id: str, policy: str, first: DecisionSettings | None = None) -> PolicySnapshot:
        """Returns the policy, read from the store.

        Args:
            agent_id: whose policy.
            policy: which policy.
            first: the settings that it gets if nobody has set it up or asked it before; None: the defaults hold.

        Raises:
            UsageError: the names cannot be names.
            CorruptError: what is served cannot be read; an earlier version has to be made the champion.
        """
        name = policy_name(agent_id, policy)
        with self._reading:  # or a refresh could pass over what is read here and not yet in its place
            settings = current(self._store, agent_id, policy)
            if settings.version == 0 and first is not None:
                settings = self._begin(agent_id, policy, first)
            snapshot = self._snapshot(agent_id, policy, name, settings)
            with self._lock:
                self._snapshots[agent_id, policy] = snapshot
                self._snapshots.move_to_end((agent_id, policy))
                gone = [self._forget() for _ in range(len(self._snapshots) - MAX_POLICIES)]
        for each in gone:
            _checkpoint(each)
        return snapshot

    def load_set_up(self) -> None:
        """Reads the policies that somebody set up, so that what their settings promise goes on after a restart.

        Raises:
            LearnloopError: the store cannot be asked; a policy alone that cannot be read is left to its first request.
        """
        missing: dict[Key, DecisionSettings] = {}
        for key in self._store.read(policies_with_settings, MAX_POLICIES):
            if self.find(*key) is None:
                with _warned(*key):
                    missing[key] = current(self._store, *key).settings
        self._opened = self._open_learners(missing)
        for key in missing:
            if self.find(*key) is None:  # nor was it asked for meanwhile
                with _warned(*key):
                    self.load(*key)
        self._opened = {}

    def snapshots(self) -> list[PolicySnapshot]:
        """Returns what is in memory."""
        with self._lock:
            return list(self._snapshots.values())

    def decide(
        self, agent_id: str, policy: str, request: DecisionRequest, first: DecisionSettings | None = None
    ) -> list[Decision]:
        """Returns one decision, or one a slot, not yet stored; ``first`` is as of ``load``, for a plain request.

        Raises:
            ActionError: there is nothing to choose from, or two actions have one name.
            ContextError: features or vector are not what the policy can read.
            UsageError, CorruptError: as ``load``.
        """
        key = (agent_id, policy)
        snapshot = self._snapshots.get(key)
        if snapshot is None:
            snapshot = self.load(agent_id, policy, first if request.is_plain else None)
        chooser = self._choosers.get(key) or self._chooser(snapshot)
        if snapshot.learner is not None:  # which has a lock of its own
            return snapshot.decide(request, chooser.rng)
        with chooser.lock:
            return snapshot.decide(request, chooser.rng)

    def expect_kept(self, agent_id: str, policy: str, decisions: Sequence[Decision]) -> None:
        """Has an online policy expect the rewards of decisions with clients' own ids, as the log keeps them.

        Args:
            agent_id: whose policy.
            policy: which policy.
            decisions: of requests that were just decided, read back from the log.
        """
        snapshot = self.find(agent_id, policy)
        if snapshot is not None and snapshot.learner is not None:
            snapshot.learner.expect_kept(decisions)

    def apply(self, agent_id: str, policy: str, rewards: Sequence[Reward]) -> None:
        """Has an online policy learn at once from rewards that are on their way to the log; others learn in updates.

        Raises:
            LearnloopError: the log cannot be read now; the policy learns when it next syncs.
        """
        snapshot = self.find(agent_id, policy) or self.load(agent_id, policy)
        if snapshot.learner is not None:
            for reward in rewards:
                snapshot.learner.apply(reward)

    def refresh(self) -> list[PolicySnapshot]:
        """Reads again what has changed since the last time, and returns it; decisions go on with the old meanwhile.

        A change that cannot be read is tried again at the next time, and holds up no other policy.

        Raises:
            LearnloopError: the store cannot be asked.
        """
        with self._reading:
            newest = self._store.last_sequence(Event)
            for event in self._store.iterate(Event, where={"kind": _CHANGES}, after=self._event_sequence):
                policy = event.payload["policy"]
                is_alias = event.kind == "alias.moved"
                self._changed.add(policy if is_alias else f"{event.payload['agent_id']}.{policy}")
            self._event_sequence = newest
            loaded: list[PolicySnapshot] = []
            left: set[str] = set()
            for each in self.snapshots() if self._changed else ():
                name = f"{each.agent_id}.{each.policy}"
                if name in self._changed:
                    try:
                        loaded.append(self.load(each.agent_id, each.policy))
                    except LearnloopError as error:
                        _log.warning("%s is served as it was: %s", name, error)
                        left.add(name)
            self._changed = left
        return loaded

    def keep(self) -> None:
        """Brings all policies up to date: changes, what online ones learn from the log, their checkpoints, defaults.

        Raises:
            LearnloopError: something could not be done, which is tried again at the next time; all else was.
        """
        steps = [self._check_begun, self.refresh, self._sync]
        _all_of([*steps, *(partial(self._keep, snapshot) for snapshot in self.snapshots())])

    def checkpoint(self, timeout_seconds: float = 30.0) -> None:
        """Saves what the online policies have learned.

        Raises:
            LearnloopError: one could not be saved; the others were, and the log still has everything.
        """
        _all_of([partial(learner.checkpoint, timeout_seconds) for learner in self._learners()])

    def damage(self) -> str | None:
        """Returns what an online policy could not use or learn; None: there is nothing of that kind."""
        return next((learner.damage for learner in self._learners() if learner.damage), None)

    def after_fork(self) -> None:
        """Makes a forked child's copy usable: locks of its own, and draws of its own unless they are to repeat."""
        self._lock, self._reading = threading.Lock(), threading.RLock()
        kept = {} if self._seed is None else self._choosers
        self._choosers = {key: _Chooser(threading.Lock(), chooser.rng) for key, chooser in kept.items()}

    def _begin(self, agent_id: str, policy: str, first: DecisionSettings) -> VersionedSettings:
        """Returns the settings of a policy that nobody has set up: ``first``, unless it decided under the defaults."""
        mine = {"agent_id": agent_id, "policy": policy, "settings_version": 0}
        if self._store.select(Decision, where=mine, limit=1):
            return current(self._store, agent_id, policy)
        self._begun.append(put_first(self._store, agent_id, policy, first))
        return VersionedSettings(1, first)  # who was faster wrote the same, or is heard of at the next refresh

    def _check_begun(self) -> None:
        """Raises why settings of a policy that was asked first here could not be kept."""
        done = [future for future in self._begun if future.done()]
        self._begun = [future for future in self._begun if future not in done]
        _all_of([future.result for future in done])

    def _forget(self) -> PolicySnapshot:
        key, snapshot = self._snapshots.popitem(last=False)
        self._choosers.pop(key, None)
        self._defaults.pop(key, None)
        return snapshot

    def _chooser(self, snapshot: PolicySnapshot) -> _Chooser:
        """Returns what draws for a policy; one that has learned before goes on in another stream."""
        key = (snapshot.agent_id, snapshot.policy)
        with self._lock:
            if key not in self._choosers:
                seeded = self._seed is not None
                rng = generator(self._seed or 0, *key, snapshot.num_updates) if seeded else np.random.default_rng()
                self._choosers[key] = _Chooser(threading.Lock(), rng)
            return self._choosers[key]

    def _snapshot(self, agent_id: str, policy: str, name: str, settings: VersionedSettings) -> PolicySnapshot:
        chosen = settings.settings
        learner = None if chosen.online is None else self._learner(agent_id, policy, chosen)
        version, model = champion_of(self._registry, name, chosen)
        if version is not None and model is not None:
            scoring = model if isinstance(model, Scoring) else None
            known = (version.policy_version_id, version.algorithm)
            return PolicySnapshot(agent_id, policy, *settings, *known, model, scoring, learner)
        reader = untrained(chosen.model) if isinstance(chosen.model, HashedConfig) else None
        algorithm = "uniform" if learner is None else chosen.exploration.algorithm
        return PolicySnapshot(agent_id, policy, *settings, None, algorithm, None, reader, learner)

    def _learner(self, agent_id: str, policy: str, settings: DecisionSettings) -> OnlineLearner:
        before = self.find(agent_id, policy)
        known = self._opened.pop((agent_id, policy), None) if before is None else before.learner
        if known is not None and known.follow(settings):
            return known
        learner = OnlineLearner(self._store, agent_id, policy, settings)
        learner.sync()
        return learner

    def _open_learners(self, policies: Mapping[Key, DecisionSettings]) -> dict[Key, OnlineLearner]:
        """Returns the learners of those policies that learn online; they have read the log together."""
        opened: dict[Key, OnlineLearner] = {}
        for key, settings in policies.items():
            if settings.online is not None:
                with _warned(*key):
                    opened[key] = OnlineLearner(self._store, *key, settings)
        try:
            sync_all(self._store, list(opened.values()))
        except (CorruptError, UsageError) as error:  # each reads it alone then, and is told by its name where it cannot
            _log.warning("the log is not read for all online policies together: %s", error)
            opened.clear()
        return opened

    def _learners(self) -> list[OnlineLearner]:
        return [snapshot.learner for snapshot in self.snapshots() if snapshot.learner is not None]

    def _sync(self) -> None:
        sync_all(self._store, self._learners())

    def _keep(self, snapshot: PolicySnapshot) -> None:
        if snapshot.learner is not None and snapshot.learner.checkpoint_due():
            snapshot.learner.checkpoint()
        if snapshot.settings.reward_wait_seconds is not None:
            key = (snapshot.agent_id, snapshot.policy)
            self._defaults.setdefault(key, DefaultRewards(self._store, *key)).give(snapshot.settings)


_all_policies: weakref.WeakSet[Policies] = weakref.WeakSet()


def _after_fork() -> None:
    for policies in list(_all_policies):
        policies.after_fork()


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def _warned(agent_id: str, policy: str) -> Iterator[None]:
    """Leaves a policy that cannot be read to its first request, and logs why."""
    try:
        yield
    except (CorruptError, UsageError) as error:
        _log.warning("%s.%s is not served: %s", agent_id, policy, error)


def _all_of(steps: Sequence[Callable[[], object]]) -> None:
    """Does all ``steps`` and raises the first error that one of them had."""
    failures: list[LearnloopError] = []
    for step in steps:
        try:
            step()
        except LearnloopError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _checkpoint(snapshot: PolicySnapshot) -> None:
    """Saves what a policy has learned that leaves memory; what cannot be saved is learned from the log again."""
    try:
        if snapshot.learner is not None:
            snapshot.learner.checkpoint()
    except LearnloopError as error:
        _log.warning("what %s.%s learned is not saved: %s", snapshot.agent_id, snapshot.policy, error)


def policy_name(agent_id: str, policy: str) -> str:
    """Returns the name under which the registry keeps the versions of a policy.

    Raises:
        UsageError: a name cannot be one, or both together are too long.
    """
    check_name("an agent", agent_id)
    check_name("a policy", policy)
    return check_name("an agent and its policy together", f"{agent_id}.{policy}")


def registered_name(agent_id: str, policy: str) -> str:
    """Returns ``policy_name`` of names that a client of the server gives, of which none may be taken for another's.

    Raises:
        UsageError: as ``policy_name``, or a dot is in the name of the policy.
    """
    if "." in policy:
        raise UsageError(f"{policy!r} cannot name a policy of the decision service: a dot parts it from its agent")
    return policy_name(agent_id, policy)
