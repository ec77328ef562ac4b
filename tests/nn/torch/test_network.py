"""TorchNetwork: the same numbers as the MLP, and what it refuses."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from learnloop.core.errors import MissingExtraError, UsageError
from learnloop.nn.mlp.network import MLP, Head, MLPConfig
from learnloop.nn.network import Network
from learnloop.nn.optimizers import Adam
from learnloop.nn.torch.network import TorchNetwork
from tests.waiting import PATIENCE_SECONDS


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def module() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4))


def pair() -> tuple[MLP, TorchNetwork]:
    """Returns an MLP and a module with its parameters."""
    own = MLP(MLPConfig(input_size=5, hidden=(8, 6), heads=(Head(name="q", size=4),)), 1)
    other = TorchNetwork(module(), input_size=5, output_size=4)
    names = {"0": "trunk.0", "2": "trunk.1", "4": "q.2"}
    for name, part in other.layers().items():
        index, kind = name.split(".")
        other.parameters[part] = own.parameters[own.layers()[f"{names[index]}.{kind}"]]
    other.refresh()
    return own, other


def test_it_is_the_mlp_of_the_same_parameters() -> None:
    """B10, S0.13: one protocol, two back ends."""
    networks: tuple[Network, Network] = pair()
    own, other = networks
    inputs, weights = normal(7, 5), normal(7, 4, seed=1)
    np.testing.assert_allclose(other.forward(inputs), own.forward(inputs), atol=1e-5)
    np.testing.assert_allclose(other.predict(inputs[:1]), own.predict(inputs[:1]), atol=1e-5)
    expected = own.backward(weights, inputs=True)
    assert expected is not None
    np.testing.assert_allclose(other.backward(weights, inputs=True), expected, rtol=1e-4, atol=1e-5)
    assert np.linalg.norm(other.gradients) == pytest.approx(np.linalg.norm(own.gradients), rel=1e-5)


def test_they_learn_the_same() -> None:
    own, other = pair()
    optimizers = [Adam(own), Adam(other)]
    inputs = normal(16, 5)
    targets = normal(16, 4, seed=1)
    for _ in range(50):
        for network, optimizer in zip((own, other), optimizers, strict=True):
            network.backward((network.forward(inputs) - targets) / np.float32(16))
            optimizer.step(1e-2)
    np.testing.assert_allclose(other.predict(inputs), own.predict(inputs), atol=1e-3)


def test_parameters_are_shared_with_the_module() -> None:
    inner = module()
    network = TorchNetwork(inner, input_size=5, output_size=4)
    assert sorted(network.layers()) == sorted(name for name, _ in inner.named_parameters())
    network.parameters[:] = 0.25
    assert all((each == 0.25).all() for each in inner.parameters())
    with torch.no_grad():
        inner[0].weight[0, 0] = 3
    assert network.parameters[network.layers()["0.weight"]][0] == 3
    assert network.num_masks == 0


def test_only_one_of_the_gradients() -> None:
    _, network = pair()
    inputs, weights = normal(3, 5), normal(3, 4, seed=1)
    network.forward(inputs)
    assert network.backward(weights) is None
    before = network.gradients.copy()
    network.gradients[:] = 7
    assert network.backward(weights, parameters=False, inputs=True) is not None
    assert (network.gradients == 7).all()
    assert network.backward(weights, parameters=False) is None
    network.predict(inputs)
    network.backward(weights)
    np.testing.assert_array_equal(network.gradients, before)


def test_parameters_without_influence_have_no_gradient() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.used(inputs.detach())

    network = TorchNetwork(Unused(), input_size=3, output_size=2)
    network.forward(normal(2, 3))
    gradient = network.backward(normal(2, 2), inputs=True)
    assert not np.any(gradient)
    assert not network.gradients[network.layers()["unused.weight"]].any()
    assert network.gradients[network.layers()["used.weight"]].all()


def test_frozen_parameters_stay() -> None:
    inner = module()
    inner[0].requires_grad_(False)
    network = TorchNetwork(inner, input_size=5, output_size=4)
    assert "0.weight" not in network.layers()
    frozen = inner[0].weight.detach().clone()
    network.forward(normal(2, 5))
    network.backward(normal(2, 4))
    network.gradients[:] = 1
    Adam(network).step(0.1)
    assert torch.equal(inner[0].weight, frozen)


def test_twin_is_independent() -> None:
    _, network = pair()
    network.forward(normal(2, 5))
    twin = network.copy()
    inputs = normal(3, 5)
    expected = network.predict(inputs).copy()
    np.testing.assert_array_equal(twin.predict(inputs), expected)
    twin.parameters[:] = 0
    twin.refresh()
    assert not twin.predict(inputs).any()
    np.testing.assert_array_equal(network.predict(inputs), expected)


def test_twin_of_a_subclass_that_is_built_from_something_else() -> None:
    class Wide(TorchNetwork):
        def __init__(self, width: int) -> None:
            super().__init__(nn.Linear(width, 2), input_size=width, output_size=2)

    network = Wide(3)
    twin = network.copy()
    assert isinstance(twin, Wide)
    network.parameters[:] = 0
    assert twin.predict(normal(2, 3)).any()
    twin.forward(normal(2, 3))
    twin.backward(normal(2, 2))
    assert twin.gradients.any()
    assert not network.gradients.any()


def test_nothing_global_is_set() -> None:
    before = (torch.get_num_threads(), torch.get_default_dtype(), torch.random.get_rng_state(), torch.is_grad_enabled())
    inner = module()
    state = torch.random.get_rng_state()
    network = TorchNetwork(inner, input_size=5, output_size=4)
    network.forward(normal(2, 5))
    network.backward(normal(2, 4))
    network.copy().predict(normal(2, 5))
    assert torch.equal(torch.random.get_rng_state(), state)
    after = (torch.get_num_threads(), torch.get_default_dtype(), state, torch.is_grad_enabled())
    assert after[:2] == before[:2]
    assert after[3] == before[3]


def test_inputs_of_any_layout() -> None:
    _, network = pair()
    wide = normal(6, 10)
    expected = network.forward(wide[::2, :5].copy()).copy()
    np.testing.assert_allclose(network.forward(wide[::2, :5]), expected)
    fixed = wide[::2, :5].copy()
    fixed.flags.writeable = False
    np.testing.assert_allclose(network.forward(fixed), expected)
    np.testing.assert_allclose(network.predict(wide[::-1][1::2, :5]), expected[::-1], atol=1e-6)
    network.backward(np.asfortranarray(normal(3, 4)))


def test_to_config_names_the_class() -> None:
    config = TorchNetwork(module(), input_size=5, output_size=4).to_config()
    assert config == {
        "kind": "torch",
        "module": "torch.nn.modules.container.Sequential",
        "input_size": 5,
        "output_size": 4,
    }


def test_lazy_modules() -> None:
    assert TorchNetwork(nn.LazyLinear(2), input_size=3, output_size=2).parameters.shape == (8,)


class _Noise(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(super().forward(input), 0.5)


class _Centred(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input - input.mean(0))


class _Pair(nn.Linear):
    def forward(self, input: torch.Tensor) -> Any:
        return super().forward(input).double()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)), r"BatchNorm1d '1'.*LayerNorm"),
        (lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)).eval(), "BatchNorm1d"),
        (lambda: nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.1)), r"Dropout '1'.*module.eval\(\)"),
        (lambda: _Noise(5, 4), "other outputs for the same inputs"),
        (lambda: _Centred(5, 4), "depends on the other rows"),
        (lambda: _Pair(5, 4), "torch.float64"),
        (lambda: nn.Linear(6, 4), r"\(batch, 5\)"),
        (lambda: nn.Linear(5, 3), r"\(3, 4\) is needed"),
        (lambda: nn.Linear(5, 4).double(), "float64; call module.float"),
        (lambda: nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 4).half()), "float16, float32"),
        (lambda: nn.Linear(5, 4).requires_grad_(False), "nothing to learn"),
        (lambda: "a module", "is no torch.nn.Module"),
    ],
)
def test_modules_that_are_refused(make: Any, message: str) -> None:
    """F1.1: what would compute another output when learning than when acting."""
    with pytest.raises(UsageError, match=message):
        TorchNetwork(make(), input_size=5, output_size=4)


def test_dropout_that_is_off_is_fine() -> None:
    inputs = np.ones((2, 5), dtype=np.float32)
    for dropout in (nn.Dropout(0.5).eval(), nn.Dropout(0)):
        linear = nn.Linear(5, 4)
        network = TorchNetwork(nn.Sequential(linear, dropout).train(dropout.training), input_size=5, output_size=4)
        expected = linear(torch.from_numpy(inputs)).detach().numpy()
        np.testing.assert_allclose(network.forward(inputs), expected, rtol=1e-6)


@pytest.mark.parametrize("device", ["no such device", "meta", "cuda:99"])
def test_devices_that_do_not_exist(device: str) -> None:
    with pytest.raises(UsageError, match="device='cpu'"):
        TorchNetwork(module(), input_size=5, output_size=4, device=device)


def test_bad_calls() -> None:
    _, network = pair()
    with pytest.raises(UsageError, match="without forward"):
        network.backward(normal(2, 4))
    with pytest.raises(UsageError, match=r"\(batch, 5\) of float32"):
        network.forward(normal(2, 6))
    with pytest.raises(UsageError, match=r"\(batch, 5\) of float32"):
        network.predict(np.zeros((2, 5)))
    with pytest.raises(UsageError, match="masks"):
        network.predict(normal(2, 5), np.zeros(2, dtype=np.int64))


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "learnloop.nn.torch.network")
    with pytest.raises(MissingExtraError, match=r'pip install "learnloop\[torch\]"'):
        importlib.import_module("learnloop.nn.torch.network")


def test_the_room_loads_no_torch() -> None:
    """A stored policy is served with numpy alone."""
    code = "import sys, learnloop.nn; sys.exit(bool({'torch', 'gymnasium'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE_SECONDS).returncode == 0


def test_another_device_has_a_copy_that_refresh_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU treated as a device with a memory of its own."""
    own, shared = pair()
    monkeypatch.setattr(TorchNetwork, "_is_on_cpu", False)
    network = TorchNetwork(module(), input_size=5, output_size=4)
    network.parameters[:] = shared.parameters
    inputs, weights = normal(7, 5), normal(7, 4, seed=1)
    assert np.abs(network.predict(inputs) - shared.predict(inputs)).max() > 0.01
    network.refresh()
    np.testing.assert_array_equal(network.forward(inputs), shared.forward(inputs))
    network.backward(weights)
    shared.backward(weights)
    np.testing.assert_array_equal(network.gradients, shared.gradients)
    assert own.parameters.size == network.copy().parameters.size


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_on_a_gpu_it_is_the_same() -> None:
    inner = module()
    here = TorchNetwork(inner, input_size=5, output_size=4).copy()
    there = TorchNetwork(inner, input_size=5, output_size=4, device="cuda")
    inputs, weights = normal(7, 5), normal(7, 4, seed=1)
    for network in (here, there):
        optimizer = Adam(network)
        for _ in range(10):
            network.forward(inputs)
            network.backward(weights, inputs=True)
            optimizer.step(1e-2)
    np.testing.assert_allclose(there.predict(inputs), here.predict(inputs), atol=1e-3)
