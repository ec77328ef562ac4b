"""Group normalisation: the formula, what has no reward, groups without differences, figures and warnings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.attempts import Score
from learnloop.core.errors import RewardError, UsageError
from learnloop.rewards import Scored, normalize_group, normalize_groups, reward_statistics

maybe = st.one_of(st.none(), st.floats(-100, 100))


@given(st.lists(maybe, min_size=2, max_size=20))
def test_against_numpy(rewards: list[float | None]) -> None:
    """H3: what has no reward has the advantage 0, is in neither mean nor deviation, and is counted."""
    found = normalize_group(rewards)
    known = np.array([value for value in rewards if value is not None])
    assert (found.num_scored, found.num_unscored) == (len(known), len(rewards) - len(known))
    assert all(advantage == 0.0 for value, advantage in zip(rewards, found.advantages, strict=True) if value is None)
    if found.is_degenerate:
        assert set(found.advantages) == {0.0}
        assert len(known) == 0 or np.ptp(known) <= 1e-9
        return
    expected = (known - known.mean()) / known.std()
    actual = [each for value, each in zip(rewards, found.advantages, strict=True) if value is not None]
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def test_without_the_deviation() -> None:
    """Dr. GRPO."""
    assert normalize_group([0.0, 1.0, None], scale="none").advantages == [-0.5, 0.5, 0.0]


@given(st.lists(st.floats(0, 1), min_size=3, max_size=8), st.floats(0.1, 10), st.floats(-5, 5))
def test_scale_and_shift_change_nothing(rewards: list[float], scale: float, shift: float) -> None:
    before = normalize_group(rewards)
    if before.std is not None and before.std > 1e-3:
        after = normalize_group([scale * value + shift for value in rewards])
        np.testing.assert_allclose(after.advantages, before.advantages, atol=1e-6)


def test_refused() -> None:
    """H4: a group of one has nothing to compare with."""
    for group in ([], [1.0]):
        with pytest.raises(UsageError, match=f"a group of {len(group)}"):
            normalize_group(group)
    with pytest.raises(RewardError, match="nan"):
        normalize_group([math.nan, 1.0])
    with pytest.raises(UsageError, match="'max'"):
        normalize_group([0.0, 1.0], scale="max")  # type: ignore[arg-type]


def test_groups_without_differences_are_told() -> None:
    groups = {"a": [1.0, 1.0], "b": [0.0, None], "c": [0.0, 1.0]}
    found, warnings = normalize_groups(groups)
    assert [found[key].is_degenerate for key in "abc"] == [True, True, False]
    assert warnings == ["2 of 3 groups have no differences in reward; nothing is learned from them"]
    assert normalize_groups({"c": [0.0, 1.0], "a": [1.0, 1.0]})[1] == []


def scored(value: float | None, other: float) -> Scored:
    first = Score.unknown("why") if value is None else Score.of(value)
    scores = {"f": first, "g": Score.of(other), "h": Score.not_applicable("no")}
    return Scored(total=value, scores=scores, shares={"f": 1.0})


def test_a_reward_that_follows_length_is_told() -> None:
    """H4: F1.7, longer answers raise the score."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(10, 1000, 40).astype(float)
    group = [scored(length / 1000, float(rng.random())) for length in lengths]
    found = reward_statistics({"t": group}, {"t": lengths.tolist()})
    assert found.components["f"].length_correlation == pytest.approx(1.0)
    assert abs(found.components["g"].length_correlation or 0) < 0.5
    assert [warning.split()[0] for warning in found.warnings] == ["f", "total"]
    assert found.components["h"].num_not_applicable == 40
    few = reward_statistics({"t": group[:5]}, {"t": lengths[:5].tolist()})
    assert few.warnings == []
    with pytest.raises(UsageError, match="40 attempts and 3 lengths"):
        reward_statistics({"t": group}, {"t": [1.0, 2.0, 3.0]})


def test_statistics_count_what_is_missing() -> None:
    found = reward_statistics({"t": [scored(None, 1.0), scored(1.0, 1.0)], "u": [scored(1.0, 1.0)]})
    assert (found.num_groups, found.num_degenerate) == (2, 2)
    component = found.components["f"]
    assert (component.num_scored, component.num_unscored, component.mean) == (2, 1, 1.0)


def test_rewards_that_nobody_can_learn_from_are_refused() -> None:
    for value in (1e300, -1e300, math.inf, math.nan):
        with pytest.raises(RewardError, match="1e\\+100"):
            normalize_group([value, 0.0])
