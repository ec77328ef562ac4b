"""learnloop.decisions.log: what was decided and earned, as samples, on each back end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from learnloop.core.protocols import Question
from learnloop.core.records import Decision, DecisionActivation, DecisionMode, Reward
from learnloop.decisions import logged_samples
from learnloop.store import Store
from learnloop.store.queries.news import num_rewarded_since

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def decision(key: str, episode_id: str | None = None, policy: str = "p", **fields: Any) -> Decision:
    return Decision(
        decision_id=key, episode_id=episode_id, agent_id="a", policy=policy, algorithm="squarecb", context={"x": 1.0},
        actions=["l", "r"], mask=[True, True], action="l", propensity=0.5, created_at=NOW, **fields,
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


def test_slots_of_one_request_are_one_unit(store: Store) -> None:
    """They depend on each other: none may be held out while another is learned from."""
    store.write(
        [decision("q.0", request_id="q"), decision("q.1", request_id="q"), decision("q.2", "e", request_id="q")]
    )
    store.write([reward(f"r{n}", 1.0, decision_id=f"q.{n}") for n in range(3)])
    assert [sample.unit for sample in logged_samples(store, "a", "p")] == ["q", "q", "e"]


def test_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.decisions.log._PAGE", 7)
    store.write([decision(f"d{i:03d}", f"e{i:03d}") for i in range(30)])
    store.write([reward(f"r{i:03d}", float(i), episode_id=f"e{i:03d}") for i in range(30)])
    assert [sample.reward for sample in logged_samples(store, "a", "p")] == list(map(float, range(30)))
    assert [sample.reward for sample in logged_samples(store, "a", "p", after="d027")] == [28.0, 29.0]


def test_the_reward_of_a_span_is_none_of_its_decisions(store: Store) -> None:
    store.write([decision("d1", "e")])
    store.write([reward("s", 0.0, episode_id="e", name="label", span_id="x")])
    assert list(logged_samples(store, "a", "p")) == []
    store.write([reward("r", 1.0, episode_id="e")])
    assert [sample.reward for sample in logged_samples(store, "a", "p")] == [1.0]


def test_questions_where_more_than_the_context_is_known(store: Store) -> None:
    numbers = np.array([0.5, -2.0], dtype="<f4")
    features = [{"x": 1}, {"nested": {"y": [1, None]}}]
    store.write(
        [
            decision("d1"),
            decision("d2", vector=numbers.tobytes()),
            decision("d3", action_features=features),
            *(reward(f"r{i}", 1.0, decision_id=f"d{i}") for i in (1, 2, 3)),
        ]
    )
    plain, vector, featured = (sample.context for sample in logged_samples(store, "a", "p"))
    assert not isinstance(plain, Question)
    assert isinstance(vector, Question)
    assert isinstance(featured, Question)
    assert vector == {"x": 1.0}
    assert vector.vector is not None
    assert vector.vector.tolist() == [0.5, -2.0]
    assert vector.action_features is None
    assert featured.action_features == features


def test_deferred_decisions_count_once_they_are_activated(store: Store) -> None:
    store.write([decision("d1", is_deferred=True), decision("d2", is_deferred=True)])
    store.write([reward("r1", 1.0, decision_id="d1"), reward("r2", 2.0, decision_id="d2")])
    assert list(logged_samples(store, "a", "p")) == []
    store.write([DecisionActivation(decision_id="d2", created_at=NOW)])
    assert [sample.unit for sample in logged_samples(store, "a", "p")] == ["d2"]


def test_apprentices_never_train_from_rewards(store: Store) -> None:
    modes = [None, *DecisionMode]
    store.write([decision(f"d{i}", mode=mode) for i, mode in enumerate(modes)])
    store.write([reward(f"r{i}", float(i), decision_id=f"d{i}") for i in range(4)])
    assert [sample.reward for sample in logged_samples(store, "a", "p")] == [0.0, 1.0, 3.0]
    asked = logged_samples(store, "a", "p", modes=[DecisionMode.APPRENTICE])
    assert [sample.reward for sample in asked] == [2.0]


def test_only_the_newest_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.decisions.log._PAGE", 7)
    store.write([decision(f"d{i:03d}", f"e{i:03d}") for i in range(60)])
    store.write([reward(f"r{i:03d}", float(i), episode_id=f"e{i:03d}") for i in range(0, 60, 2)])
    reads = 0
    read = Store.read

    def counted(self: Store, fn: Any, *arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        return read(self, fn, *arguments)

    monkeypatch.setattr(Store, "read", counted)
    assert [s.reward for s in logged_samples(store, "a", "p", newest=10)] == [float(i) for i in range(40, 60, 2)]
    assert reads <= 8
    assert [s.reward for s in logged_samples(store, "a", "p", newest=99)] == [float(i) for i in range(0, 60, 2)]
    assert [s.reward for s in logged_samples(store, "a", "p", newest=3, after="d057")] == [58.0]


def test_new_rewards_are_counted_by_decision(store: Store) -> None:
    store.write([decision(f"d{i}", "e" if i < 2 else None) for i in range(10)])
    store.write([reward(f"r{i}", 1.0, decision_id=f"d{i}") for i in range(10)])
    assert store.read(num_rewarded_since, "a", "p", 0, 100) == 10
    assert store.read(num_rewarded_since, "a", "p", 0, 4) == 4
    assert store.read(num_rewarded_since, "a", "p", 7, 100) == 3
    assert store.read(num_rewarded_since, "a", "other", 0, 100) == 0
    store.write([reward("again", 1.0, decision_id="d5", name="more"), reward("unknown", None, decision_id="d6")])
    store.write([reward("metric", 1.0, decision_id="d7", weight=0.0)])
    assert store.read(num_rewarded_since, "a", "p", 10, 100) == 1
    store.write([reward("both", 1.0, episode_id="e")])
    assert store.read(num_rewarded_since, "a", "p", 10, 100) == 3


def test_the_newest_are_those_that_came_last_whatever_their_ids(store: Store) -> None:
    """Clients may give ids of their own."""
    store.write([decision(key) for key in ("z", "m", "a")])
    store.write([reward(f"r{key}", 1.0, decision_id=key) for key in ("z", "m", "a")])
    assert [sample.unit for sample in logged_samples(store, "a", "p", newest=2)] == ["m", "a"]


def test_new_rewards_are_counted_alike_from_either_side(store: Store) -> None:
    """Many decisions and few new rewards, or few decisions of a policy among many rewards."""
    store.write([decision(f"d{n}") for n in range(40)] + [decision(f"o{n}", policy="other") for n in range(3)])
    for number, key in enumerate(["d1", "d2", "d2", "o1", "d3"]):
        store.write([reward(f"r{number}", 1.0, decision_id=key)])
    assert [store.read(num_rewarded_since, "a", "p", since, 100) for since in range(6)] == [3, 2, 2, 1, 1, 0]
    assert [store.read(num_rewarded_since, "a", "other", since, 100) for since in range(6)] == [1, 1, 1, 1, 0, 0]
    assert store.read(num_rewarded_since, "a", "p", 99, 100) == 0
