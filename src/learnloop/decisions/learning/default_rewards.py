"""Default rewards: what a decision that nobody rewarded in time counts as, where the policy's settings say so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from learnloop.core.clock import now
from learnloop.core.records import DEFAULT, Reward
from learnloop.decisions.service.settings import DecisionSettings
from learnloop.store import Connection, Store, insert_records
from learnloop.store.queries.unrewarded import LogPlace, Unrewarded, unrewarded_decisions

SOURCE = "default"
"""What such a reward is given by."""
_PAGE = 500


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
        self._agent_id = agent_id
        self._policy = policy
        self._place = LogPlace(0, datetime(1970, 1, 1, tzinfo=UTC))

    def give(self, settings: DecisionSettings) -> int:
        """Gives what is due, at most a page of each kind; returns how many that were.

        Raises:
            StoreError, UnreachableError: the store refuses; the next call goes on.
        """
        wait, value = settings.reward_wait_seconds, settings.default_reward
        if wait is None or value is None:
            return 0
        mine = (self._agent_id, self._policy, self._place, now() - timedelta(seconds=wait), _PAGE)
        found, reached = self._store.read(unrewarded_decisions, *mine)
        if not found:
            self._place = reached
            return 0

        def work(connection: Connection) -> tuple[int, LogPlace]:
            found, reached = unrewarded_decisions(connection, *mine)
            insert_records(connection, [_reward(row, value, wait) for row in found])
            return len(found), reached

        number, self._place = self._store.run(work)
        return number


def _reward(row: Unrewarded, value: float, wait: float) -> Reward:
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
