"""Reads back what was decided and what it earned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np
from sqlalchemy import ColumnElement, Connection, Select, exists, func, or_, select, union

from learnloop.core.protocols import Context, Question, Sample
from learnloop.core.records import DEFAULT, TOTAL, Decision, DecisionActivation, DecisionMode, Record, Reward
from learnloop.store import Store, schema
from learnloop.store.mapping import record_columns, to_record

TRAINED_MODES: Final[frozenset[DecisionMode | None]] = frozenset({None, DecisionMode.LEARNING, DecisionMode.FROZEN})
"""A policy learns from what it chose itself, inside the decision service and outside (None)."""
_PAGE = 1_000


class RewardParts(NamedTuple):
    """The parts of a decision's reward by name: those given for it, and those given for its whole episode."""

    own: dict[str, float]
    episode: dict[str, float]

    def take(self, reward: Reward) -> None:
        """Adds or replaces the part that ``reward`` is; a missing value and a metric (weight 0) change nothing."""
        if reward.value is not None and reward.weight != 0.0:
            parts = self.episode if reward.decision_id is None else self.own
            parts[reward.name] = reward.value * reward.weight


def reward_total(parts: RewardParts) -> float | None:
    """Returns what a decision earned by its own parts, else by its episode's, else None (not known).

    It is the part ``total`` where there is one, else the sum of all parts. The part ``default`` counts only where no
    other part is known, neither its own nor its episode's.
    """
    chosen = parts.own or parts.episode
    if DEFAULT in parts.own or DEFAULT in parts.episode:
        own, episode = ({name: value for name, value in each.items() if name != DEFAULT} for each in parts)
        chosen = own or episode or chosen
    if TOTAL in chosen:
        return chosen[TOTAL]
    return sum(chosen.values()) if chosen else None


def rewards_of(
    store: Store, decisions: Collection[Decision], *, before: int | None = None
) -> Mapping[str, RewardParts]:
    """Returns the reward parts of ``decisions`` by decision id.

    Args:
        store: where they lie.
        decisions: the decisions.
        before: only rewards whose sequence is smaller.
    """
    found = {decision.decision_id: RewardParts({}, {}) for decision in decisions}
    by_episode: dict[str, list[str]] = {}
    for decision in decisions:
        if decision.episode_id is not None:
            by_episode.setdefault(decision.episode_id, []).append(decision.decision_id)
    for reward in _rewards(store, list(found), list(by_episode), before):
        targets = [reward.decision_id] if reward.decision_id else by_episode.get(reward.episode_id or "", [])
        for decision_id in targets:
            if decision_id in found:
                found[decision_id].take(reward)
    return found


def _rewards(
    store: Store, decision_ids: Sequence[str], episode_ids: Sequence[str], before: int | None
) -> Iterator[Reward]:
    """Yields the rewards of these decisions and those of these whole episodes, in the order of the log."""
    table = schema.rewards.c
    for column, ids, more in (
        (table.decision_id, decision_ids, ()),
        (table.episode_id, episode_ids, (table.decision_id.is_(None),)),
    ):
        for start in range(0, len(ids), _PAGE):
            query = select(*record_columns(Reward)).where(column.in_(ids[start : start + _PAGE]), *more)
            if before is not None:
                query = query.where(table.sequence < before)
            ordered = query.order_by(table.sequence)
            rows = store.read(lambda connection, ordered=ordered: connection.execute(ordered).all())  # type: ignore[misc]
            yield from (to_record(Reward, row) for row in rows)


class Logged(NamedTuple):
    """A decision that counts, with what it earned."""

    decision: Decision
    reward: float | None
    """None: not known."""

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
    table = schema.decisions.c
    while True:
        query = _query(agent_id, policy, chosen, after).order_by(table.decision_id).limit(_PAGE)
        page = [decision for _, decision in _read(store, query)]
        yield from _counted(store, page, chosen)
        if len(page) < _PAGE:
            return
        after = page[-1].decision_id


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
    table = schema.decisions.c
    found: list[Logged] = []
    query = _query(agent_id, policy, chosen, after).order_by(table.sequence.desc()).limit(_PAGE)
    before: int | None = None
    while len(found) < newest:
        page = _read(store, query if before is None else query.where(table.sequence < before))
        found += _counted(store, [decision for _, decision in page], chosen)
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


