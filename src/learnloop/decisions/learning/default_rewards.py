"""Default rewards: what a decision that nobody rewarded in time counts as, where the policy's settings say so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, func, select

from learnloop.core.clock import now
from learnloop.core.records import DEFAULT, Reward
from learnloop.decisions.service.settings import DecisionSettings
from learnloop.store import Store, insert_records, schema

SOURCE = "default"
"""What such a reward is given by."""
_PAGE = 500


class _Place(NamedTuple):
    """How far the log has been looked at."""

    sequence: int
    """All decisions up to here that were not deferred are done."""
    activated_at: datetime
    """All that were activated until then are done."""


class DefaultRewards:
    """Gives the default rewards of one policy, page by page, from the oldest decision on.

    Any number of servers may do so at once: a decision gets one default reward only. A reward that is known to be
    unknown (None) is an answer too, and keeps the default away.

    Args:
        store: with the log.
        agent_id: whose policy.
        policy: which policy.
    """

    def __init__(self, store: Store, agent_id: str, policy: str) -> None:
        self._store = store
        decisions = schema.decisions.c
        ours = decisions.settings_version.is_not(None)  # imported ones had their own rules, and their own time
        self._mine = and_(decisions.agent_id == agent_id, decisions.policy == policy, ours)
        self._place = _Place(0, datetime(1970, 1, 1, tzinfo=UTC))

    def give(self, settings: DecisionSettings) -> int:
        """Gives what is due, at most a page of each kind; returns how many that were.

        Raises:
            StoreError, UnreachableError: the store refuses; the next call goes on.
        """
        wait, value = settings.reward_wait_seconds, settings.default_reward
        if wait is None or value is None:
            return 0
        due = now() - timedelta(seconds=wait)
        found, reached = self._store.read(lambda connection: self._due(connection, due))
        if not found:
            self._place = reached
            return 0

        def work(connection: Connection) -> tuple[int, _Place]:
            found, reached = self._due(connection, due)
            insert_records(connection, [_reward(row, value, wait) for row in found])
            return len(found), reached

        number, self._place = self._store.run(work)
        return number

    def _due(self, connection: Connection, due: datetime) -> tuple[list[Any], _Place]:
        """Returns the decisions that nobody rewarded in time, and how far the log has been looked at with them."""
        decisions = schema.decisions.c
        after = and_(self._mine, decisions.sequence > self._place.sequence)
        newest = select(func.max(decisions.sequence)).where(after)
        waiting = select(func.min(decisions.sequence)).where(after, ~decisions.is_deferred, decisions.created_at > due)
        last = connection.execute(waiting).scalar_one()  # what comes after it waits with it, however much that is
        last = connection.execute(newest).scalar_one() if last is None else last - 1
        plain = and_(after, ~decisions.is_deferred, decisions.created_at <= due)
        if last is not None:
            plain = and_(plain, decisions.sequence <= last)
        found = list(connection.execute(_unrewarded().where(plain).order_by(decisions.sequence).limit(_PAGE)))
        if len(found) == _PAGE:
            return found, self._place._replace(sequence=found[-1].sequence)
        activated, reached = self._activated(connection, due)
        return found + activated, _Place(last or self._place.sequence, max(reached, self._place.activated_at))

    def _activated(self, connection: Connection, due: datetime) -> tuple[list[Any], datetime]:
        """As ``_due``, for deferred decisions; the activations are looked at first: there are few new ones."""
        decisions, activations = schema.decisions.c, schema.decision_activations.c
        new = and_(activations.created_at > self._place.activated_at, activations.created_at <= due)
        page = select(activations.created_at).where(new).order_by(activations.created_at).offset(_PAGE - 1).limit(1)
        reached: datetime = connection.execute(page).scalar_one_or_none() or due
        ids = connection.execute(select(activations.decision_id).where(new, activations.created_at <= reached))
        ids_left = list(ids.scalars())
        found: list[Any] = []
        while ids_left:
            chunk, ids_left = ids_left[:_PAGE], ids_left[_PAGE:]
            found += connection.execute(_unrewarded().where(self._mine, decisions.decision_id.in_(chunk))).all()
        return found, reached


def _unrewarded() -> Select[Any]:
    """Returns the query of decisions that have no reward of their own or of their episode."""
    decisions, rewards = schema.decisions.c, schema.rewards.c
    own = rewards.decision_id == decisions.decision_id
    of_episode: ColumnElement[bool] = and_(rewards.decision_id.is_(None), rewards.episode_id == decisions.episode_id)
    return select(decisions.sequence, decisions.decision_id, decisions.episode_id).where(
        ~exists().where(own), ~exists().where(of_episode)
    )


def _reward(row: Any, value: float, wait: float) -> Reward:
    return Reward(
        reward_id=f"{DEFAULT}-{row.decision_id}",
        episode_id=row.episode_id,
        decision_id=row.decision_id,
        name=DEFAULT,
        value=value,
        source=SOURCE,
        reason=f"no reward came within {wait:g} s",
        created_at=now(),
    )
