"""Distributions against torch.distributions, autograd and the frequencies of their draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.core.errors import ActionError, UsageError
from learnloop.core.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from learnloop.nn.distributions import Categorical, DiagonalGaussian, MultiCategorical, make_distribution

LEAST = torch.finfo(torch.float64).min


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def as_outputs(parameters: np.ndarray) -> np.ndarray:
    """Returns them as a part of a network's outputs, which lie transposed."""
    wide = np.zeros((parameters.shape[1] + 1, parameters.shape[0]), dtype=np.float32)
    wide[:-1] = parameters.T
    return wide.T[:, :-1]


def allowed(batch: int, n: int, seed: int = 0) -> np.ndarray:
    masks = np.random.default_rng(seed).random((batch, n)) < 0.5
    masks[np.arange(batch), np.random.default_rng(seed + 1).integers(n, size=batch)] = True
    return masks


def torch_categorical(logits: torch.Tensor, masks: np.ndarray | None) -> torch.distributions.Categorical:
    if masks is not None:
        logits = torch.where(torch.tensor(masks), logits, -1e30)
    return torch.distributions.Categorical(logits=logits)


@pytest.mark.parametrize("layout", [np.array, as_outputs])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("batch", "n"), [(1, 1), (1, 2), (8, 2), (33, 5), (7, 64)])
def test_categorical_is_that_of_torch(batch: int, n: int, masked: bool, layout: Any) -> None:
    parameters = layout(normal(batch, n) * np.float32(3))
    masks = allowed(batch, n) if masked else None
    distribution = Categorical(n)
    actions, log_probs = distribution.sample(parameters, np.random.default_rng(1), masks)
    assert actions.dtype == np.int64
    assert actions.shape == log_probs.shape == (batch,)
    found = distribution.evaluate(parameters, actions, masks)
    np.testing.assert_array_equal(found.log_probs, log_probs)
    logits = torch.tensor(parameters.copy(), dtype=torch.float64, requires_grad=True)
    peer = torch_categorical(logits, masks)
    np.testing.assert_allclose(log_probs, peer.log_prob(torch.tensor(actions)).detach(), atol=2e-6)
    np.testing.assert_allclose(found.entropies, peer.entropy().detach(), atol=2e-6)
    np.testing.assert_allclose(distribution.probabilities(parameters, masks), peer.probs.detach(), atol=1e-6)
    np.testing.assert_array_equal(distribution.mode(parameters, masks), peer.probs.argmax(dim=1))
    assert found.log_probs.dtype == found.entropies.dtype == np.float32
    for first, second in ((normal(batch, seed=3), normal(batch, seed=4)), (0.7, -0.2), (normal(batch, seed=3), 0.0)):
        logits.grad = None
        peer = torch_categorical(logits, masks)
        weighted = (
            torch.as_tensor(first) * peer.log_prob(torch.tensor(actions)) + torch.as_tensor(second) * peer.entropy()
        )
        weighted.sum().backward()
        assert logits.grad is not None
        gradient = found.gradient(first, second)
        assert gradient.shape == (batch, n)
        assert gradient.dtype == np.float32
        np.testing.assert_allclose(gradient, logits.grad, rtol=1e-4, atol=2e-6)
        if masks is not None:
            assert not gradient[~masks].any()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 9), st.floats(0.1, 30), st.integers(0, 1000))
def test_categorical_gradients_are_finite_differences(batch: int, n: int, spread: float, seed: int) -> None:
    """The weighted log-probabilities and entropies, computed in float64 from their definitions."""
    parameters = normal(batch, n, seed=seed) * np.float32(spread)
    masks = allowed(batch, n, seed)
    rng = np.random.default_rng(seed)
    first, second = normal(batch, seed=seed + 1), normal(batch, seed=seed + 2)
    distribution = Categorical(n)
    actions = distribution.sample(parameters, rng, masks)[0]
    direction = rng.standard_normal((batch, n))

    def total(step: float) -> float:
        logits = parameters.astype(np.float64) + step * direction
        result = 0.0
        for row in range(batch):
            legal = [math.exp(logits[row, i] - logits[row].max()) for i in range(n) if masks[row, i]]
            log_sum = math.log(sum(legal)) + logits[row].max()
            chances = [math.exp(logits[row, i] - log_sum) for i in range(n) if masks[row, i]]
            entropy = -sum(p * math.log(p) for p in chances if p > 0)
            log_prob = logits[row, actions[row]] - log_sum
            result += float(first[row]) * log_prob + float(second[row]) * entropy
        return result

    numeric = (total(1e-5) - total(-1e-5)) / 2e-5
    gradient = distribution.evaluate(parameters, actions, masks).gradient(first, second)
    assert math.isclose(float((gradient * direction).sum()), numeric, rel_tol=1e-4, abs_tol=1e-4)


