"""Reads back what was decided and what it earned."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import select

from learnloop.core.protocols import Sample
from learnloop.core.records import TOTAL, Decision, Reward
from learnloop.store import Store, schema
from learnloop.store.mapping import record_columns, to_record

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

    It is the part ``total`` where there is one, else the sum of all parts.
    """
    chosen = parts.own or parts.episode
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


def logged_samples(store: Store, agent_id: str, policy: str, *, after: str | None = None) -> Iterator[Sample]:
    """Yields the decisions of a policy that have a known reward, oldest first.

    The unit of a sample is its episode, or the decision itself where it was made outside of one.

    Args:
        store: where they lie.
        agent_id: whose decisions.
        policy: the name of the policy, as given to ``choose``.
        after: only decisions made after that of this id.
    """
    while True:
        page = store.select(Decision, where={"agent_id": agent_id, "policy": policy}, after=after, limit=_PAGE)
        parts = rewards_of(store, page)
        for decision in page:
            total = reward_total(parts[decision.decision_id])
            if total is not None:
                yield Sample(
                    unit=decision.episode_id or decision.decision_id,
                    context=decision.context,
                    actions=decision.actions,
                    mask=decision.mask,
                    action=decision.action,
                    propensity=decision.propensity,
                    reward=total,
                )
        if len(page) < _PAGE:
            return
        after = page[-1].decision_id
