"""The decision service: policies served from memory, which are replaced whole when a better one is proven.

A decision is made from one snapshot of a policy (``Served``): its settings, its version and its model. Nothing in a
snapshot ever changes; ``refresh`` makes new ones from what the store says and puts them in the place of the old ones.
So a decision never waits for learning, and all that is logged of it belongs together.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from learnloop.algorithms import draw
from learnloop.algorithms.bandits.actions import allowed_actions, check_actions
from learnloop.algorithms.bandits.exploration import explore, explore_distribution
from learnloop.algorithms.hashed.policy import untrained
from learnloop.core.arrays import F32, F64, Bools
from learnloop.core.clock import now
from learnloop.core.errors import ActionError, ContextError, CorruptError, LearnloopError, UsageError, one_of
from learnloop.core.ids import new_id
from learnloop.core.names import check_name
from learnloop.core.protocols import Policy, Question
from learnloop.core.records import Decision, DecisionMode, Event
from learnloop.decisions.service.champions import champion_of
from learnloop.decisions.service.settings import MAX_ACTIONS, DecisionSettings, VersionedSettings
from learnloop.decisions.service.settings_store import current
from learnloop.registry import Registry
from learnloop.store import Store
from learnloop.store.queries.policies import policies_with_settings

MAX_POLICIES = 1_000
"""So many policies are kept in memory; those that were read longest ago make room, and are read again when asked."""
MAX_SLOTS = 100
MAX_PAIRS = 2**22
"""Features of the context times features of all actions, over all slots of a request."""
_FEW_CHOICES = 64
"""The limits of each context and each action keep fewer actions, times slots, below ``MAX_PAIRS`` or near it."""
_CHANGES = ("alias.moved", "settings.changed")
_NOTHING: Mapping[str, Any] = {}

_log = logging.getLogger(__name__)


@runtime_checkable
class Scoring(Protocol):
    """A policy that predicts rewards, so that it can explore by them."""

    num_updates: int

    def scores(self, context: Mapping[str, Any], actions: Sequence[str]) -> F64:
        """Returns the predicted reward of each action in standard deviations, shape ``(len(actions),)``."""
        ...


class Slot(NamedTuple):
    """One of several places that a request fills with different actions."""

    slot: str
    features: Mapping[str, Any] = _NOTHING
    excluded: frozenset[str] = frozenset()
    """Actions that may not be chosen here."""
    baseline: str | None = None


class Asked(NamedTuple):
    """What is to be decided."""

    actions: list[str]
    context: Mapping[str, Any] = _NOTHING
    action_features: list[Mapping[str, Any]] | None = None
    vector: F32 | None = None
    """float32, shape ``(n,)``."""
    mask: list[bool] | None = None
    baseline: str | None = None
    """What the caller's own logic chooses; None in apprentice mode: the first allowed action."""
    is_deferred: bool = False
    decision_id: str | None = None
    episode_id: str | None = None
    slots: Sequence[Slot] | None = None


