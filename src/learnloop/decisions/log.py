"""Reads back what was decided and what it earned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np

from learnloop.core.protocols import Context, Question, Sample
from learnloop.core.records import Decision, DecisionActivation, DecisionMode, Record, Reward
from learnloop.core.rewards import RewardParts, part_of
from learnloop.decisions.importing.choices import DROPPED
from learnloop.store import Store
from learnloop.store.queries import decisions as queries
from learnloop.store.queries.decisions import DecisionQuery
from learnloop.store.queries.rewards import earned_rewards

TRAINED_MODES: Final[frozenset[DecisionMode | None]] = frozenset({None, DecisionMode.LEARNING, DecisionMode.FROZEN})
"""A policy learns from what it chose itself; None: before settings were kept of it, or elsewhere."""
_PAGE = 1_000


def rewards_of(
    store: Store, decisions: Collection[Decision], *, before: int | None = None
) -> Mapping[str, RewardParts]:
    """Returns the reward parts of ``decisions`` by decision id.

    Args:
        store: where they lie.
        decisions: the decisions.
        before: only rewards whose sequence is smaller.
    """
    return {decision_id: earned.parts for decision_id, earned in _earned(store, decisions, before).items()}


class _Earned:
    """What is known of what a decision earned."""

    def __init__(self) -> None:
        self.parts = RewardParts({}, {})
        self.first_at: datetime | None = None
        self.importance = 1.0

    def take(self, reward: Reward) -> None:
        self.parts.take(reward)
        if reward.name == DROPPED and reward.value is not None and 0 <= reward.value < 1 and not reward.weight:
            self.importance = 1 / (1 - reward.value)
        elif part_of(reward) is not None and (self.first_at is None or reward.created_at < self.first_at):
            self.first_at = reward.created_at


def _earned(store: Store, decisions: Collection[Decision], before: int | None = None) -> Mapping[str, _Earned]:
    found = {decision.decision_id: _Earned() for decision in decisions}
    by_episode: dict[str, list[str]] = {}
    for decision in decisions:
        if decision.episode_id is not None:
            by_episode.setdefault(decision.episode_id, []).append(decision.decision_id)
    for reward in store.read(earned_rewards, list(found), list(by_episode), before):
        targets = [reward.decision_id] if reward.decision_id else by_episode.get(reward.episode_id or "", [])
        for decision_id in targets:
            if decision_id in found:
                found[decision_id].take(reward)
    return found


class Logged(NamedTuple):
    """A decision that counts, with what it earned."""

    decision: Decision
    reward: float | None
    """None: not known."""
    is_shared: bool = False
    """Whether its reward is that of its whole episode."""
    delay_seconds: float | None = None
    """After how long the first part of its reward came; None: none did."""
    importance: float = 1.0
    """How many decisions it stands for, where others were left out of the log (``pdrop``)."""

    @property
    def unit(self) -> str:
        """Its episode; outside of one the request whose slots were filled together, or itself."""
        return self.decision.episode_id or self.decision.request_id or self.decision.decision_id

    def sample(self, reward: float) -> Sample:
        """Returns it as a sample that earned ``reward``."""
        decision = self.decision
        return Sample(
            unit=self.unit,
            context=question_of(decision),
            actions=decision.actions,
            mask=decision.mask,
            action=decision.action,
            propensity=decision.propensity,
            reward=reward,
            made_at=decision.created_at.timestamp(),
            shared=decision.episode_id if self.is_shared else None,
            importance=self.importance,
        )


class LogFilter(Record, frozen=True, kw_only=True):
    """Which decisions of a policy are read."""

    modes: frozenset[DecisionMode | None] = TRAINED_MODES
    """Those made in one of these modes; None: outside of the decision service."""
    since: datetime | None = None
    """Made at this time or later."""
    until: datetime | None = None
    """Made before this time."""
    rewarded: bool = True
    """Whether only those with a known reward are."""


def logged_samples(
    store: Store,
    agent_id: str,
    policy: str,
    *,
    after: str | None = None,
    newest: int | None = None,
    modes: Collection[DecisionMode | None] = TRAINED_MODES,
) -> Iterator[Sample]:
    """Yields the decisions of a policy that have a known reward, in the order of their ids, or of time with ``newest``.

    The unit of a sample is its episode; outside of one the request whose slots were filled together, or the decision
    itself. Its context is a ``Question`` where features of the actions or a vector are known. Deferred decisions count
    once they are activated.

    Args:
        store: where they lie.
        agent_id: whose decisions.
        policy: the name of the policy, as given to ``choose``.
        after: only decisions made after that of this id.
        newest: only so many of them, the newest, oldest first; older ones are not read.
        modes: only decisions made in these modes; None: outside of the decision service.
    """
    chosen = LogFilter(modes=frozenset(modes))
    if newest is None:
        found: Iterable[Logged] = logged_decisions(store, agent_id, policy, chosen, after=after)
    else:
        found = newest_decisions(store, agent_id, policy, newest, chosen, after=after)
    for logged in found:
        if logged.reward is not None:
            yield logged.sample(logged.reward)


def logged_decisions(
    store: Store, agent_id: str, policy: str, chosen: LogFilter, *, after: str | None = None
) -> Iterator[Logged]:
    """Yields the decisions of a policy that count, in the order of their ids, read page by page."""
    asked = _query(agent_id, policy, chosen, after)
    while True:
        page = store.read(queries.decisions_by_id, asked, _PAGE)
        yield from counted(store, page, chosen)
        if len(page) < _PAGE:
            return
        asked = asked._replace(after=page[-1].decision_id)


def newest_decisions(
    store: Store,
    agent_id: str,
    policy: str,
    newest: int,
    chosen: LogFilter,
    *,
    after: str | None = None,
) -> list[Logged]:
    """Returns the ``newest`` decisions of a policy that count, oldest first; older ones are not read.

    The order is that in which they became durable: ids that clients gave say nothing of time.
    """
    found: list[Logged] = []
    asked = _query(agent_id, policy, chosen, after)
    before: int | None = None
    while len(found) < newest:
        page = store.read(queries.newest_decisions, asked, before, _PAGE)
        found += counted(store, [decision for _, decision in page], chosen)
        if len(page) < _PAGE:
            break
        before = page[-1][0]
    return found[:newest][::-1]


def question_of(decision: Decision) -> Context:
    """Returns what a policy was asked: the context, as a ``Question`` where more than it is known."""
    if decision.action_features is None and decision.vector is None:
        return decision.context
    vector = None if decision.vector is None else np.frombuffer(decision.vector, dtype="<f4")
    return Question(decision.context, decision.action_features, vector)


def _query(agent_id: str, policy: str, chosen: LogFilter, after: str | None) -> DecisionQuery:
    return DecisionQuery(
        agent_id=agent_id,
        policy=policy,
        after=after,
        since=chosen.since,
        until=chosen.until,
        rewarded=chosen.rewarded,
    )


def counted(store: Store, page: Sequence[Decision], chosen: LogFilter) -> Iterator[Logged]:
    """Yields those of ``page`` that count, in its order, whenever they were made."""
    kept = [each for each in page if each.mode in chosen.modes]
    deferred = [each.decision_id for each in kept if each.is_deferred]
    active: set[str] = set()
    if deferred:
        active = {each.decision_id for each in store.iterate(DecisionActivation, where={"decision_id": deferred})}
    earned = _earned(store, kept)
    for decision in kept:
        if decision.is_deferred and decision.decision_id not in active:
            continue
        found = earned[decision.decision_id]
        total = found.parts.total
        if total is None and chosen.rewarded:
            continue
        is_shared = total is not None and found.parts.own_total is None
        first = found.first_at
        delay = None if first is None else (first - decision.created_at).total_seconds()
        yield Logged(decision, total, is_shared, delay, found.importance)
