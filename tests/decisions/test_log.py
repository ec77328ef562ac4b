"""learnloop.decisions.log: what was decided and earned, as samples."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.records import Decision, Reward
from learnloop.decisions import RewardParts, logged_samples, reward_total
from learnloop.store import Store

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/learnloop.db") as opened:
        yield opened


def decision(key: str, episode_id: str | None = None, policy: str = "p") -> Decision:
    return Decision(
        decision_id=key, episode_id=episode_id, agent_id="a", policy=policy, algorithm="squarecb", context={"x": 1.0},
        actions=["l", "r"], mask=[True, True], action="l", propensity=0.5, created_at=NOW,
    )  # fmt: skip


def reward(key: str, value: float | None, **fields: Any) -> Reward:
    return Reward(
        reward_id=key, name=fields.pop("name", "n"), value=value, created_at=NOW, **{"episode_id": None, **fields}
    )


def test_feedback_finds_its_decision_by_id_alone(store: Store) -> None:
    """F0.9: two decisions that look the same in every field are told apart by their ids."""
    store.write([decision("d1"), decision("d2"), reward("r1", 0.25, decision_id="d2")])
    assert [(sample.unit, sample.reward) for sample in logged_samples(store, "a", "p")] == [("d2", 0.25)]


def test_unknown_rewards_make_no_sample(store: Store) -> None:
    store.write([decision("d1"), decision("d2"), reward("r1", None, decision_id="d1")])
    assert list(logged_samples(store, "a", "p")) == []


def test_own_reward_wins_over_the_episode_s(store: Store) -> None:
    store.write(
        [
            decision("d1", "e"), decision("d2", "e"), decision("d3", "f"), decision("x", "e", policy="other"),
            reward("r1", 1.0, decision_id="d1", episode_id="e"), reward("r2", 0.5, episode_id="e", weight=2.0),
            reward("r3", -0.25, episode_id="e", name="cost"), reward("r4", 9.0, episode_id="f", weight=0.0),
        ]
    )  # fmt: skip
    found = {sample.unit: [] for sample in logged_samples(store, "a", "p")}  # type: ignore[var-annotated]
    for sample in logged_samples(store, "a", "p"):
        found[sample.unit].append(sample.reward)
    assert found == {"e": [1.0, 0.75]}


def test_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.decisions.log._PAGE", 7)
    store.write([decision(f"d{i:03d}", f"e{i:03d}") for i in range(30)])
    store.write([reward(f"r{i:03d}", float(i), episode_id=f"e{i:03d}") for i in range(30)])
    assert [sample.reward for sample in logged_samples(store, "a", "p")] == list(map(float, range(30)))
    assert [sample.reward for sample in logged_samples(store, "a", "p", after="d027")] == [28.0, 29.0]


def test_a_part_that_is_given_again_replaces() -> None:
    parts = RewardParts({}, {})
    assert reward_total(parts) is None
    for value in (1.0, 0.25):
        parts.take(reward("r", value, decision_id="d"))
    parts.take(reward("s", 0.5, decision_id="d", name="m"))
    assert reward_total(parts) == 0.75


def test_a_total_stands_for_all_parts() -> None:
    parts = RewardParts({}, {})
    parts.take(reward("r", 1.0, episode_id="e"))
    parts.take(reward("t", 0.25, episode_id="e", name="total"))
    parts.take(reward("l", 1.0, episode_id="e", name="label"))
    assert reward_total(parts) == 0.25
    parts.take(reward("u", None, episode_id="e", name="total"))
    assert reward_total(parts) == 0.25
