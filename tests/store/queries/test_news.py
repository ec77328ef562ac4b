"""learnloop.store.queries.news: whose decisions got rewards, and who imitated, page by page and on each back end."""

from __future__ import annotations

from typing import Any

from learnloop.core.records import Decision, DecisionMode, Record
from learnloop.store import Store
from learnloop.store.queries.news import num_imitated_since, policies_imitating, policies_rewarded
from learnloop.testing.contracts.store_examples import decision, reward


def served(key: str, policy: str, mode: DecisionMode | None, **fields: Any) -> Record:
    return decision(key, agent_id="bot", policy=policy, mode=mode, **fields)


def test_rewards_are_news_of_the_policies_that_they_are_for(store: Store) -> None:
    assert store.read(policies_rewarded, 0, 10) == (set(), None)
    store.write([
        served("d1", "p", DecisionMode.LEARNING),
        served("d2", "outside", None, episode_id="e"),
        served("d3", "a", DecisionMode.APPRENTICE, episode_id="e"),
    ])  # fmt: skip
    store.write([reward("r1", decision_id="d1", episode_id=None), reward("r2", decision_id="d2")])
    assert store.read(policies_rewarded, 0, 10) == ({("bot", "p")}, 2)
    assert store.read(policies_rewarded, 2, 10) == (set(), None)
    store.write([reward("r3", episode_id="e", decision_id=None), reward("r4", decision_id="d3", episode_id=None)])
    assert store.read(policies_rewarded, 2, 1) == ({("bot", "a")}, 3)
    assert store.read(policies_rewarded, 3, 10) == ({("bot", "a")}, 4)
    assert store.read(policies_rewarded, 0, 10) == ({("bot", "a"), ("bot", "p")}, 4)


def test_decisions_in_apprentice_mode_are_news(store: Store) -> None:
    assert store.read(policies_imitating, 0, 10) == (set(), None)
    store.write([served("d1", "p", DecisionMode.LEARNING)])
    assert store.read(policies_imitating, 0, 10) == (set(), 1)
    store.write([served(f"a{number}", "a", DecisionMode.APPRENTICE, baseline_action="gzip") for number in range(7)])
    store.write([served("b", "a", DecisionMode.APPRENTICE)])
    assert store.read(policies_imitating, 0, 3) == ({("bot", "a")}, 3)
    assert store.read(policies_imitating, 3, 10) == ({("bot", "a")}, 9)
    mine = ("bot", "a")
    assert store.read(num_imitated_since, *mine, 0, 100) == 7
    assert store.read(num_imitated_since, *mine, 0, 3) == 3
    assert store.read(num_imitated_since, *mine, store.last_sequence(Decision), 100) == 0
    assert store.read(num_imitated_since, "bot", "p", 0, 100) == 0
