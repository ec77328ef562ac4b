"""The regression against numpy's solver, which sees all data at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.algorithms import Ridge
from learnloop.algorithms.bandits import ridge as module
from learnloop.algorithms.bandits.ridge import gram, spd_inverse
from learnloop.core.arrays import F64
from learnloop.core.errors import CorruptError

L2 = 0.7


def sparse(rng: np.random.Generator, count: int, dimension: int, share: float) -> F64:
    return rng.standard_normal((count, dimension)) * (rng.random((count, dimension)) < share)


def solve(inputs: F64, rewards: F64) -> F64:
    return np.linalg.solve(L2 * np.eye(inputs.shape[1]) + inputs.T @ inputs, inputs.T @ rewards)


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 70),
    dimension=st.sampled_from([1, 3, 20, 130]),
    share=st.sampled_from([0.1, 0.9]),
)
def test_weights_means_and_widths_are_those_of_the_normal_equations(
    seed: int, count: int, dimension: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    inputs, rewards = sparse(rng, count, dimension, share), rng.standard_normal(count)
    ridge = Ridge(dimension, L2)
    for x, y in zip(inputs, rewards, strict=True):
        ridge.update("a", x, float(y))
    x = sparse(rng, 1, dimension, share)[0]
    row = ridge.rows(["a"])[0]
    covariance = np.linalg.inv(L2 * np.eye(dimension) + inputs.T @ inputs)
    np.testing.assert_allclose(ridge.weights[row], solve(inputs, rewards), atol=1e-9)
    np.testing.assert_allclose(ridge.means(x)[row], solve(inputs, rewards) @ x, atol=1e-9)
    np.testing.assert_allclose(ridge.widths(x)[row], x @ covariance @ x, atol=1e-9)
    assert ridge.counts[row] == count


def test_an_action_never_learned_has_mean_zero_and_the_prior_width() -> None:
    ridge = Ridge(3, L2)
    ridge.update("a", np.ones(3), 5.0)
    x = np.array([1.0, 2.0, 0.0])
    assert ridge.rows(["new", "a"]).tolist() == [0, 1]
    assert ridge.means(x)[0] == 0.0
    assert ridge.widths(x)[0] == pytest.approx(5 / L2)


def test_actions_do_not_touch_each_other_and_may_come_at_any_time() -> None:
    rng = np.random.default_rng(1)
    inputs, rewards = rng.standard_normal((90, 4)), rng.standard_normal(90)
    names = [f"action-{index % 30}" for index in range(90)]
    ridge = Ridge(4, L2)
    for name, x, y in zip(names, inputs, rewards, strict=True):
        ridge.update(name, x, float(y))
    for index in range(30):
        wanted = solve(inputs[index::30], rewards[index::30])
        np.testing.assert_allclose(ridge.weights[ridge.rows([f"action-{index}"])[0]], wanted, atol=1e-12)


def test_update_many_is_many_updates() -> None:
    rng = np.random.default_rng(2)
    inputs, rewards = sparse(rng, 150, 40, 0.3), rng.standard_normal(150)
    single, batch = Ridge(40, L2), Ridge(40, L2)
    for x, y in zip(inputs, rewards, strict=True):
        single.update("a", x, float(y))
    for x, y in zip(inputs[:21], rewards[:21], strict=True):
        batch.update("a", x, float(y))
    batch.update_many("a", inputs[21:130], rewards[21:130])
    for x, y in zip(inputs[130:], rewards[130:], strict=True):
        batch.update("a", x, float(y))
    np.testing.assert_allclose(batch.weights[1], single.weights[1], atol=1e-11)
    np.testing.assert_allclose(batch.widths(inputs[0]), single.widths(inputs[0]), atol=1e-11)
    assert batch.counts[1] == 150


def test_a_correction_is_a_larger_reward() -> None:
    rng = np.random.default_rng(3)
    inputs, rewards = rng.standard_normal((37, 5)), rng.standard_normal(37)
    parts, whole = Ridge(5, L2), Ridge(5, L2)
    for index, (x, y) in enumerate(zip(inputs, rewards, strict=True)):
        whole.update("a", x, float(y) + index)
        parts.update("a", x, float(y))
    for index in rng.permutation(37):
        parts.correct("a", inputs[index], float(index))
    np.testing.assert_allclose(parts.weights[1], whole.weights[1], atol=1e-9)
    for x in inputs[:20]:  # past the next block, so that the targets enter too
        parts.update("a", x, 1.0)
        whole.update("a", x, 1.0)
    np.testing.assert_allclose(parts.weights[1], whole.weights[1], atol=1e-9)


def test_the_refresh_changes_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    inputs, rewards = rng.standard_normal((100, 6)), rng.standard_normal(100)
    plain = Ridge(6, L2)
    for x, y in zip(inputs, rewards, strict=True):
        plain.update("a", x, float(y))
    monkeypatch.setattr(module, "REFRESH", 32)
    refreshed = Ridge(6, L2)
    for x, y in zip(inputs, rewards, strict=True):
        refreshed.update("a", x, float(y))
    np.testing.assert_allclose(refreshed.weights[1], plain.weights[1], atol=1e-12)
    np.testing.assert_allclose(refreshed.widths(inputs[0]), plain.widths(inputs[0]), atol=1e-12)


def test_thousands_of_updates_stay_exact() -> None:
    rng = np.random.default_rng(5)
    inputs, rewards = sparse(rng, 6000, 12, 0.4) * 10, rng.standard_normal(6000)
    ridge = Ridge(12, 1e-3)
    for x, y in zip(inputs, rewards, strict=True):
        ridge.update("a", x, float(y))
    wanted = np.linalg.solve(1e-3 * np.eye(12) + inputs.T @ inputs, inputs.T @ rewards)
    np.testing.assert_allclose(ridge.weights[1], wanted, rtol=1e-8, atol=1e-11)


def test_stored_arrays_go_on_bit_for_bit_and_are_checked() -> None:
    rng = np.random.default_rng(6)
    ridge = Ridge(50, L2)
    for index in range(57):
        ridge.update(f"a{index % 3}", sparse(rng, 1, 50, 0.2)[0], float(rng.normal()))
    tensors = ridge.to_tensors()
    again = Ridge.from_tensors(50, L2, ridge.actions, tensors)
    for index in range(57):
        x, y = sparse(rng, 1, 50, 0.2)[0], float(rng.normal())
        for learner in (ridge, again):
            learner.update(f"a{index % 4}", x, y)
        np.testing.assert_array_equal(ridge.weights, again.weights)
        np.testing.assert_array_equal(ridge.widths(x), again.widths(x))
    with pytest.raises(
        CorruptError, match=r"stored weights are \('float64', \(4, 50\)\), not \('float64', \(3, 50\)\)"
    ):
        Ridge.from_tensors(50, L2, ["a0", "a1"], tensors | {"counts": tensors["counts"][:3]})
    with pytest.raises(CorruptError, match="stored inverses are None"):
        Ridge.from_tensors(50, L2, ["a0", "a1", "a2"], {k: v for k, v in tensors.items() if k != "inverses"})


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (1, 1), (16, 188), (64, 33), (200, 65), (300, 300)])
def test_gram_and_inverse(rows: int, columns: int) -> None:
    a = np.random.default_rng(rows).standard_normal((rows, columns))
    product = gram(a)
    np.testing.assert_allclose(product, a.T @ a, atol=1e-11)
    precision = product + np.eye(columns)
    inverse = spd_inverse(precision)
    np.testing.assert_allclose(inverse, np.linalg.inv(precision), atol=1e-11)
    np.testing.assert_array_equal(inverse, inverse.T)
    np.testing.assert_allclose(inverse @ precision, np.eye(columns), atol=1e-9)
