"""Optimisers against torch.optim, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from learnloop.core.errors import UsageError
from learnloop.nn import optimizers
from learnloop.nn.mlp.network import MLP, Head, MLPConfig
from learnloop.nn.optimizers import Adam, AdamW, Optimizer, RMSprop, clip_coefficient, gradient_norm


def network_of(num_inputs: int = 20) -> MLP:
    return MLP(MLPConfig(input_size=num_inputs, hidden=(9,), heads=(Head(name="q", size=2),)), 1)


CASES: dict[str, tuple[Callable[[MLP], Optimizer], Callable[[Any], torch.optim.Optimizer]]] = {
    "adam": (Adam, lambda p: torch.optim.Adam(p)),
    "adam with others": (
        lambda n: Adam(n, betas=(0.5, 0.99), eps=1e-3),
        lambda p: torch.optim.Adam(p, betas=(0.5, 0.99), eps=1e-3),
    ),
    "adamw": (AdamW, lambda p: torch.optim.AdamW(p)),
    "adamw with others": (
        lambda n: AdamW(n, weight_decay=0.3, eps=1e-5),
        lambda p: torch.optim.AdamW(p, weight_decay=0.3, eps=1e-5),
    ),
    "adamw without decay": (lambda n: AdamW(n, weight_decay=0), lambda p: torch.optim.AdamW(p, weight_decay=0)),
    "rmsprop": (RMSprop, lambda p: torch.optim.RMSprop(p)),
    "rmsprop with others": (
        lambda n: RMSprop(n, alpha=0.9, eps=1e-2),
        lambda p: torch.optim.RMSprop(p, alpha=0.9, eps=1e-2),
    ),
}


@pytest.mark.parametrize("block", [7, 32768])
@pytest.mark.parametrize("scales", [(1.0,), (0.4, 0.02, 1.0, 0.3), (1.0, 1e-9, 1e-7, 1.0, 1e-16)])
@pytest.mark.parametrize("case", CASES)
def test_two_hundred_steps_are_those_of_torch(
    case: str, scales: tuple[float, ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients of all sizes, some zero; scales that jump; a learning rate that changes."""
    monkeypatch.setattr(optimizers, "BLOCK", block)
    make, make_torch = CASES[case]
    network = network_of()
    optimizer = make(network)
    expected = torch.tensor(network.parameters, dtype=torch.float64, requires_grad=True)
    peer = make_torch([expected])
    rng = np.random.default_rng(0)
    sizes = 10.0 ** rng.integers(-4, 3, network.parameters.size)
    sizes[::10] = 0
    for number in range(200):
        network.gradients[:] = rng.standard_normal(network.parameters.size) * sizes
        learning_rate = 1e-2 / (1 + number / 50)
        scale = scales[number % len(scales)]
        gradient = torch.tensor(network.gradients, dtype=torch.float64) * scale
        optimizer.step(learning_rate, scale)
        peer.param_groups[0]["lr"] = learning_rate
        expected.grad = gradient
        peer.step()
    assert np.abs(network.parameters - network_of().parameters).max() > 1e-2
    np.testing.assert_allclose(network.parameters, expected.detach().numpy(), rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("case", CASES)
def test_goes_on_from_a_state_bit_for_bit(case: str) -> None:
    make, _ = CASES[case]
    network = network_of()
    optimizer = make(network)
    rng = np.random.default_rng(0)
    gradients = rng.standard_normal((10, network.parameters.size)).astype(np.float32)
    for gradient in gradients[:5]:
        network.gradients[:] = gradient
        optimizer.step(1e-3, 0.25)
    resumed = network.copy()
    again = make(resumed)
    again.restore({name: value.copy() for name, value in optimizer.state().items()})
    for gradient in gradients[5:]:
        for each, steps in ((network, optimizer), (resumed, again)):
            each.gradients[:] = gradient
            steps.step(1e-3, 0.75)
    assert network.parameters.tobytes() == resumed.parameters.tobytes()


def test_a_state_of_before_units() -> None:
    """It is that of gradients as they were."""
    network = network_of()
    optimizer = Adam(network)
    network.gradients[:] = 0.5
    optimizer.step(1e-3)
    old = {name: value for name, value in optimizer.state().items() if name != "unit"}
    again = Adam(network_of())
    again.restore(old)
    assert again.state()["unit"] == 1.0
    np.testing.assert_array_equal(again.state()["second_moment"], optimizer.state()["second_moment"])


def test_the_largest_gradients_do_not_freeze_it() -> None:
    """Each tenfold the one before, clipped to 1: their squares would be infinite in the units of the newest."""
    for make, _ in CASES.values():
        network = network_of()
        optimizer = make(network)
        for power in range(20):
            network.gradients[:] = 10.0**power
            optimizer.step(1e-3, 10.0**-power)
        before = network.parameters.copy()
        network.gradients[:] = 1.0
        optimizer.step(1e-3)
        assert np.isfinite(network.parameters).all()
        assert (network.parameters < before).all()


def test_the_state_is_arrays() -> None:
    state = Adam(network_of()).state()
    assert set(state) == {"first_moment", "second_moment", "unit", "num_steps"}
    assert state["num_steps"].dtype == np.int64
    assert set(RMSprop(network_of()).state()) == {"mean_square", "unit", "num_steps"}


def test_a_state_that_does_not_fit() -> None:
    state = Adam(network_of()).state()
    with pytest.raises(ValueError, match="first_moment"):
        Adam(network_of(21)).restore(state)
    with pytest.raises(ValueError, match="mean_square"):
        RMSprop(network_of()).restore(state)
    with pytest.raises(ValueError, match="unit nan"):
        Adam(network_of()).restore({**state, "unit": np.array(np.nan)})


def test_a_step_calls_refresh() -> None:
    """A network on another device learns of its new parameters."""

    class Counting(MLP):
        num_refreshed = 0

        def refresh(self) -> None:
            self.num_refreshed += 1

    for make, _ in CASES.values():
        network = Counting(network_of().config)
        make(network).step(1e-3)
        assert network.num_refreshed == 1


def test_gradients_that_are_not_finite_are_not_hidden() -> None:
    for make, _ in CASES.values():
        network = network_of()
        network.gradients[3] = np.nan
        make(network).step(1e-3)
        assert np.isnan(network.parameters).tolist() == [index == 3 for index in range(network.parameters.size)]


@pytest.mark.parametrize("max_norm", [0.5, 5.0, 1e3, math.inf])
def test_clipping_is_that_of_torch(max_norm: float) -> None:
    gradients = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    parameter = torch.zeros(1000, requires_grad=True)
    parameter.grad = torch.tensor(gradients)
    expected = torch.nn.utils.clip_grad_norm_([parameter], max_norm)
    norm = gradient_norm(gradients)
    assert norm == pytest.approx(float(expected), rel=1e-5)
    np.testing.assert_allclose(gradients * clip_coefficient(norm, max_norm), parameter.grad.numpy(), rtol=1e-5)
    assert clip_coefficient(norm, None) == 1


def test_a_norm_of_what_is_not_finite_is_not_finite() -> None:
    assert math.isnan(gradient_norm(np.array([1, np.nan], dtype=np.float32)))
    assert gradient_norm(np.array([1, np.inf], dtype=np.float32)) == math.inf
    assert gradient_norm(np.zeros(3, dtype=np.float32)) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda n: Adam(n, betas=(0.9, 1.0)), "betas"),
        (lambda n: Adam(n, betas=(-0.1, 0.9)), "betas"),
        (lambda n: Adam(n, eps=0), "eps is 0"),
        (lambda n: AdamW(n, weight_decay=-1), "weight_decay is -1"),
        (lambda n: RMSprop(n, alpha=1), "alpha is 1"),
        (lambda n: RMSprop(n, eps=math.nan), "eps is nan"),
    ],
)
def test_settings_without_a_meaning(make: Callable[[MLP], Optimizer], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(network_of())
