"""What a line of another service's log says, and the records that it becomes; ids are the same at each import."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from learnloop.core.errors import FormatError
from learnloop.core.records import MAX_REWARD, Decision, DecisionActivation, DecisionMode, Json, Record, Reward
from learnloop.decisions.service.settings import MAX_ACTIONS
from learnloop.store.columns import clean_text

SOURCE = "import"
REWARD = "reward"
"""The name of the part of a reward that a log gives."""
ORIGINAL = "original_reward"
"""A metric (weight 0): what was observed, where the log learned from something else."""
DROPPED = "pdrop"
"""A metric (weight 0): the probability with which lines like this one were left out of the log."""
SUM_TOLERANCE = 0.01
"""Logs hold float32, rounded; one whose sum is further from 1 is not a distribution."""
MAX_ID = 500


class LoggedChoice(NamedTuple):
    """One choice among actions, as it was logged."""

    event_id: str | None
    """None: the line has no id, and is known by its content and its place."""
    moment: datetime | None
    context: Json
    actions: list[str]
    features: list[Json] | None
    mask: list[bool] | None
    chosen: int
    """Its place in ``actions``."""
    propensity: float
    probabilities: list[float] | None
    rewards: dict[str, float]
    """By the name of the part; ``ORIGINAL`` and ``DROPPED`` are metrics."""
    model: str | None = None
    slot: str | None = None
    is_deferred: bool = False
    is_activated: bool = False


class Observation(NamedTuple):
    """A reward that is logged apart from its choice."""

    event_id: str
    value: float
    moment: datetime | None


class Activated(NamedTuple):
    """The choice of this event was used after all, logged apart from it."""

    event_id: str
    moment: datetime | None


class Choices:
    """Makes records of choices: decisions of one policy of the decision service, with their rewards."""

    def __init__(self, agent_id: str, policy: str, source: str, modified: datetime, *, first_is_baseline: bool) -> None:
        """Args are as for ``import_decisions``; ``source`` names the file, ``modified`` stands for a missing time."""
        self._agent_id = agent_id
        self._policy = policy
        self._source = source
        self._modified = modified
        self._first_is_baseline = first_is_baseline

    def records(self, choice: LoggedChoice, number: int, raw: bytes) -> list[Record]:
        """Returns the decision of a line, its rewards, and its activation where it was deferred and used.

        Args:
            choice: what the line says.
            number: of the line, counted from 1.
            raw: the line itself.

        Raises:
            FormatError: a value cannot be: a probability, a reward, the number of actions.
        """
        check_choice(choice)
        decision_id = self._decision_id(choice, number, raw)
        moment = choice.moment or self._modified
        decision = Decision(
            decision_id=decision_id,
            episode_id=None,
            agent_id=self._agent_id,
            policy=self._policy,
            algorithm=None if choice.model is None else f"vw:{choice.model}",
            context=choice.context,
            actions=choice.actions,
            mask=choice.mask,
            action=choice.actions[choice.chosen],
            propensity=choice.propensity,
            probabilities=choice.probabilities,
            action_features=choice.features,
            mode=DecisionMode.LEARNING,
            baseline_action=self._baseline(choice),
            policy_action=_most_likely(choice),
            request_id=choice.event_id,
            slot=choice.slot,
            is_deferred=choice.is_deferred,
            created_at=moment,
        )
        found: list[Record] = [decision]
        found += [
            reward_of(decision_id, name, value, moment, self._agent_id, self._policy)
            for name, value in choice.rewards.items()
        ]
        if choice.is_deferred and choice.is_activated:
            found.append(DecisionActivation(decision_id=decision_id, created_at=moment))
        return found

    def _baseline(self, choice: LoggedChoice) -> str | None:
        if not self._first_is_baseline or (choice.mask is not None and not choice.mask[0]):
            return None
        return choice.actions[0]

    def _decision_id(self, choice: LoggedChoice, number: int, raw: bytes) -> str:
        """Returns an id that sorts by time (where that is not known, by line), so that the newest can be read."""
        slot = choice.slot or ""
        if choice.event_id is None:
            known_by = [self._source, str(number), hashlib.sha256(raw.strip()).hexdigest()]
            place = number
        else:
            known_by, place = [choice.event_id], 0
        if choice.moment is not None:
            place = max(0, int(choice.moment.timestamp() * 1000))
        return _sortable(place, digest(self._agent_id, self._policy, slot, *known_by))


def check_choice(choice: LoggedChoice) -> None:
    """Raises FormatError where a value of ``choice`` cannot be."""
    number = len(choice.actions)
    if not 1 <= number <= MAX_ACTIONS:
        raise FormatError(f"there are {number} actions; allowed are 1 to {MAX_ACTIONS}")
    if not 0.0 < choice.propensity <= 1.0:
        raise FormatError(f"the probability of the chosen action is {choice.propensity}; it lies above 0, at most 1")
    if choice.mask is not None and not choice.mask[choice.chosen]:
        raise FormatError(f"the chosen action {choice.actions[choice.chosen]!r} is not one of those that were allowed")
    for name, value in choice.rewards.items():
        if not (math.isfinite(value) and abs(value) <= MAX_REWARD):
            raise FormatError(f"{name} is {value}; allowed is up to {MAX_REWARD:g}")
    if choice.event_id is not None and not 0 < len(choice.event_id) <= MAX_ID:
        raise FormatError(f"EventId has {len(choice.event_id)} characters; allowed are 1 to {MAX_ID}")


def reward_of(decision_id: str, name: str, value: float, moment: datetime, *known_by: str) -> Reward:
    """Returns a reward with an id made of what it is; ``ORIGINAL`` and ``DROPPED`` weigh nothing."""
    return Reward(
        reward_id=digest(decision_id, name, *known_by)[:32],
        episode_id=None,
        decision_id=decision_id,
        name=name,
        value=value,
        weight=0.0 if name in (ORIGINAL, DROPPED) else 1.0,
        source=SOURCE,
        created_at=moment,
    )


def name_actions(given: Sequence[tuple[str | None, Json]]) -> list[str]:
    """Returns distinct names of actions: their own, else a hash of their features, else their number from 1.

    The same features have the same name in every line, so that an action can be followed through a log whose lists
    change. A name that comes again in one list gets its number behind it.
    """
    names: list[str] = []
    taken: set[str] = set()
    for number, (own, features) in enumerate(given, start=1):
        name = clean_text(own) if own else (f"action-{_short_hash(features)}" if features else f"action-{number}")
        while name in taken:
            name = f"{name}#{number}"
        taken.add(name)
        names.append(name)
    return names


def digest(*parts: str) -> str:
    """Returns SHA-256 of ``parts`` as hexadecimal text."""
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


def _short_hash(features: Json) -> str:
    return hashlib.sha256(msgspec.json.encode(features, order="sorted")).hexdigest()[:10]


def _sortable(milliseconds: int, hashed: str) -> str:
    time = f"{milliseconds & 0xFFFF_FFFF_FFFF:012x}"  # the layout of UUIDv7, with a hash in the place of chance
    return f"{time[:8]}-{time[8:]}-7{hashed[:3]}-8{hashed[3:6]}-{hashed[6:18]}"


def _most_likely(choice: LoggedChoice) -> str | None:
    """Returns what the policy preferred; None where its probabilities do not say."""
    if choice.probabilities is None:
        return None
    best = max(choice.probabilities)
    return choice.actions[choice.probabilities.index(best)] if choice.probabilities.count(best) == 1 else None
