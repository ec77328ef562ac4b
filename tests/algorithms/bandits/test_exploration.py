"""Distributions that explore."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.algorithms import ExplorationConfig, explore, explore_distribution
from learnloop.core.errors import UsageError

RNG = np.random.default_rng(0)
ALL = np.ones(3, dtype=np.bool_)


def test_squarecb_is_inverse_gap_weighting() -> None:
    config = ExplorationConfig(epsilon=0.0, gamma_scale=2.0, gamma_exponent=0.5)
    found = explore(np.array([1.0, 0.5, 0.0]), ALL, 100, config, RNG)  # gamma is 20
    assert found == pytest.approx([1 - 1 / 13 - 1 / 23, 1 / 13, 1 / 23])


def test_softmax_is_boltzmann() -> None:
    config = ExplorationConfig(algorithm="softmax", epsilon=0.0, temperature=0.5)
    found = explore(np.array([1.0, 0.5, 9.0]), np.array([True, True, False]), 0, config, RNG)
    assert found == pytest.approx([np.e / (np.e + 1), 1 / (np.e + 1), 0.0])


def test_epsilon_greedy_shares_ties() -> None:
    found = explore(np.array([1.0, 1.0, 0.0]), ALL, 0, ExplorationConfig(algorithm="epsilon_greedy", epsilon=0.3), RNG)
    assert found == pytest.approx([0.45, 0.45, 0.1])


def test_before_learning_all_are_alike() -> None:
    assert explore(np.zeros(3), ALL, 0, ExplorationConfig(), RNG) == pytest.approx([1 / 3] * 3)


@given(
    st.lists(st.tuples(st.floats(-1e12, 1e12), st.booleans()), min_size=1, max_size=20),
    st.integers(0, 10**9),
    st.sampled_from(["squarecb", "epsilon_greedy", "softmax"]),
    st.floats(0, 1),
)
def test_it_is_a_distribution_over_the_allowed(
    rows: list[tuple[float, bool]], num_updates: int, algorithm: str, epsilon: float
) -> None:
    scores = np.array([row[0] for row in rows])
    allowed = np.array([row[1] for row in rows])
    allowed[0] = True
    config = ExplorationConfig(algorithm=algorithm, epsilon=epsilon)  # type: ignore[arg-type]
    found = explore(scores, allowed, num_updates, config, RNG)
    assert np.all(found >= 0)
    assert not found[~allowed].any()
    assert found.sum() == pytest.approx(1.0)
    assert np.all(found[allowed] >= epsilon / allowed.sum() * (1 - 1e-9))
    best = np.where(allowed, scores, -np.inf).argmax()
    assert found[best] == pytest.approx(found.max())


def test_a_distribution_is_mixed_with_uniform() -> None:
    found = explore_distribution(np.array([0.8, 0.2, 0.0]), np.array([True, True, False]), 0.5)
    assert found == pytest.approx([0.65, 0.35, 0.0])
    same = np.array([0.8, 0.2])
    assert explore_distribution(same, np.ones(2, dtype=np.bool_), 0.0) is same


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 1.1}, {"gamma_scale": 0.0}, {"gamma_exponent": float("nan")}, {"temperature": 0.0}]
)
def test_configs_without_a_meaning_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        ExplorationConfig(**wrong)  # type: ignore[arg-type]
