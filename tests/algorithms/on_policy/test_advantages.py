"""GAE, n-step returns and V-trace against sums written out from their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.algorithms.on_policy.advantages import explained_variance, gae, standardised, vtrace

F = np.float32


def episode_data(seed: int, steps: int, lanes: int) -> dict[str, np.ndarray]:
    """Returns rewards, values, next values and ends in which episodes terminate, are cut and go on."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((steps, lanes)).astype(F)
    ended = rng.random((steps, lanes)) < 0.3
    terminated = ended & (rng.random((steps, lanes)) < 0.5)
    following = np.vstack([values[1:], rng.standard_normal((1, lanes)).astype(F)])
    bootstraps = rng.standard_normal((steps, lanes)).astype(F)
    next_values = np.where(terminated, F(0), np.where(ended, bootstraps, following)).astype(F)
    return {
        "rewards": rng.standard_normal((steps, lanes)).astype(F),
        "values": values,
        "next_values": next_values,
        "ended": ended,
    }


def gae_by_definition(data: dict[str, np.ndarray], gamma: float, lam: float) -> np.ndarray:
    """The sum of (gamma lambda)^l delta_{t+l} up to the end of the episode, in float64, term by term."""
    rewards, values, ahead, ended = (data[name].astype(np.float64) for name in data)
    steps, lanes = rewards.shape
    result = np.zeros((steps, lanes))
    for lane in range(lanes):
        for start in range(steps):
            for offset in range(steps - start):
                at = start + offset
                delta = rewards[at, lane] + gamma * ahead[at, lane] - values[at, lane]
                result[start, lane] += (gamma * lam) ** offset * delta
                if ended[at, lane]:
                    break
    return result


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 4), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_gae_is_the_discounted_sum_of_td_errors(seed: int, steps: int, lanes: int, gamma: float, lam: float) -> None:
    """F1.3: nothing is carried from one episode into another, and truncated ones are bootstrapped."""
    data = episode_data(seed, steps, lanes)
    found = gae(**data, gamma=gamma, gae_lambda=lam)  # type: ignore[arg-type]
    assert found.shape == (steps, lanes)
    np.testing.assert_allclose(found, gae_by_definition(data, gamma, lam), rtol=1e-3, atol=1e-4)


def test_lambda_one_is_the_n_step_return_minus_the_value() -> None:
    rewards = np.array([[1.0], [2.0], [4.0]], dtype=F)
    values = np.array([[10.0], [20.0], [30.0]], dtype=F)
    next_values = np.array([[20.0], [30.0], [100.0]], dtype=F)
    ended = np.array([[False], [False], [True]])
    found = gae(rewards, values, next_values, ended, gamma=0.5, gae_lambda=1.0)
    returns = [1 + 0.5 * 2 + 0.25 * 4 + 0.125 * 100, 2 + 0.5 * 4 + 0.25 * 100, 4 + 0.5 * 100]
    np.testing.assert_allclose(found[:, 0] + values[:, 0], returns)


def test_lambda_zero_is_the_td_error() -> None:
    data = episode_data(3, 5, 2)
    found = gae(**data, gamma=0.9, gae_lambda=0.0)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, data["rewards"] + F(0.9) * data["next_values"] - data["values"])


def test_a_zero_reward_step_before_a_cut_gets_nothing_of_the_next_episode() -> None:
    """F1.3: the seed's GAE gave 96.5 here."""
    rewards = np.array([[0.0], [100.0]], dtype=F)
    values = np.array([[2.0], [0.0]], dtype=F)
    next_values = np.array([[3.0], [0.0]], dtype=F)  # cut after the first step, whose last observation is worth 3
    ended = np.array([[True], [True]])
    found = gae(rewards, values, next_values, ended, gamma=0.99, gae_lambda=0.95)
    assert found[0, 0] == pytest.approx(0.99 * 3 - 2)


def vtrace_by_definition(
    data: dict[str, np.ndarray], log_ratios: np.ndarray, gamma: float, max_rho: float, max_c: float
) -> tuple[np.ndarray, np.ndarray]:
    """Espeholt et al. 2018, equation 1, with the product of traces written out."""
    rewards, values, ahead, ended = (data[name].astype(np.float64) for name in data)
    ratios = np.exp(log_ratios.astype(np.float64))
    rhos, traces = np.minimum(max_rho, ratios), np.minimum(max_c, ratios)
    steps, lanes = rewards.shape
    targets = values.copy()
    for lane in range(lanes):
        for start in range(steps):
            product = 1.0
            for at in range(start, steps):
                delta = rhos[at, lane] * (rewards[at, lane] + gamma * ahead[at, lane] - values[at, lane])
                targets[start, lane] += gamma ** (at - start) * product * delta
                product *= traces[at, lane]
                if ended[at, lane]:
                    break
    return targets, rhos


