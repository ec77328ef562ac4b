"""The attempts at one task, as a group: learning by comparison needs groups whose outcomes differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from sqlalchemy import Float, case, cast, func, select

from learnloop.store import Store, schema
from learnloop.store.queries.rewards import rewards_of_episodes

_SPREAD = 1e-9
"""Outcomes that differ by no more are the same: sums of the same parts in another order."""


class GroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many groups of attempts there are, of which kind. A group is one agent's attempts at one task."""

    num_groups: int
    """Tasks with at least one attempt."""
    num_repeated: int
    """Of these, with two attempts and more."""
    num_mixed: int
    """Of the repeated ones, those whose known outcomes differ."""
    num_without_signal: int
    """Of the repeated ones, those in which all outcomes are known and the same: nothing to compare."""
    num_unknown: int
    """Of the repeated ones, those whose known outcomes do not differ, and not all are known."""
    sizes: Mapping[int, int]
    """How many groups have so many attempts."""


def count_groups(store: Store, agents: Collection[str] | None = None) -> GroupReport:
    """Returns the groups of ``agents`` in a store; of all agents where None.

    The outcome of an attempt is what it was worth by its own rewards; see ``core/rewards.py``.
    """
    episodes, outcome = schema.episodes.c, rewards_of_episodes()
    spread = cast(func.max(outcome.c.reward) - func.min(outcome.c.reward), Float)
    known = func.count(outcome.c.reward)
    size = func.count()
    group = (
        select(
            size.label("size"),
            case((spread > _SPREAD, 1), else_=0).label("mixed"),
            case((known == size, 1), else_=0).label("known"),
        )
        .select_from(schema.episodes.outerjoin(outcome, outcome.c.episode_id == episodes.episode_id))
        .where(episodes.task_id.is_not(None))
        .group_by(episodes.agent_id, episodes.task_id)
    )
    if agents is not None:
        group = group.where(episodes.agent_id.in_(list(agents)))
    kinds = group.subquery().c
    query = select(kinds.size, kinds.mixed, kinds.known, func.count()).group_by(kinds.size, kinds.mixed, kinds.known)
    rows = store.read(lambda connection: connection.execute(query).all())
    sizes: dict[int, int] = {}
    for number, _, _, count in sorted(rows):
        sizes[number] = sizes.get(number, 0) + count
    repeated = [row for row in rows if row[0] > 1]
    return GroupReport(
        num_groups=sum(sizes.values()),
        num_repeated=sum(row[3] for row in repeated),
        num_mixed=sum(row[3] for row in repeated if row[1]),
        num_without_signal=sum(row[3] for row in repeated if not row[1] and row[2]),
        num_unknown=sum(row[3] for row in repeated if not row[1] and not row[2]),
        sizes=sizes,
    )