class Served(NamedTuple):
    """A policy as it is served now."""

    agent_id: str
    policy: str
    settings_version: int
    settings: DecisionSettings
    version_id: str | None
    """None: it has not learned yet, and chooses uniformly."""
    algorithm: str
    model: Policy | None
    scoring: Scoring | None
    """The model itself, where it predicts rewards; before there is one, what reads features as it would."""

    @property
    def num_updates(self) -> int:
        """How many samples the model was trained on, as far as it says so."""
        return 0 if self.scoring is None else self.scoring.num_updates

    def decide(self, asked: Asked, rng: np.random.Generator) -> list[Decision]:
        """Returns one decision, or one a slot, not yet stored.

        Raises:
            ActionError: there is nothing to choose from, or two actions have one name.
            ContextError: features or vector are not what the policy can read.
        """
        self._check(asked)
        allowed = allowed_actions(asked.actions, asked.mask)
        if asked.slots is None:
            return [self._choose(asked, asked.context, allowed, asked.mask, asked.baseline, rng)]
        return self._fill(asked, allowed, rng)

    def _fill(self, asked: Asked, allowed: Bools, rng: np.random.Generator) -> list[Decision]:
        """Returns a decision for each slot in their order; no action is chosen twice."""
        request_id = asked.decision_id or new_id()
        decisions = []
        left = allowed.copy()
        for number, slot in enumerate(asked.slots or ()):
            offered = left & np.array([action not in slot.excluded for action in asked.actions])
            if not offered.any():
                raise ActionError(f"no action is left for the slot {slot.slot!r}; give more actions, or fewer slots")
            context = {**asked.context, "slot": {**slot.features, "id": slot.slot}}
            mask: list[bool] = offered.tolist()
            decision = self._choose(asked, context, offered, mask, slot.baseline, rng, (request_id, number, slot.slot))
            left[asked.actions.index(decision.action)] = False
            decisions.append(decision)
        return decisions

    def _choose(
        self,
        asked: Asked,
        context: Mapping[str, Any],
        allowed: Bools,
        mask: list[bool] | None,
        baseline: str | None,
        rng: np.random.Generator,
        slot: tuple[str, int, str] | None = None,
    ) -> Decision:
        mode = self.settings.mode
        is_apprentice = mode is DecisionMode.APPRENTICE
        if baseline is None and is_apprentice:
            baseline = asked.actions[int(allowed.argmax())]
        if baseline is not None and not allowed[asked.actions.index(baseline)]:
            raise ActionError(f"the baseline {baseline!r} is not allowed here, by the mask or by an earlier slot")
        preferred, probabilities = self._distribution(asked, context, allowed, mask)
        if is_apprentice:
            index = asked.actions.index(baseline or "")
            probabilities = np.zeros(len(allowed))
            probabilities[index] = 1.0
        else:
            index = draw(probabilities, rng)
        decision_id = asked.decision_id or new_id()
        return Decision(
            decision_id=decision_id if slot is None else slot_decision_id(slot[0], slot[1]),
            episode_id=asked.episode_id,
            agent_id=self.agent_id,
            policy=self.policy,
            policy_version_id=self.version_id,
            algorithm=self.algorithm,
            num_updates=self.num_updates,
            context=context,
            actions=asked.actions,
            mask=mask,
            action=asked.actions[index],
            propensity=float(probabilities[index]),
            probabilities=probabilities.tolist(),
            action_features=asked.action_features,
            vector=None if asked.vector is None else asked.vector.tobytes(),
            mode=mode,
            settings_version=self.settings_version,
            baseline_action=baseline,
            policy_action=None if baseline is None or preferred is None else asked.actions[preferred],
            request_id=None if slot is None else slot[0],
            slot=None if slot is None else slot[2],
            is_deferred=asked.is_deferred,
            created_at=now(),
        )

    def _distribution(
        self, asked: Asked, context: Mapping[str, Any], allowed: Bools, mask: list[bool] | None
    ) -> tuple[int | None, F64]:
        """Returns what the policy prefers, and the probability of each action with exploration.

        The first is an index; None before it has learned.
        """
        question = Question(context, asked.action_features, asked.vector)
        if self.model is None:
            if self.scoring is not None:  # what could not be learned from must not get into the log
                self.scoring.scores(question, asked.actions)
            return None, allowed / np.count_nonzero(allowed)
        exploration = self.settings.exploration
        if self.scoring is not None:
            scores = self.scoring.scores(question, asked.actions)
            preferred = int(np.where(allowed, scores, -np.inf).argmax())
            return preferred, explore(scores, allowed, self.scoring.num_updates, exploration)
        probabilities = self.model.probabilities(question, asked.actions, mask)
        preferred = int(probabilities.argmax())
        if self.settings.network is not None:  # it explores by itself, and PPO learns from its own distribution
            return preferred, probabilities
        return preferred, explore_distribution(probabilities, allowed, exploration.epsilon)

    def _check(self, asked: Asked) -> None:
        if len(asked.actions) > MAX_ACTIONS:  # first: the other checks take their time with many
            raise ActionError(f"there are {len(asked.actions)} actions; at most {MAX_ACTIONS} can be chosen from")
        check_actions(asked.actions)
        if asked.action_features is not None and len(asked.action_features) != len(asked.actions):
            raise ActionError(
                f"there are features of {len(asked.action_features)} actions and {len(asked.actions)} actions"
            )
        for baseline in (asked.baseline, *(slot.baseline for slot in asked.slots or ())):
            if baseline is not None and baseline not in asked.actions:
                raise ActionError(f"the baseline {baseline!r} is none of the actions {one_of(asked.actions)}")
        for slot in asked.slots or ():
            if slot.baseline in slot.excluded:
                raise ActionError(f"the slot {slot.slot!r} excludes its own baseline {slot.baseline!r}")
        if asked.slots is not None and "slot" in asked.context:
            raise ContextError("the context has a feature 'slot', which is where a slot's own features go; rename it")
        if len(asked.actions) * len(asked.slots or (None,)) > _FEW_CHOICES and self.settings.model.interactions:
            _check_size(asked)
        self._check_vector(asked)

    def _check_vector(self, asked: Asked) -> None:
        vector, network = asked.vector, self.settings.network
        is_read = network is not None and self.model is not None  # then the network's encoder looks at each number
        if vector is not None and not is_read and not math.isfinite(np.add.reduce(vector, dtype=np.float64)):
            raise ContextError("the vector holds a number that is not finite; give finite numbers only")
        if network is None:
            return
        if vector is None or len(vector) != network.input_dim:
            given = "none" if vector is None else f"one of {len(vector)} numbers"
            raise ContextError(f"this policy decides by a vector of {network.input_dim} numbers; given is {given}")
        unknown = [action for action in asked.actions if action not in network.actions]
        if unknown:
            raise ActionError(f"{one_of(unknown)} is no action of this policy; it has {one_of(network.actions)}")


