"""What may still be rewarded, on each database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from learnloop.core.records import Agent, Decision, DecisionActivation, PolicySettings
from learnloop.store import Store
from learnloop.store.queries.waiting import reward_waits, waiting_decisions, waiting_episodes

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AGENT = Agent(agent_id="a", created_at=NOW)


def settings(version: int, wait: float | None, policy: str = "p") -> PolicySettings:
    return PolicySettings(
        policy_settings_id=f"{policy}{version}",
        agent_id="a",
        policy=policy,
        version=version,
        settings={} if wait is None else {"reward_wait_seconds": wait, "default_reward": 0.0},
        created_at=NOW,
    )


def decision(key: str, seconds: float, policy: str = "p", **fields: Any) -> Decision:
    """Returns one that was made so many seconds ago."""
    return Decision(
        decision_id=key, agent_id="a", policy=policy, algorithm="x", context={}, actions=["l", "r"], action="l",
        propensity=0.5, created_at=NOW - timedelta(seconds=seconds),
        **{"episode_id": None, "settings_version": 1, **fields},
    )  # fmt: skip


def test_the_newest_settings_say_how_long_is_waited(store: Store) -> None:
    assert store.read(reward_waits) == {}
    store.write([AGENT, settings(1, 60.0), settings(2, 10.0), settings(1, 5.0, "q"), settings(2, None, "q")])
    assert store.read(reward_waits) == {("a", "p"): timedelta(seconds=10)}


def test_what_is_waited_for(store: Store) -> None:
    store.write([AGENT, settings(1, 10.0)])
    store.write(
        [
            decision("new", 9.0, episode_id="e1"),
            decision("old", 10.0, episode_id="e2"),
            decision("other", 1.0, "q", episode_id="e3"),
            decision("imported", 1.0, settings_version=None, episode_id="e4"),
            decision("deferred", 1.0, is_deferred=True, episode_id="e5"),
            decision("activated", 99.0, is_deferred=True, episode_id="e6"),
            decision("alone", 0.0),
            DecisionActivation(decision_id="activated", created_at=NOW - timedelta(seconds=1)),
        ]
    )
    keys = ["new", "old", "other", "imported", "deferred", "activated", "alone", "none"]
    assert store.read(waiting_decisions, NOW, keys) == {"new", "activated", "alone"}
    assert store.read(waiting_decisions, NOW, ["old"]) == set()
    assert store.read(waiting_episodes, NOW, [f"e{number}" for number in range(9)]) == {"e1", "e6"}
    assert store.read(waiting_episodes, NOW) == {"e1", "e6"}
    assert store.read(waiting_episodes, NOW, []) == set()
    assert store.read(waiting_episodes, NOW + timedelta(seconds=60)) == set()
