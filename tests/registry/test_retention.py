"""Which versions may go: F0.10."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.clock import from_micros
from learnloop.core.errors import UsageError
from learnloop.core.records import PolicyVersion
from learnloop.registry.registry import removable, reward_of


def make(number: int, reward: Any = None, parent: int | None = None) -> PolicyVersion:
    return PolicyVersion(
        policy_version_id=f"v{number}",
        policy="p",
        version=number,
        content_hash=f"{number:064x}",
        algorithm="x",
        parent_id=None if parent is None else f"v{parent}",
        metrics={} if reward is None else {"reward": reward},
        created_at=from_micros(0),
    )


def numbers(versions: list[PolicyVersion]) -> list[int]:
    return [version.version for version in versions]


def test_oldest_go_first_and_the_best_stays() -> None:
    versions = [make(1, 0.2), make(2, 0.9), make(3, 0.4), make(4, 0.1), make(5, 0.3)]
    assert numbers(removable(versions, 2, ())) == [1, 3]
    assert numbers(removable(versions, 1, ["v3"])) == [1, 4]
    assert removable(versions, 5, ()) == removable(versions, 99, ()) == removable([], 1, ()) == []


def test_what_is_not_proven_is_never_the_best() -> None:
    versions = [make(1, 0.2), make(2, 0.9), make(3, 0.4), make(4, 0.1), make(5, 0.3)]
    assert numbers(removable(versions, 1, (), {"v2"})) == [1, 2, 4]
    assert numbers(removable(versions, 1, (), {"v4", "v5"})) == [1, 4]  # 3 is the latest that is proven
    assert numbers(removable(versions, 1, (), {each.policy_version_id for each in versions})) == [1, 2, 3, 4]


def test_parents_of_kept_versions_stay_but_not_the_whole_line() -> None:
    line = [make(number, parent=number - 1 or None) for number in range(1, 7)]
    assert numbers(removable(line, 2, ())) == [1, 2, 3]  # 5 and 6 are kept, 4 is the parent of 5
    assert numbers(removable(line, 1, ["v2"])) == [3, 4]


@pytest.mark.parametrize("reward", [None, "0.9", True, math.nan, math.inf])
def test_what_is_no_reward_makes_no_best(reward: Any) -> None:
    assert reward_of(make(1, reward)) is None
    assert numbers(removable([make(1, reward), make(2, 0.1), make(3)], 1, ())) == [1]


@pytest.mark.parametrize("keep", [0, -1])
def test_something_must_stay(keep: int) -> None:
    with pytest.raises(UsageError, match=f"keep is {keep}"):
        removable([make(1)], keep, ())


rows = st.lists(st.tuples(st.none() | st.floats(-1, 1), st.none() | st.integers(1, 12)), max_size=12)


@given(rows, st.integers(1, 5), st.sets(st.integers(1, 12)), st.randoms())
def test_what_is_needed_is_never_removed(
    values: list[tuple[float | None, int | None]], keep: int, referred: set[int], shuffler: Any
) -> None:
    versions = [make(number, reward, parent) for number, (reward, parent) in enumerate(values, 1)]
    shuffler.shuffle(versions)
    gone = set(numbers(removable(versions, keep, [f"v{number}" for number in referred])))
    kept = {version.version for version in versions} - gone
    assert not gone & referred
    assert gone <= set(range(1, len(values) - keep + 1))
    scored = {number: reward for number, (reward, _) in enumerate(values, 1) if reward is not None}
    if scored:
        assert max(scored, key=scored.__getitem__) in kept
    reasons = set(range(len(values) - keep + 1, len(values) + 1)) | referred
    assert not gone & {values[number - 1][1] for number in reasons if 1 <= number <= len(values)}