def test_draws_have_their_frequencies() -> None:
    """A chi-squared test; 29.6 is passed by one in a thousand draws with 10 degrees of freedom."""
    parameters = normal(1, 11, seed=5)
    masks = np.ones((1, 11), dtype=bool)
    masks[0, [0, 4, 10]] = False
    for mask, free in ((None, 29.6), (masks, 24.4)):
        count = 200_000
        rows = np.repeat(parameters, count, axis=0)
        repeated = None if mask is None else np.repeat(mask, count, axis=0)
        actions, _ = Categorical(11).sample(rows, np.random.default_rng(0), repeated)
        expected = Categorical(11).probabilities(parameters, mask)[0].astype(np.float64) * count
        found = np.bincount(actions, minlength=11)
        legal = expected > 0
        assert not found[~legal].any()
        assert ((found - expected)[legal] ** 2 / expected[legal]).sum() < free


def test_draws_of_separate_rows_are_independent() -> None:
    actions, _ = Categorical(2).sample(np.zeros((100_000, 2), dtype=np.float32), np.random.default_rng(0))
    pairs = np.bincount(actions[::2] * 2 + actions[1::2], minlength=4)
    assert ((pairs - 12_500) ** 2 / 12_500).sum() < 16.3  # one in a thousand, 3 degrees of freedom


class _Fixed(np.random.Generator):
    """Gives the same number for each row."""

    def __init__(self, number: float) -> None:
        super().__init__(np.random.PCG64(0))
        self._number = number

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        return np.full(size, self._number, dtype=dtype)


@pytest.mark.parametrize("number", [0.0, 1 - 2**-24])
def test_the_ends_of_the_random_numbers_draw_allowed_actions(number: float) -> None:
    """The numbers from 0 to 1 - 2^-24 are those that numpy draws as float32."""
    for seed in range(200):
        n = 2 + seed % 30
        parameters, masks = normal(50, n, seed=seed) * np.float32(5), allowed(50, n, seed)
        actions, log_probs = Categorical(n).sample(parameters, _Fixed(number), masks)
        assert masks[np.arange(50), actions].all()
        assert np.isfinite(log_probs).all()


def test_numpy_draws_no_larger_float32() -> None:
    assert np.random.default_rng(0).random(10**7, dtype=np.float32).max() <= 1 - 2**-24


def test_extreme_logits() -> None:
    parameters = np.array([[1e4, -1e4, 0], [-1e38, 0, 1e38], [-88, -89, -90]], dtype=np.float32)
    distribution = Categorical(3)
    actions = np.array([1, 0, 2])
    found = distribution.evaluate(parameters, actions)
    np.testing.assert_allclose(
        found.log_probs[[0, 2]], [-2e4, -2 - math.log(1 + math.exp(-1) + math.exp(-2))], rtol=1e-5
    )
    assert np.isfinite(found.entropies).all()
    assert np.isfinite(found.gradient(1.0, 1.0)).all()


def test_an_action_that_is_not_allowed_has_no_probability() -> None:
    masks = np.array([[True, False], [True, True]])
    found = Categorical(2).evaluate(normal(2, 2), np.array([1, 1]), masks)
    assert found.log_probs[0] == -np.inf
    assert np.isfinite(found.log_probs[1])
    assert Categorical(2).probabilities(normal(2, 2), masks)[0].tolist() == [1, 0]


def test_the_entropy_counts_what_is_allowed() -> None:
    masks = np.array([[True, True, False, False], [False, True, False, False]])
    found = Categorical(4).evaluate(np.zeros((2, 4), dtype=np.float32), np.array([0, 1]), masks)
    np.testing.assert_allclose(found.entropies, [math.log(2), 0], atol=1e-6)


def test_nothing_allowed() -> None:
    masks = np.array([[True, False], [False, False]])
    distribution, parameters = Categorical(2), normal(2, 2)
    for call in (
        lambda: distribution.sample(parameters, np.random.default_rng(0), masks),
        lambda: distribution.mode(parameters, masks),
        lambda: distribution.evaluate(parameters, np.array([0, 0]), masks),
        lambda: distribution.probabilities(parameters, masks),
    ):
        with pytest.raises(ActionError, match="row 1 allows no action"):
            call()
    masks = np.array([[True, False, False, False]])
    with pytest.raises(ActionError, match=r"row 0 .*choice 1"):
        MultiCategorical((2, 2)).sample(normal(1, 4), np.random.default_rng(0), masks)


@pytest.mark.parametrize("space", [Discrete(n=3), MultiDiscrete(nvec=(2, 3)), Box(shape=(2,), low=(0, 0), high=(1, 1))])
def test_parameters_that_are_not_numbers_give_log_probs_that_are_not(space: Any) -> None:
    distribution = make_distribution(space)
    parameters = normal(3, distribution.num_parameters)
    parameters[1, 0] = np.nan
    actions, log_probs = distribution.sample(parameters, np.random.default_rng(0))
    assert np.isnan(log_probs).tolist() == [False, True, False]
    found = distribution.evaluate(parameters, actions)
    assert np.isnan(found.log_probs).tolist() == [False, True, False]


