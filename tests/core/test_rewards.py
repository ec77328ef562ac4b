"""What a run was worth in all: each row of the table in docs/rewards.md, with the value worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from learnloop.core.records import Reward
from learnloop.core.rewards import RewardParts, RewardState, state_of, worth

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


@pytest.mark.parametrize(
    ("total", "waits", "expected"),
    [
        (0.0, None, RewardState.KNOWN),
        (0.0, T0 + timedelta(seconds=1), RewardState.KNOWN),
        (None, T0 + timedelta(seconds=1), RewardState.PENDING),
        (None, T0, RewardState.MISSING),
        (None, None, RewardState.MISSING),
    ],
)
def test_what_may_still_come_is_not_missing(total: float | None, waits: datetime | None, expected: RewardState) -> None:
    assert state_of(total, waits, T0) is expected