@given(st.integers(0, 10_000), st.integers(1, 10), st.floats(0, 1), st.floats(0.5, 2))
@settings(max_examples=60, deadline=None)
def test_vtrace_is_equation_one(seed: int, steps: int, gamma: float, max_rho: float) -> None:
    data = episode_data(seed, steps, 2)
    log_ratios = np.random.default_rng(seed + 1).normal(0, 0.7, (steps, 2)).astype(F)
    found = vtrace(**data, log_ratios=log_ratios, gamma=gamma, max_rho=max_rho)  # type: ignore[arg-type]
    targets, rhos = vtrace_by_definition(data, log_ratios, gamma, max_rho, 1.0)
    np.testing.assert_allclose(found.targets, targets, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.weights, rhos, rtol=1e-5)


def test_vtrace_of_the_policys_own_actions_is_the_n_step_return() -> None:
    """Espeholt et al. 2018, remark after equation 1: on-policy, v_s is the n-step Bellman target."""
    data = episode_data(5, 8, 3)
    zeros = np.zeros((8, 3), dtype=F)
    found = vtrace(**data, log_ratios=zeros, gamma=0.9)  # type: ignore[arg-type]
    np.testing.assert_allclose(
        found.targets,
        gae(**data, gamma=0.9, gae_lambda=1.0) + data["values"],
        rtol=1e-4,
        atol=1e-5,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 0.95, 1.0])
def test_vtrace_of_the_policys_own_actions_is_gae(gae_lambda: float) -> None:
    """Espeholt et al. 2018, remark 2: on-policy, lambda is that of generalised advantages."""
    data = episode_data(6, 8, 3)
    found = vtrace(**data, log_ratios=np.zeros((8, 3), dtype=F), gamma=0.9, gae_lambda=gae_lambda)  # type: ignore[arg-type]
    wanted = gae(**data, gamma=0.9, gae_lambda=gae_lambda)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.advantages, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.targets, wanted + data["values"], rtol=1e-4, atol=1e-5)


def test_vtrace_traces_are_shortened_by_lambda() -> None:
    """Remark 2: c is lambda min(1, ratio)."""
    data = episode_data(8, 6, 2)
    log_ratios = np.random.default_rng(2).normal(0, 0.7, (6, 2)).astype(F)
    found = vtrace(**data, log_ratios=log_ratios, gamma=0.9, gae_lambda=0.4)  # type: ignore[arg-type]
    shorter = vtrace(**data, log_ratios=log_ratios, gamma=0.9, gae_lambda=0.0)  # type: ignore[arg-type]
    rho = np.minimum(1, np.exp(log_ratios))
    ahead = np.append(found.targets[1:] - data["next_values"][:-1], np.zeros((1, 2)), axis=0)
    carried = np.where(data["ended"], 0, 0.9 * 0.4 * rho * ahead)
    np.testing.assert_allclose(found.targets, shorter.targets + carried, rtol=1e-4, atol=1e-5)


def test_vtrace_advantages_look_at_the_next_target() -> None:
    data = episode_data(7, 6, 1)
    data["ended"][:] = False
    data["ended"][-1] = True
    log_ratios = np.full((6, 1), -0.3, dtype=F)
    found = vtrace(**data, log_ratios=log_ratios, gamma=0.9)  # type: ignore[arg-type]
    ahead = np.append(found.targets[1:, 0], data["next_values"][-1, 0])
    wanted = data["rewards"][:, 0] + 0.9 * ahead - data["values"][:, 0]
    np.testing.assert_allclose(found.advantages[:, 0], wanted, rtol=1e-4, atol=1e-5)


def test_huge_ratios_stay_finite() -> None:
    data = episode_data(1, 4, 1)
    found = vtrace(**data, log_ratios=np.full((4, 1), 500, dtype=F), gamma=0.9)  # type: ignore[arg-type]
    assert np.isfinite(found.targets).all()
    assert (found.weights == 1).all()


def test_explained_variance() -> None:
    returns = np.array([1.0, 2.0, 3.0], dtype=F)
    assert explained_variance(returns, returns) == 1
    assert explained_variance(np.full(3, 2, dtype=F), returns) == 0
    assert np.isnan(explained_variance(returns, np.ones(3, dtype=F)))


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(2, 300), st.floats(-1e3, 1e3), st.floats(1e-2, 1e3))
@settings(deadline=None, max_examples=50)
def test_each_row_is_standardised(seed: int, num_rows: int, size: int, mean: float, spread: float) -> None:
    rows = np.random.default_rng(seed).normal(mean, spread, (num_rows, size)).astype(F)
    wide = rows.astype(np.float64)
    deviations = wide.std(axis=1, ddof=1, keepdims=True)
    found = standardised(rows)
    assert found.dtype == F
    # float32 rounds what is left of large numbers that are close to each other
    rounding = 1e-6 * np.abs(wide).max() / np.maximum(deviations, 1e-30) + 1e-5
    assert (np.abs(found - (wide - wide.mean(axis=1, keepdims=True)) / (deviations + 1e-8)) <= rounding * 10).all()


@pytest.mark.parametrize("value", [3.3, -1e-3, 1e6, 0.0])
def test_equal_numbers_become_nothing(value: float) -> None:
    np.testing.assert_array_equal(standardised(np.full((2, 129), value, dtype=F)), 0)
