"""SAC's distribution against torch's autograd."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from learnloop.nn.squashed_gaussian import Squashed, SquashedGaussian


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def peer_of(tensor: torch.Tensor, noise: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns actions and log-probabilities by torch's own transformed distribution."""
    size = noise.shape[1]
    std = tensor[:, size:].clamp(-20, 2).exp()
    base = torch.distributions.Normal(tensor[:, :size], std)
    unsquashed = tensor[:, :size] + std * torch.tensor(noise, dtype=torch.float64)
    transform = torch.distributions.transforms.TanhTransform()
    actions = transform(unsquashed)
    log_probs = base.log_prob(unsquashed) - transform.log_abs_det_jacobian(unsquashed, actions)
    return actions, log_probs.sum(1)


@pytest.mark.parametrize("layout", [np.array, np.asfortranarray])
@pytest.mark.parametrize(("batch", "size", "spread"), [(1, 1, 1), (8, 1, 1), (33, 6, 1), (50, 3, 4)])
def test_values_and_gradients_are_those_of_autograd(batch: int, size: int, spread: float, layout: Any) -> None:
    parameters = layout(normal(batch, 2 * size) * np.float32(spread))
    parameters[0, size:] = 3  # clamped: no gradient
    noise = normal(batch, size, seed=1)
    found = Squashed(parameters, noise)
    tensor = torch.tensor(parameters.copy(), dtype=torch.float64, requires_grad=True)
    actions, log_probs = peer_of(tensor, noise)
    assert found.actions.shape == (batch, size)
    assert found.actions.dtype == found.log_probs.dtype == np.float32
    np.testing.assert_allclose(found.actions, actions.detach(), atol=2e-6)
    np.testing.assert_allclose(found.log_probs, log_probs.detach(), rtol=1e-5, atol=2e-5)
    first = normal(batch, size, seed=2)
    for second in (normal(batch, seed=3), 0.2):
        tensor.grad = None
        actions, log_probs = peer_of(tensor, noise)
        ((torch.tensor(first) * actions).sum() + (torch.as_tensor(second) * log_probs).sum()).backward()
        assert tensor.grad is not None
        gradient = found.gradient(first, second)
        np.testing.assert_allclose(gradient, tensor.grad, rtol=2e-4, atol=2e-5)
        assert not (gradient[0, size:]).any()


def test_far_out_nothing_overflows() -> None:
    """In float32 tanh is 1 from 9 on; its log-derivative is still that of the definition, 2 (log 2 - u)."""
    parameters = np.array([[50.0, -20.0], [-200.0, -20.0], [1e6, -20.0]], dtype=np.float32)
    noise = np.zeros((3, 1), dtype=np.float32)
    found = Squashed(parameters, noise)
    np.testing.assert_array_equal(found.actions[:, 0], [1, -1, 1])
    normal_part = 20 - 0.5 * math.log(2 * math.pi)
    expected = [normal_part - 2 * (math.log(2) - distance) for distance in (50, 200, 1e6)]
    np.testing.assert_allclose(found.log_probs, expected, rtol=1e-6)
    gradient = found.gradient(np.ones((3, 1), dtype=np.float32), 1.0)
    np.testing.assert_allclose(gradient[:, 0], [2, -2, 2])


def test_densities_integrate_to_one() -> None:
    """The density at the draws of a fine grid of noise, times the width that each draw stands for."""
    noise = np.linspace(-6, 6, 20_001, dtype=np.float32)[:, None]
    found = Squashed(np.tile(np.array([[0.3, -0.5]], dtype=np.float32), (len(noise), 1)), noise)
    actions = found.actions[:, 0].astype(np.float64)
    density = np.exp(found.log_probs.astype(np.float64))
    assert np.trapezoid(density, actions) == pytest.approx(1, abs=1e-3)


def test_sample_draws_from_the_generator() -> None:
    distribution = SquashedGaussian(2)
    parameters = normal(5, 4)
    draws = [distribution.sample(parameters, np.random.default_rng(3)) for _ in range(2)]
    np.testing.assert_array_equal(draws[0].actions, draws[1].actions)
    noise = np.random.default_rng(3).standard_normal((5, 2), dtype=np.float32)
    expected = np.tanh(parameters[:, :2] + np.exp(parameters[:, 2:]) * noise)
    np.testing.assert_allclose(draws[0].actions, expected, atol=1e-6)
    assert distribution.num_parameters == 4


def test_mode_is_the_squashed_mean() -> None:
    parameters = normal(5, 4)
    np.testing.assert_allclose(SquashedGaussian(2).mode(parameters), np.tanh(parameters[:, :2]), atol=1e-7)


def test_parameters_that_are_not_numbers_are_not_hidden() -> None:
    for column in (0, 1):
        parameters = normal(3, 2)
        parameters[1, column] = np.nan
        found = SquashedGaussian(1).sample(parameters, np.random.default_rng(0))
        assert np.isnan(found.actions[:, 0]).tolist() == [False, True, False]
        assert np.isnan(found.log_probs).tolist() == [False, True, False]
