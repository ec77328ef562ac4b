"""learnloop.decisions.learning.default_rewards: what nobody rewarded in time, each once, on each back end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from learnloop.core.clock import now
from learnloop.core.records import Decision, DecisionActivation, DecisionMode, Reward
from learnloop.decisions.learning.default_rewards import DefaultRewards
from learnloop.decisions.service.settings import DecisionSettings
from learnloop.store import Store

SETTINGS = DecisionSettings(reward_wait_seconds=60.0, default_reward=-1.0)
OLD = timedelta(minutes=5)


def decision(key: str, age: timedelta, **fields: Any) -> Decision:
    return Decision(
        decision_id=key, episode_id=None, agent_id="a", policy="p", algorithm="uniform", context={}, actions=["l"],
        action="l", propensity=1.0, mode=DecisionMode.LEARNING, settings_version=1, created_at=now() - age, **fields,
    )  # fmt: skip


def given(store: Store) -> Sequence[str | None]:
    return sorted(each.decision_id or "" for each in store.iterate(Reward) if each.name == "default")


def test_who_waited_long_enough_gets_the_default_once(store: Store) -> None:
    store.write([decision(f"d{n}", OLD) for n in range(3)] + [decision("young", timedelta())])
    store.write([Reward(reward_id="r", episode_id=None, decision_id="d1", name="r", value=1.0, created_at=now())])
    first, second = DefaultRewards(store, "a", "p"), DefaultRewards(store, "a", "p")
    assert [first.give(SETTINGS), second.give(SETTINGS), first.give(SETTINGS)] == [2, 0, 0]
    assert given(store) == ["d0", "d2"]


def test_who_stands_behind_one_that_waits_is_given_it_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is looked at only up to what still waits, however much that is; nothing is passed over."""
    store.write([decision("first", OLD), decision("waits", timedelta()), decision("behind", OLD)])
    defaults = DefaultRewards(store, "a", "p")
    assert defaults.give(SETTINGS) == 1
    assert given(store) == ["first"]
    later: datetime = now() + OLD
    monkeypatch.setattr("learnloop.decisions.learning.default_rewards.now", lambda: later)
    assert defaults.give(SETTINGS) == 2
    assert given(store) == ["behind", "first", "waits"]


def test_deferred_decisions_wait_from_their_activation_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more were activated in one moment than a page holds, some of them another policy's."""
    monkeypatch.setattr("learnloop.decisions.learning.default_rewards._PAGE", 4)
    moment = now() - OLD
    keys = [f"d{n}" for n in range(11)]
    store.write([decision(key, OLD, is_deferred=True) for key in [*keys, "never"]])
    others = [f"o{n}" for n in range(9)]
    store.write([DecisionActivation(decision_id=key, created_at=moment) for key in [*others, *keys]])
    store.write([DecisionActivation(decision_id="never", created_at=now())])
    defaults = DefaultRewards(store, "a", "p")
    assert sum(defaults.give(SETTINGS) for _ in range(8)) == 11
    assert given(store) == sorted(keys)


def test_a_reward_of_a_span_in_the_episode_keeps_no_default_away(store: Store) -> None:
    """It is no part of what the decision earned; one of the whole episode is."""
    given_for = {"r1": ("e1", "s"), "r2": ("e2", None)}
    store.write([msgspec.structs.replace(decision(key, OLD), episode_id=f"e{key[1]}") for key in ("d1", "d2")])
    store.write([
        Reward(reward_id=key, episode_id=episode, span_id=span, name="r", value=1.0, created_at=now())
        for key, (episode, span) in given_for.items()
    ])  # fmt: skip
    assert DefaultRewards(store, "a", "p").give(SETTINGS) == 1
    assert given(store) == ["d1"]