def _check_size(asked: Asked) -> None:
    """Refuses what would hold up the decisions of all others."""
    slots = asked.slots or [Slot("")]
    num_context = sum(_num_features(asked.context) + _num_features(slot.features) + 1 for slot in slots)
    num_action = sum(_num_features(features) for features in asked.action_features or ()) + 2 * len(asked.actions)
    if num_context * num_action > MAX_PAIRS:
        raise ContextError(
            f"{num_context} features of the context, over {len(slots)} slots, times {num_action} of the actions are "
            f"more than {MAX_PAIRS} pairs; give fewer features, actions or slots, or turn interactions off"
        )


def _num_features(features: Any) -> int:
    if isinstance(features, Mapping):
        return sum(map(_num_features, features.values()))
    return sum(map(_num_features, features)) if isinstance(features, list | tuple) else 1


def _scoring(model: object) -> Scoring | None:
    return model if isinstance(model, Scoring) else None


class DecisionService:
    """The policies of a store, in memory. Safe to use from many threads.

    Args:
        store: with settings and the log.
        registry: with the versions that are served: the alias ``champion`` of ``AGENT.POLICY``.
    """

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._lock = threading.Lock()
        self._reading = threading.RLock()
        self._changed: set[str] = set()  # what could not be read again yet
        self._served: OrderedDict[tuple[str, str], Served] = OrderedDict()
        self._event_sequence = self._store.last_sequence(Event)

    def find(self, agent_id: str, policy: str) -> Served | None:
        """Returns the policy as it is in memory; None where it has to be read first (``load``)."""
        return self._served.get((agent_id, policy))

    def load(self, agent_id: str, policy: str) -> Served:
        """Returns the policy, read from the store; one that nobody has set up has the default settings.

        Raises:
            UsageError: the names cannot be names.
            CorruptError: what is served cannot be read; an earlier version has to be made the champion.
        """
        name = registered_name(agent_id, policy)
        with self._reading:  # or a refresh could pass over what is read here and not yet in its place
            settings = current(self._store, agent_id, policy)
            served = self._serve(agent_id, policy, name, settings)
            with self._lock:
                self._served[agent_id, policy] = served
                self._served.move_to_end((agent_id, policy))
                while len(self._served) > MAX_POLICIES:
                    self._served.popitem(last=False)
        return served

    def load_set_up(self) -> None:
        """Reads the policies that somebody set up, so that what their settings promise goes on after a restart.

        Raises:
            LearnloopError: the store cannot be asked; a policy alone that cannot be read is left to its first request.
        """
        for agent_id, policy in self._store.read(policies_with_settings, MAX_POLICIES):
            if self.find(agent_id, policy) is not None:
                continue
            try:
                self.load(agent_id, policy)
            except (CorruptError, UsageError) as error:
                _log.warning("%s.%s is not served: %s", agent_id, policy, error)

    def policies(self) -> list[Served]:
        """Returns what is in memory."""
        with self._lock:
            return list(self._served.values())

    def refresh(self) -> list[Served]:
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
            loaded: list[Served] = []
            left: set[str] = set()
            for each in self.policies() if self._changed else ():
                name = f"{each.agent_id}.{each.policy}"
                if name in self._changed:
                    try:
                        loaded.append(self.load(each.agent_id, each.policy))
                    except LearnloopError as error:
                        _log.warning("%s is served as it was: %s", name, error)
                        left.add(name)
            self._changed = left
        return loaded

    def _serve(self, agent_id: str, policy: str, name: str, settings: VersionedSettings) -> Served:
        version, model = champion_of(self._registry, name, settings.settings)
        if version is None or model is None:
            reader = untrained(settings.settings.model) if settings.settings.network is None else None
            return Served(agent_id, policy, *settings, None, "uniform", None, reader)
        known = (version.policy_version_id, version.algorithm)
        return Served(agent_id, policy, *settings, *known, model, _scoring(model))


def slot_decision_id(request_id: str, number: int) -> str:
    """Returns the id of the decision for a request's slot of that number, from 0."""
    return f"{request_id}.{number}"


def registered_name(agent_id: str, policy: str) -> str:
    """Returns the name under which the registry keeps the versions of a policy.

    Raises:
        UsageError: a name cannot be one, or both together are too long.
    """
    check_name("an agent", agent_id)
    if "." in check_name("a policy", policy):
        raise UsageError(f"{policy!r} cannot name a policy of the decision service: a dot parts it from its agent")
    return check_name("an agent and its policy together", f"{agent_id}.{policy}")