@pytest.mark.parametrize("masked", [False, True])
def test_multi_categorical_is_the_product(masked: bool) -> None:
    sizes, batch = (2, 5, 3), 9
    distribution = MultiCategorical(sizes)
    parameters = as_outputs(normal(batch, 10))
    masks = np.concatenate([allowed(batch, n, n) for n in sizes], axis=1) if masked else None
    actions, log_probs = distribution.sample(parameters, np.random.default_rng(1), masks)
    assert actions.dtype == np.int64
    assert actions.shape == (batch, 3)
    found = distribution.evaluate(parameters, actions, masks)
    np.testing.assert_array_equal(found.log_probs, log_probs)
    logits = torch.tensor(parameters.copy(), dtype=torch.float64, requires_grad=True)
    first, second = normal(batch, seed=3), normal(batch, seed=4)
    total, log_prob, entropy, start = torch.zeros(()), 0, 0, 0
    modes = []
    for index, n in enumerate(sizes):
        part = slice(start, start + n)
        peer = torch_categorical(logits[:, part], None if masks is None else masks[:, part])
        log_prob = log_prob + peer.log_prob(torch.tensor(actions[:, index]))
        entropy = entropy + peer.entropy()
        modes.append(peer.probs.argmax(dim=1))
        start += n
    total = (torch.tensor(first) * log_prob + torch.tensor(second) * entropy).sum()
    total.backward()
    np.testing.assert_allclose(log_probs, log_prob.detach(), atol=5e-6)
    np.testing.assert_allclose(found.entropies, entropy.detach(), atol=5e-6)
    np.testing.assert_allclose(found.gradient(first, second), logits.grad, rtol=1e-4, atol=2e-6)
    np.testing.assert_array_equal(distribution.mode(parameters, masks), torch.stack(modes, dim=1))


@pytest.mark.parametrize("layout", [np.array, as_outputs])
@pytest.mark.parametrize(("batch", "size"), [(1, 1), (8, 1), (33, 6)])
def test_gaussian_is_that_of_torch(batch: int, size: int, layout: Any) -> None:
    distribution = DiagonalGaussian(size)
    parameters = layout(normal(batch, 2 * size))
    actions, log_probs = distribution.sample(parameters, np.random.default_rng(1))
    assert actions.dtype == np.float32
    assert actions.shape == (batch, size)
    found = distribution.evaluate(parameters, actions)
    np.testing.assert_array_equal(found.log_probs, log_probs)
    tensor = torch.tensor(parameters.copy(), dtype=torch.float64, requires_grad=True)
    peer = torch.distributions.Normal(tensor[:, :size], tensor[:, size:].exp())
    log_prob, entropy = peer.log_prob(torch.tensor(actions)).sum(1), peer.entropy().sum(1)
    np.testing.assert_allclose(log_probs, log_prob.detach(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.entropies, entropy.detach(), rtol=1e-5, atol=1e-5)
    first, second = normal(batch, seed=3), normal(batch, seed=4)
    (torch.tensor(first) * log_prob + torch.tensor(second) * entropy).sum().backward()
    np.testing.assert_allclose(found.gradient(first, second), tensor.grad, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(distribution.mode(parameters), parameters[:, :size])


def test_gaussian_draws_have_their_moments() -> None:
    parameters = np.repeat(np.array([[1.0, -2.0, 0.5, -1.0]], dtype=np.float32), 200_000, axis=0)
    actions, _ = DiagonalGaussian(2).sample(parameters, np.random.default_rng(0))
    np.testing.assert_allclose(actions.mean(axis=0), [1, -2], atol=0.02)
    np.testing.assert_allclose(actions.std(axis=0), np.exp([0.5, -1]), rtol=0.01)
    assert abs(np.corrcoef(actions.T)[0, 1]) < 0.01


def test_gaussian_has_no_masks() -> None:
    with pytest.raises(ActionError, match="continuous"):
        DiagonalGaussian(1).sample(normal(1, 2), np.random.default_rng(0), np.ones((1, 1), dtype=bool))


def test_the_family_of_each_space() -> None:
    assert make_distribution(Discrete(n=4, start=-1)).num_parameters == 4
    assert make_distribution(MultiDiscrete(nvec=(2, 3))).num_parameters == 5
    assert make_distribution(Box(shape=(2, 2), low=(None,) * 4, high=(None,) * 4)).num_parameters == 8
    with pytest.raises(UsageError, match="no distribution over"):
        make_distribution(MultiBinary(n=2))  # type: ignore[arg-type]


def test_same_seed_same_draws() -> None:
    for distribution in (Categorical(6), MultiCategorical((2, 4)), DiagonalGaussian(3)):
        parameters = normal(5, 6)
        draws = [distribution.sample(parameters, np.random.default_rng(7))[0].tobytes() for _ in range(2)]
        assert draws[0] == draws[1]
