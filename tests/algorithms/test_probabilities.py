"""The ways to explore, as pure functions: their formulas, derived here anew."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.algorithms import BanditConfig, ExplorationConfig, OnlineConfig, build_config, explore
from learnloop.core.errors import UsageError

NAMES = ("squarecb", "linucb", "thompson", "epsilon_greedy", "softmax")
ARM = st.tuples(st.floats(-1e3, 1e3), st.floats(0, 1e3), st.booleans())


@settings(deadline=None)
@given(
    name=st.sampled_from(NAMES),
    arms=st.lists(ARM, min_size=1, max_size=12).filter(lambda arms: any(arm[2] for arm in arms)),
    num_updates=st.integers(0, 10**7),
)
def test_they_are_distributions_over_the_allowed_actions(
    name: str, arms: list[tuple[float, float, bool]], num_updates: int
) -> None:
    """F2.2: probabilities that do not sum to 1."""
    means, widths, mask = (np.array(column) for column in zip(*arms, strict=True))
    rng = np.random.default_rng(0)
    p = explore(means, mask, num_updates, build_config(name, epsilon=0.01).exploration, rng, widths)
    assert p.shape == means.shape
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert (p[~mask] == 0).all()
    assert (p[mask] > 0).all()


@settings(deadline=None)
@given(means=st.lists(st.floats(-50, 50), min_size=2, max_size=8), num_updates=st.integers(1, 10**6))
def test_squarecb_is_inverse_gap_weighting(means: list[float], num_updates: int) -> None:
    config = ExplorationConfig(gamma_scale=3.0, gamma_exponent=0.5, epsilon=0.0)
    allowed = np.ones(len(means), dtype=np.bool_)
    p = explore(np.array(means), allowed, num_updates, config, np.random.default_rng(0))
    gamma = 3.0 * math.sqrt(num_updates)
    best = means.index(max(means))
    for index, mean in enumerate(means):
        if index != best:
            assert p[index] == pytest.approx(1 / (len(means) + gamma * (means[best] - mean)))
    assert p[best] >= 1 / len(means) - 1e-12


def test_squarecb_s_epsilon_is_shared_by_the_allowed_actions() -> None:
    config = ExplorationConfig(gamma_scale=1e6, gamma_exponent=0.0, epsilon=0.3)
    allowed = np.array([True, False, True, True])
    p = explore(np.array([0.0, 9.0, 5.0, 1.0]), allowed, 7, config, np.random.default_rng(0))
    assert p == pytest.approx([0.1, 0.0, 0.8, 0.1], abs=1e-6)


def test_squarecb_counts_only_allowed_actions() -> None:
    config = ExplorationConfig(gamma_scale=1.0, gamma_exponent=0.0, epsilon=0.0)
    allowed = np.array([False, True, True])
    p = explore(np.array([9.0, 1.0, 0.0]), allowed, 7, config, np.random.default_rng(0))
    np.testing.assert_allclose(p, [0, 2 / 3, 1 / 3])


def test_linucb_takes_the_highest_bound_and_splits_ties() -> None:
    config = ExplorationConfig(algorithm="linucb", alpha=2.0, epsilon=0.1)
    means, widths = np.array([0.0, 1.0, 0.0, 9.0]), np.array([1.0, 0.25, 0.5, 1.0])
    allowed = np.array([True, True, True, False])  # bounds 2, 2, 1.41 and one that is not allowed
    p = explore(means, allowed, 0, config, np.random.default_rng(0), widths)
    np.testing.assert_allclose(p, [0.45 + 0.1 / 3, 0.45 + 0.1 / 3, 0.1 / 3, 0])


def test_thompson_is_the_empirical_distribution_of_its_draws() -> None:
    config = ExplorationConfig(algorithm="thompson", num_draws=50, posterior_scale=0.5, epsilon=0.1)
    means, widths = np.array([0.1, 0.0]), np.array([1.0, 4.0])
    both = np.array([True, True])
    p = explore(means, both, 0, config, np.random.default_rng(3), widths)
    wins = np.rint((p - 0.05) / 0.9 * 50)
    np.testing.assert_allclose(p, 0.05 + 0.9 * wins / 50)
    config = ExplorationConfig(algorithm="thompson", num_draws=100_000, posterior_scale=0.5, epsilon=0.1)
    p = explore(means, both, 0, config, np.random.default_rng(4), widths)
    share = 0.5 * (1 + math.erf(0.1 / math.sqrt(0.25 + 1.0) / math.sqrt(2)))  # P(N(.1, .25) > N(0, 1))
    assert p[0] == pytest.approx(0.05 + 0.9 * share, abs=0.9 * 5 * 0.5 / math.sqrt(100_000))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "ppo",
            {},
            "no algorithm is called 'ppo'; known are 'squarecb', 'linucb', 'thompson'",
        ),
        ("squarecb", {"gamma_scale": -1.0}, "gamma_scale is -1.0; allowed is from"),
        ("squarecb", {"gamma_exponent": 2.0}, "gamma_exponent is 2.0"),
        ("squarecb", {"gamma_scale": "big"}, "do not fit: "),
        ("squarecb", {"beta": 1.0}, "options are 'num_warm_up'"),
        ("linucb", {"alpha": math.nan}, "alpha is nan"),
        ("linucb", {"epsilon": 0.0}, "epsilon is 0.0"),
        ("thompson", {"num_draws": 0}, "num_draws is 0"),
        ("thompson", {"posterior_scale": -1.0}, "posterior_scale is -1.0"),
        ("thompson", {"num_warm_up": 0}, "num_warm_up is 0"),
        ("linucb", {"l2_weight": 0.0}, "l2_weight is 0.0"),
    ],
)
def test_configs_refuse_what_has_no_meaning(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_config(name, **options)


def test_configs_are_built_by_name() -> None:
    online = OnlineConfig()
    assert build_config("squarecb", gamma_scale=5) == BanditConfig(
        online, ExplorationConfig(gamma_scale=5.0, epsilon=0.0)
    )
    assert build_config("linucb") == BanditConfig(online, ExplorationConfig(algorithm="linucb", epsilon=0.02))
    chosen = build_config("thompson", num_draws=10, num_warm_up=7, features={"x": "number"})
    assert chosen.exploration == ExplorationConfig(algorithm="thompson", num_draws=10, epsilon=0.01)
    assert chosen.model == OnlineConfig(num_warm_up=7, features={"x": "number"})


@pytest.mark.parametrize("algorithm", ["linucb", "thompson"])
def test_who_explores_by_certainty_needs_it(algorithm: str) -> None:
    config = build_config(algorithm).exploration
    with pytest.raises(UsageError, match=algorithm):
        explore(np.zeros(2), np.ones(2, dtype=np.bool_), 0, config, np.random.default_rng(0))
