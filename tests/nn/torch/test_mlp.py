"""The default network on torch: the same outputs, the same gradients, the same parameters as on numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learnloop.core.errors import UsageError
from learnloop.nn.mlp.network import MLP, Head, MLPConfig, select_heads
from learnloop.nn.torch.mlp import on_device

HEADS = (
    Head(name="policy", size=3),
    Head(name="log_std", size=2, constant=True, initial=-0.5),
    Head(name="value", size=1),
)


def make(**options: Any) -> MLP:
    return MLP(MLPConfig(**{"input_size": 5, "hidden": (8, 6), "heads": HEADS, **options}), seed=1)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden", [(8, 6), (7,), ()])
def test_both_compute_the_same(shared: bool, layer_norm: bool, activation: str, hidden: tuple[int, ...]) -> None:
    network = make(shared=shared, layer_norm=layer_norm and bool(hidden), activation=activation, hidden=hidden)
    other = on_device(network, "torch")
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((11, 5)).astype(np.float32)
    gradient = rng.standard_normal((11, 6)).astype(np.float32)
    np.testing.assert_allclose(other.forward(inputs), network.forward(inputs), atol=1e-5)
    ours, theirs = network.backward(gradient, inputs=True), other.backward(gradient, inputs=True)
    np.testing.assert_allclose(theirs, ours, atol=1e-4)
    np.testing.assert_allclose(other.gradients, network.gradients, atol=1e-4)


def test_what_was_learned_there_is_served_on_numpy() -> None:
    other = on_device(make(), "torch")
    other.parameters[:] += 0.1
    other.refresh()
    inputs = np.ones((2, 5), dtype=np.float32)
    np.testing.assert_allclose(other.to_mlp().predict(inputs), other.predict(inputs), atol=1e-5)
    twin = other.copy()
    twin.parameters[:] = 0
    twin.refresh()
    assert np.abs(other.predict(inputs)).max() > 0
    assert np.abs(twin.predict(inputs)).max() == 0


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("hidden", [(8, 6), ()])
def test_some_heads_are_what_they_were_in_the_whole(shared: bool, hidden: tuple[int, ...]) -> None:
    network = make(shared=shared, hidden=hidden)
    part = select_heads(network, ("policy", "log_std"))
    inputs = np.random.default_rng(2).standard_normal((4, 5)).astype(np.float32)
    np.testing.assert_allclose(part.predict(inputs), network.predict(inputs)[:, :5], atol=1e-6)
    if not shared and hidden:
        assert part.parameters.size < network.parameters.size
    part.parameters[:] = 0
    assert network.parameters.any()


def test_what_a_device_cannot_do_is_told() -> None:
    with pytest.raises(UsageError, match="dropout"):
        on_device(make(dropout=0.1), "torch")
    with pytest.raises(UsageError, match="quantum"):
        on_device(make(), "quantum")
