"""Networks that a builder with a name makes: towers, heads, and what is stored of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from learnloop.core.errors import ExtensionError, NotFoundError, UsageError
from learnloop.core.extensions import POINTS
from learnloop.nn.mlp.network import Head, MLPConfig
from learnloop.nn.network_builders import build_network, check_network, restore_network
from learnloop.nn.torch.named_network import NamedNetwork

HEADS = (
    Head(name="policy", size=3),
    Head(name="log_std", size=2, constant=True, initial=-0.5),
    Head(name="value", size=1),
)
INPUTS = np.random.default_rng(0).standard_normal((7, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    POINTS["network"].registered.clear()


class Residual(torch.nn.Module):
    """A layer around which the input goes, with a frozen scale and a buffer."""

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(input_size, input_size)
        self.scale = torch.nn.Parameter(torch.rand(input_size) + 0.5, requires_grad=False)
        self.register_buffer("offset", torch.rand(input_size))
        self.outer = torch.nn.Linear(input_size, output_size)

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.outer(inputs + torch.tanh(self.inner(inputs * self.scale + self.offset)))


def make(seed: int = 0, builder: Any = Residual, **options: Any) -> NamedNetwork:
    POINTS["network"].registered["residual"] = builder
    config = MLPConfig(**{"input_size": 4, "heads": HEADS, "shared": False, **options})
    network = build_network("residual", config, seed=seed)
    assert isinstance(network, NamedNetwork)
    return network


def by_hand(tensors: dict[str, np.ndarray], tower: str) -> np.ndarray:
    """What the module of one tower gives, in float64."""
    own = {name: value.astype(np.float64) for name, value in tensors.items() if f"tower_{tower}." in name}

    def part(name: str) -> np.ndarray:
        return own[f"towers.tower_{tower}.{name}"]

    seen = np.tanh((INPUTS * part("scale") + part("offset")) @ part("inner.weight").T + part("inner.bias"))
    result: np.ndarray = (INPUTS + seen) @ part("outer.weight").T + part("outer.bias")
    return result


def test_each_head_has_a_module_of_its_own() -> None:
    network = make()
    tensors = network.state()
    outputs = network.predict(INPUTS)
    assert outputs.shape == (7, 6)
    np.testing.assert_allclose(outputs[:, :3], by_hand(tensors, "policy"), atol=1e-5)
    np.testing.assert_array_equal(outputs[:, 3:5], np.full((7, 2), -0.5, dtype=np.float32))
    np.testing.assert_allclose(outputs[:, 5:], by_hand(tensors, "value"), atol=1e-5)
    # what learns: two layers of each tower and the constant; scale and offset do not
    assert network.parameters.size == 2 * (4 * 4 + 4) + (3 * 4 + 3) + (4 + 1) + 2


def test_shared_heads_are_parts_of_one_module() -> None:
    network = make(shared=True)
    given = by_hand(network.state(), "trunk")
    outputs = network.predict(INPUTS)
    np.testing.assert_allclose(outputs[:, [0, 1, 2, 5]], given, atol=1e-5)
    np.testing.assert_array_equal(outputs[:, 3:5], np.full((7, 2), -0.5, dtype=np.float32))


def test_a_seed_starts_the_same_and_leaves_torchs_own_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first, again, other = make(1), make(1), make(2)
    assert torch.equal(torch.rand(2), expected)
    np.testing.assert_array_equal(first.parameters, again.parameters)
    assert np.abs(first.parameters - other.parameters).max() > 0.01
    towers = first.state()
    inner = [towers[f"towers.tower_{name}.inner.weight"] for name in ("policy", "value")]
    assert np.abs(inner[0] - inner[1]).max() > 0.01


@pytest.mark.parametrize("shared", [False, True])
def test_some_heads_are_what_they_were_in_the_whole(shared: bool) -> None:
    network = make(shared=shared)
    part = network.select(["log_std", "policy"])
    np.testing.assert_array_equal(part.predict(INPUTS), network.predict(INPUTS)[:, :5])
    assert part.output_size == 5
    assert not any("value" in name for name in part.state())
    part.parameters[:] = 0  # it is a copy
    assert np.abs(network.predict(INPUTS)).max() > 0
    assert np.abs(part.predict(INPUTS)[:, :5]).max() == 0


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_stored_is_what_comes_back(shared: bool) -> None:
    """Scale and offset too, which do not learn and which another seed would draw otherwise."""
    network = make(7, shared=shared).select(["policy"])
    network.parameters[:] *= 1.5
    network.refresh()
    again = restore_network(network.to_config(), {name: value.copy() for name, value in network.state().items()})
    np.testing.assert_array_equal(again.predict(INPUTS), network.predict(INPUTS))
    assert again.to_config() == network.to_config()


def test_a_builder_that_changed() -> None:
    network = make()
    stored = network.to_config(), {name: value.copy() for name, value in network.state().items()}
    POINTS["network"].registered["residual"] = torch.nn.Linear
    with pytest.raises(ExtensionError, match="'residual' is not what it was when this was stored"):
        restore_network(*stored)
    POINTS["network"].registered.clear()
    with pytest.raises(NotFoundError, match="no network is called 'residual'"):
        restore_network(*stored)


@pytest.mark.parametrize("given", [["polcy"], [], ["log_std"]])
def test_heads_that_are_not_there(given: list[str]) -> None:
    network = make()
    with pytest.raises(UsageError, match="at least one not constant, are needed"):
        restore_network({**network.to_config(), "given": given}, network.state())


def test_a_builder_that_computes_something_else() -> None:
    """The same tensors, another activation."""
    network = make(builder=lambda i, o: torch.nn.Sequential(torch.nn.Linear(i, o), torch.nn.Tanh()))
    stored = network.to_config(), {name: value.copy() for name, value in network.state().items()}
    POINTS["network"].registered["residual"] = lambda i, o: torch.nn.Sequential(torch.nn.Linear(i, o), torch.nn.ReLU())
    with pytest.raises(ExtensionError, match="when this was stored: it computes something else"):
        restore_network(*stored)


def test_tensors_that_were_changed() -> None:
    network = make()
    config, state = network.to_config(), {name: value.copy() for name, value in network.state().items()}
    bias = "towers.tower_value.outer.bias"
    for value, error, message in [
        (state[bias].astype(np.float64), ExtensionError, "outer.bias is float32 of shape .1,., and was float64"),
        (np.zeros(2, dtype=np.float32), ExtensionError, "and was float32 of shape .2,."),
        (np.array(["a"]), ExtensionError, "and was <U1"),
        (np.array([np.nan], dtype=np.float32), UsageError, "outer.bias holds numbers that are not finite"),
        (state[bias] + 1, ExtensionError, "it computes something else"),
    ]:
        with pytest.raises(error, match=message):
            restore_network(config, {**state, bias: value})
    with pytest.raises(ExtensionError, match=r"outer.bias is float32 of shape .*, and was not there"):
        restore_network(config, {name: value for name, value in state.items() if name != bias})


def raising(input_size: int, output_size: int) -> Any:
    raise ValueError("only squares")


class Linear(torch.nn.Module):
    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(input_size, output_size)
        self.add_to()

    def add_to(self) -> None:
        """What a kind of it has besides."""

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.layer(inputs)


class Fourier(Linear):
    """Random features that nobody stores."""

    def add_to(self) -> None:
        self.features = torch.randn(4)

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.layer(torch.cos(inputs * self.features))


class Forgotten(Fourier):
    def add_to(self) -> None:
        self.register_buffer("features", torch.randn(4), persistent=False)


class Drawn(Linear):
    """A frozen weight that no seed of ours gives."""

    def add_to(self) -> None:
        drawn = torch.from_numpy(np.random.default_rng().standard_normal(4).astype(np.float32))
        self.scale = torch.nn.Parameter(drawn, requires_grad=False)


class Counting(Linear):
    def add_to(self) -> None:
        self.register_buffer("count", torch.zeros(1))

    def forward(self, inputs: torch.Tensor) -> Any:
        if torch.is_grad_enabled():
            self.count += 1
        return self.layer(inputs)


class Keeping(Linear):
    def forward(self, inputs: torch.Tensor) -> Any:
        self.last = self.layer(inputs)
        return self.last


class Half(Linear):
    def add_to(self) -> None:
        self.register_buffer("coarse", torch.ones(2, dtype=torch.bfloat16))


class Detached(Linear):
    def forward(self, inputs: torch.Tensor) -> Any:
        return self.layer(inputs).detach()


class Several(Linear):
    def forward(self, inputs: torch.Tensor) -> Any:
        return self.layer(inputs), None


class Infinite(Linear):
    def forward(self, inputs: torch.Tensor) -> Any:
        return self.layer(inputs) / 0


ONE: dict[tuple[int, int], torch.nn.Module] = {}


@pytest.mark.parametrize(
    ("builder", "kind", "message"),
    [
        (raising, ExtensionError, "raised ValueError for 4 inputs and 3 outputs: only squares"),
        (lambda *sizes: sum(sizes), ExtensionError, "gave a int; a torch.nn.Module is needed"),
        # three heads of sizes 3, 2 and 1 have 6 outputs together, and so have three such modules
        (lambda *_: torch.nn.Linear(4, 2), UsageError, r"'residual' cannot be used: .* shape \(3, 2\); .* \(3, 3\)"),
        (lambda *_: torch.nn.Linear(5, 3), UsageError, "'residual' cannot be used: the module cannot map"),
        (
            lambda i, o: torch.nn.Sequential(torch.nn.Linear(i, o), torch.nn.Dropout(0.5)),
            UsageError,
            "'residual' cannot be used: the module has the Dropout",
        ),
        (Fourier, UsageError, "cannot be used: it computes with numbers that are not in its state_dict"),
        (Forgotten, UsageError, "cannot be used: it computes with numbers that are not in its state_dict"),
        (Drawn, UsageError, r"built twice with one seed it differs \(.*tower_policy.scale"),
        (Counting, UsageError, "the module changes its buffer 'count' when it is learned from"),
        (Keeping, UsageError, "the module cannot be copied"),
        (Half, UsageError, "coarse in its state_dict is bfloat16, which a policy cannot keep"),
        (Detached, UsageError, "outputs hang on none of its parameters"),
        (Several, UsageError, "the module gives a tuple; one tensor of shape"),
        (Infinite, UsageError, "gives numbers that are not finite for inputs from -1 to 1"),
        (lambda *sizes: ONE.setdefault(sizes, Linear(*sizes)), UsageError, "the same tensors are in two modules"),
    ],
)
def test_builders_that_cannot_be_used(builder: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make(builder=builder)


def test_names() -> None:
    check_network("mlp")
    POINTS["network"].registered["residual"] = Residual
    check_network("residual")
    with pytest.raises(NotFoundError, match="did you mean 'residual'"):
        check_network("residuals")


def test_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from learnloop.core.extensions import POINTS\n"
        "from learnloop.nn.mlp.network import Head, MLPConfig\n"
        "from learnloop.nn.network_builders import build_network\n"
        "POINTS['network'].register('residual', len, ())\n"
        "config = MLPConfig(input_size=4, heads=(Head(name='policy', size=3),))\n"
        "build_network('residual', config, seed=0)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the network 'residual' needs an optional package" in found.stderr
    assert 'pip install "learnloop[torch]"' in found.stderr