def _query(agent_id: str, policy: str, chosen: LogFilter, after: str | None) -> Select[Any]:
    table = schema.decisions.c
    query = select(*record_columns(Decision), table.sequence).where(table.agent_id == agent_id, table.policy == policy)
    if after is not None:
        query = query.where(table.decision_id > after)
    if chosen.since is not None:
        query = query.where(table.created_at >= chosen.since)
    if chosen.until is not None:
        query = query.where(table.created_at < chosen.until)
    return query.where(_has_reward()) if chosen.rewarded else query


def _read(store: Store, query: Select[Any]) -> list[tuple[int, Decision]]:
    """Returns each decision with its sequence."""
    return store.read(
        lambda connection: [(row[-1], to_record(Decision, row[:-1])) for row in connection.execute(query)]
    )


def _has_reward() -> ColumnElement[bool]:
    rewards, decisions = schema.rewards.c, schema.decisions.c
    own = exists().where(rewards.decision_id == decisions.decision_id, rewards.value.is_not(None))
    episode = exists().where(
        rewards.episode_id == decisions.episode_id, rewards.decision_id.is_(None), rewards.value.is_not(None)
    )
    return or_(own, episode)


def _counted(store: Store, page: Sequence[Decision], chosen: LogFilter) -> Iterator[Logged]:
    """Yields those of ``page`` that count, in its order."""
    kept = [each for each in page if each.mode in chosen.modes]
    deferred = [each.decision_id for each in kept if each.is_deferred]
    active: set[str] = set()
    if deferred:
        active = {each.decision_id for each in store.iterate(DecisionActivation, where={"decision_id": deferred})}
    parts = rewards_of(store, kept)
    for decision in kept:
        if decision.is_deferred and decision.decision_id not in active:
            continue
        total = reward_total(parts[decision.decision_id])
        if total is not None or not chosen.rewarded:
            yield Logged(decision, total)


def rewarded_since(store: Store, agent_id: str, policy: str, sequence: int, limit: int) -> int:
    """Returns how many decisions got a reward after this one of the log, at the most ``limit``."""
    rewards, decisions = schema.rewards.c, schema.decisions.c
    new = (rewards.sequence > sequence, rewards.value.is_not(None), rewards.weight != 0.0)
    mine = (decisions.agent_id == agent_id, decisions.policy == policy)
    joined = select(decisions.decision_id).where(*new, *mine, decisions.decision_id == rewards.decision_id)
    looked_up = select(rewards.decision_id).where(
        *new, exists().where(decisions.decision_id == rewards.decision_id, *mine)
    )
    of_episodes = (*new, rewards.decision_id.is_(None))
    episode = select(decisions.decision_id).where(*of_episodes, *mine, decisions.episode_id == rewards.episode_id)

    def number_of(connection: Connection, query: Select[Any]) -> int:
        return int(connection.execute(select(func.count()).select_from(query.subquery())).scalar_one())

    def count(connection: Connection) -> int:
        num_rewards = connection.execute(select(func.max(rewards.sequence))).scalar_one() or 0
        num_rewards = max(0, num_rewards - sequence)
        num_decisions = number_of(connection, select(decisions.sequence).where(*mine).limit(num_rewards))
        own = (joined if num_decisions < num_rewards else looked_up).distinct()  # from the side where there are fewer
        some = connection.execute(select(rewards.sequence).where(*of_episodes).limit(1)).first()
        if some is None:
            return number_of(connection, own.limit(limit))
        found = union(own, episode).limit(limit).subquery()
        return int(connection.execute(select(func.count()).select_from(found)).scalar_one())

    return store.read(count)
