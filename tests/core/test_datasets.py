"""A data set is whole episodes, one after the other, or it is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from learnloop.core.errors import UsageError
from tests.training.logged import logged_contexts


def flags(*values: int) -> Any:
    return np.array(values, dtype=np.bool_)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.zeros(3, dtype=np.int64)}, r"actions .* has 3 rows; as many as rewards \(4\)"),
        ({"episodes": np.array([0, 1, 1, 3])}, "numbered from 0"),
        ({"episodes": np.array([1, 2, 3, 4])}, "numbered from 0"),
        ({"terminated": flags(1, 1, 1, 0)}, "goes on after its end, or has none"),
        ({"episodes": np.array([0, 0, 1, 1]), "goals": ["", ""]}, "goes on after its end"),
        ({"goals": ["one"]}, "1 goals for 4 episodes"),
        ({"rewards": np.zeros(0)}, "holds no step"),
    ],
)
def test_what_is_no_data_set(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(logged_contexts(4), **changes)


def test_counts_and_fingerprints() -> None:
    dataset = replace(
        logged_contexts(4),
        episodes=np.array([0, 0, 0, 1]),
        terminated=flags(0, 0, 0, 1),
        truncated=flags(0, 0, 1, 0),
        goals=["a", "b"],
    )
    assert (dataset.num_steps, dataset.num_episodes) == (4, 2)
    again = replace(dataset, rewards=dataset.rewards.copy())
    assert again.fingerprint() == dataset.fingerprint()
    rewards = dataset.rewards.copy()
    rewards[2] = np.nextafter(rewards[2], 9)
    assert replace(dataset, rewards=rewards).fingerprint() != dataset.fingerprint()
