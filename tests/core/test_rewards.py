"""What a run was worth in all: each row of the table in docs/rewards.md, with the value worked out by hand."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from learnloop.core.errors import RewardError, UsageError
from learnloop.core.records import Reward
from learnloop.core.rewards import RewardParts, RewardTarget, check_reward, new_rewards, state_of, worth

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def part(name: str, value: float | None, weight: float = 1.0, **fields: Any) -> Reward:
    given = {"reward_id": "r", "episode_id": "e", "created_at": T0, **fields}
    return Reward(name=name, value=value, weight=weight, **given)


def label(value: float | None, author: str | None = None) -> Reward:
    return part("label", value, source="label", author=author)


def computed(name: str, value: float | None, weight: float = 1.0) -> Reward:
    return part(name, value, weight, source="rewards")


OUTCOME = part("outcome", 1.0, source="tau-bench")


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([], None),
        ([part("solved", None)], None),
        ([part("latency", 3.0, 0.0)], None),
        ([OUTCOME], 1.0),
        ([OUTCOME, part("outcome", None)], 1.0),
        ([OUTCOME, part("total", None)], 1.0),
        ([OUTCOME, part("outcome", 0.25)], 0.25),
        ([part("solved", 1.0), part("cost", 4.0, -0.125)], 0.5),
        ([part("solved", 1.0), part("cost", None, -0.125)], 1.0),
        ([OUTCOME, label(1.0)], 1.0),
        ([OUTCOME, label(0.0)], 0.0),
        ([OUTCOME, label(0.75)], 0.75),
        ([label(0.0), OUTCOME], 0.0),
        ([part("total", None), label(1.0)], 1.0),
        ([OUTCOME, label(None)], 1.0),
        ([label(1.0, "eva"), label(0.0, "eva")], 0.0),
        ([label(1.0, "eva"), label(0.0, "tom")], 0.5),
        ([label(1.0, "eva"), label(0.0, "tom"), label(0.5, "eva"), label(None, "tom")], 0.25),
        ([label(1.0), label(0.0, "tom"), label(0.0)], 0.0),
        ([computed("total", 0.875), computed("correctness", 1.0, 0.0), OUTCOME], 0.875),
        ([computed("total", 0.875), label(0.0)], 0.0),
        ([computed("total", None), computed("correctness", 1.0, 0.0), OUTCOME], 1.0),
        ([computed("correctness", 1.0, 0.75), computed("style", 0.5, 0.25), OUTCOME], 0.875),
        ([part("default", -1.0)], -1.0),
        ([part("default", -1.0), OUTCOME], 1.0),
        ([part("default", -1.0), part("total", 2.0)], 2.0),
        ([part("default", -1.0), part("solved", None)], -1.0),
    ],
)
def test_worth(rewards: list[Reward], expected: float | None) -> None:
    assert worth(rewards) == expected


@pytest.mark.parametrize(
    ("own", "episode", "expected"),
    [
        ([], [], None),
        ([part("solved", 0.5)], [part("solved", 1.0)], 0.5),
        ([], [part("solved", 1.0)], 1.0),
        ([part("solved", None)], [label(0.0)], 0.0),
        ([part("default", -1.0)], [part("solved", 1.0)], 1.0),
        ([part("default", -1.0)], [], -1.0),
        ([part("default", -1.0)], [part("default", 2.0)], -1.0),
        ([part("solved", 0.5)], [label(0.0)], 0.5),
    ],
)
def test_a_decision_is_worth_its_own_parts_else_its_episode_s(
    own: list[Reward], episode: list[Reward], expected: float | None
) -> None:
    parts = RewardParts({}, {})
    for each in own:
        parts.take(part(each.name, each.value, decision_id="d"))
    for each in episode:
        parts.take(each)
    assert parts.total == expected


def test_the_reward_of_a_span_is_none_of_its_episode_s() -> None:
    parts = RewardParts({}, {})
    parts.take(part("label", 0.0, span_id="s"))
    assert parts.total is None


def test_what_may_still_come_is_not_missing() -> None:
    assert (state_of(0.0, is_awaited=True), state_of(0.0, is_awaited=False)) == ("known", "known")
    assert (state_of(None, is_awaited=True), state_of(None, is_awaited=False)) == ("pending", "missing")


# Given ---------------------------------------------------------------------------------------------------------------


def test_rewards_are_finite_numbers() -> None:
    values = (0.5, 3, True, np.float32(0.25), np.int64(2), np.False_)
    assert [check_reward(value) for value in values] == [0.5, 3.0, 1.0, 0.25, 2.0, 0.0]
    for bad in ("1", None, [1.0]):
        with pytest.raises(RewardError, match="is not a reward"):
            check_reward(bad)
    for bad in (math.nan, math.inf, -math.inf, 10**400):
        with pytest.raises(RewardError, match="give a finite number"):
            check_reward(bad)


def test_the_parts_of_a_reward_that_is_given() -> None:
    target = RewardTarget("e", "d")
    values = {"solved": True, "cost": np.float32(0.5), "latency": None}
    given = new_rewards(target, values, weights={"cost": -2, "latency": 0}, author="eva", reason="seen", key="k")
    assert [(each.name, each.value, each.weight) for each in given] == [
        ("solved", 1.0, 1.0),
        ("cost", 0.5, -2.0),
        ("latency", None, 0.0),
    ]
    assert {(each.episode_id, each.decision_id, each.author, each.reason) for each in given} == {
        ("e", "d", "eva", "seen")
    }
    again = new_rewards(target, values, key="k")
    assert [each.reward_id for each in again] == [each.reward_id for each in given], "the same reward"
    new = new_rewards(target, values)
    assert len({each.reward_id for each in [*new, *new_rewards(target, values)]}) == 6


@pytest.mark.parametrize(
    ("values", "more", "error", "message"),
    [
        ({}, {}, UsageError, "at least one named part"),
        ({"default": 0.5}, {}, UsageError, "'default' is the part that a policy's settings give"),
        ({"a": 1.0, "": 1.0}, {}, UsageError, "'' cannot name a reward"),
        ({"a\n": 1.0}, {}, UsageError, "printable"),
        ({"a" * 201: 1.0}, {}, UsageError, "200"),
        ({"a": 1.0}, {"weights": {"b": 1.0}}, UsageError, "which are no parts"),
        ({"a": 1.0}, {"weights": {"a": None}}, RewardError, "weight of a is None"),
        ({"a": 1.0}, {"weights": {"a": math.nan}}, RewardError, "weight of a"),
        ({"a": 1.0}, {"author": " "}, UsageError, "author is empty"),
        ({"a": 1.0, "b": math.nan}, {}, RewardError, "reward b: .*finite"),
        ({"a": "1"}, {}, RewardError, "reward a: '1' is not a reward"),
        ({"a": 2e100}, {}, RewardError, "up to 1e"),
        ({"a": 1e60}, {"weights": {"a": 1e60}}, RewardError, "products up to 1e"),
    ],
)
def test_what_cannot_be_a_reward(
    values: dict[str, Any], more: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        new_rewards(RewardTarget("e"), values, **more)
