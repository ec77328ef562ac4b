"""The MLP: gradients against torch's autograd and finite differences, how it starts, dropout, what is refused."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.core.errors import UsageError
from learnloop.nn.mlp.network import MAX_BATCH_SIZES, MLP, NUM_MASKS, Head, MLPConfig
from learnloop.nn.network import Network
from tests.nn.torch_equivalent import flat_gradient, leaves, outputs

POLICY, VALUE = Head(name="policy", size=3), Head(name="value", size=1)
LOG_STD = Head(name="log_std", size=3, constant=True, initial=-0.5)


def build(seed: int = 1, **changes: Any) -> MLP:
    fields: dict[str, Any] = {"input_size": 5, "hidden": (8, 6), "heads": (POLICY, VALUE)}
    network = MLP(MLPConfig(**(fields | changes)), seed)
    rng = np.random.default_rng(seed)
    network.parameters[:] += rng.normal(0, 0.1, network.parameters.size).astype(np.float32)  # biases too
    return network


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def dropout_factors(network: MLP, masks: np.ndarray) -> dict[tuple[str, int], torch.Tensor]:
    """Finds the factors of each row by what passes through them: the activations of a row with and without a mask."""
    towers = ["trunk"] if network.config.shared else [head.name for head in network.config.heads if not head.constant]
    return {
        (tower, index): torch.tensor(network.tables[index][number][masks], dtype=torch.float64)
        for number, tower in enumerate(towers)
        for index in range(len(network.config.hidden))
    }


VARIANTS: dict[str, dict[str, Any]] = {
    "tanh": {},
    "relu": {"activation": "relu"},
    "towers": {"shared": False},
    "towers relu": {"shared": False, "activation": "relu"},
    "layer norm": {"layer_norm": True},
    "layer norm, towers, relu": {"layer_norm": True, "shared": False, "activation": "relu"},
    "dropout": {"dropout": 0.4},
    "dropout, towers, relu, layer norm": {"dropout": 0.3, "shared": False, "activation": "relu", "layer_norm": True},
    "constant head last": {"heads": (POLICY, VALUE, LOG_STD)},
    "constant head between": {"heads": (POLICY, LOG_STD, VALUE)},
    "constant head between, towers": {"heads": (POLICY, LOG_STD, VALUE), "shared": False},
    "constant head first": {"heads": (LOG_STD, POLICY)},
    "no hidden layer": {"hidden": ()},
    "no hidden layer, towers, constant": {"hidden": (), "shared": False, "heads": (POLICY, LOG_STD, VALUE)},
    "one hidden layer": {"hidden": (7,), "shared": False},
    "wide input, towers": {"input_size": 130, "shared": False},
    "many layers": {"hidden": (5, 9, 4, 6), "shared": False},
}


@pytest.mark.parametrize("batch", [1, 2, 7, 64])
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_and_gradients_are_those_of_autograd(variant: str, batch: int) -> None:
    """B10, S1.1: parity with torch within 1e-5."""
    network = build(**VARIANTS[variant])
    inputs, weights = normal(batch, network.input_size), normal(batch, network.output_size, seed=1)
    masks = np.arange(batch) * 5 % NUM_MASKS if network.num_masks else None
    tensors = leaves(network)
    seen = torch.tensor(inputs, dtype=torch.float64, requires_grad=True)
    factors = None if masks is None else dropout_factors(network, masks)
    expected = outputs(network, tensors, seen, factors)
    found = network.forward(inputs, masks)
    np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(network.predict(inputs, masks), expected.detach().numpy(), atol=1e-5)
    (expected * torch.tensor(weights)).sum().backward()
    gradient = network.backward(weights, inputs=True)
    wanted = flat_gradient(network, tensors)
    np.testing.assert_allclose(network.gradients, wanted, rtol=1e-4, atol=2e-5 * max(1, np.abs(wanted).max()))
    assert seen.grad is not None
    np.testing.assert_allclose(gradient, seen.grad.numpy(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_the_gradient_of_the_inputs(variant: str) -> None:
    network = build(**VARIANTS[variant])
    inputs, weights = normal(6, network.input_size), normal(6, network.output_size, seed=1)
    network.forward(inputs)
    both = network.backward(weights, inputs=True)
    assert both is not None
    both, before = both.copy(), network.gradients.copy()
    network.forward(inputs)
    network.gradients[:] = 7
    alone = network.backward(weights, parameters=False, inputs=True)
    np.testing.assert_array_equal(alone, both)
    assert (network.gradients == 7).all()
    assert network.backward(weights) is None
    np.testing.assert_array_equal(network.gradients, before)
    assert network.backward(weights, parameters=False) is None


@settings(max_examples=40, deadline=None)
@given(
    input_size=st.integers(1, 9),
    hidden=st.lists(st.integers(2, 9), max_size=3),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    constant=st.booleans(),
    shared=st.booleans(),
    layer_norm=st.booleans(),
    batch=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
def test_gradients_are_finite_differences(
    input_size: int,
    hidden: list[int],
    sizes: list[int],
    constant: bool,
    shared: bool,
    layer_norm: bool,
    batch: int,
    seed: int,
) -> None:
    """Along a random direction, the loss computed in float64 by the equivalent changes as the gradient says."""
    heads = tuple(Head(name=f"head{index}", size=size) for index, size in enumerate(sizes))
    if constant:
        heads = (heads[0], Head(name="still", size=2, constant=True), *heads[1:])
    # LayerNorm over two units is a step function, which has no useful derivative.
    layer_norm = layer_norm and bool(hidden) and min(hidden) > 3
    config = MLPConfig(input_size=input_size, hidden=tuple(hidden), heads=heads, shared=shared, layer_norm=layer_norm)
    network = MLP(config, seed)
    network.parameters[:] += normal(network.parameters.size, seed=seed) * np.float32(0.1)
    inputs, weights = normal(batch, input_size, seed=seed), normal(batch, config.output_size, seed=seed + 1)
    network.forward(inputs)
    network.backward(weights)
    direction = np.random.default_rng(seed).standard_normal(network.parameters.size)
    direction /= np.linalg.norm(direction)

    def loss(step: float) -> float:
        moved = network.parameters.astype(np.float64) + step * direction
        with torch.no_grad():
            tensors = {name: torch.tensor(moved[part]) for name, part in network.layers().items()}
            result = outputs(network, tensors, torch.tensor(inputs, dtype=torch.float64))
        return float((result.numpy() * weights).sum())

    step = 1e-5
    numeric = (loss(step) - loss(-step)) / (2 * step)
    scale = max(1.0, float(np.linalg.norm(network.gradients)))
    assert math.isclose(float(network.gradients @ direction), numeric, rel_tol=1e-4, abs_tol=2e-5 * scale)


@pytest.mark.parametrize("batch", [2, 8, 64, 100])
@pytest.mark.parametrize("variant", VARIANTS)
def test_predict_is_forward_to_the_bit(variant: str, batch: int) -> None:
    """F1.1: what a row is acted on with is what it is learned from with, dropout or not."""
    network = build(**VARIANTS[variant])
    inputs = normal(batch, network.input_size)
    masks = np.random.default_rng(3).integers(NUM_MASKS, size=batch) if network.num_masks else None
    np.testing.assert_array_equal(network.predict(inputs, masks).copy(), network.forward(inputs, masks))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_row_does_not_depend_on_the_others(variant: str) -> None:
    """F1.1: up to the rounding of matrix products, which depends on the shape of the batch."""
    network = build(**VARIANTS[variant])
    inputs = normal(67, network.input_size)
    masks = np.random.default_rng(3).integers(NUM_MASKS, size=67) if network.num_masks else None
    together = network.forward(inputs, masks).copy()
    for rows in (slice(0, 1), slice(5, 13), slice(60, 67)):
        part = network.predict(inputs[rows], None if masks is None else masks[rows])
        np.testing.assert_allclose(part, together[rows], rtol=0, atol=2e-6)


def test_a_prediction_between_forward_and_backward_changes_nothing() -> None:
    network = build(shared=False)
    inputs, weights = normal(8, 5), normal(8, 4, seed=1)
    network.forward(inputs)
    network.backward(weights)
    before = network.gradients.copy()
    network.forward(inputs)
    network.predict(normal(8, 5, seed=2))
    network.predict(normal(1, 5, seed=2))
    network.activations(normal(8, 5, seed=3))
    network.backward(weights)
    np.testing.assert_array_equal(network.gradients, before)


def test_many_batch_sizes() -> None:
    network = build()
    inputs = normal(40, 5)
    expected = network.forward(inputs).copy()
    for batch in [*range(1, 40), *range(39, 0, -1)]:
        np.testing.assert_allclose(network.predict(inputs[:batch]), expected[:batch], atol=2e-6)
        np.testing.assert_allclose(network.forward(inputs[:batch]), expected[:batch], atol=2e-6)
    assert len(network._learning) == len(network._acting) == MAX_BATCH_SIZES


def test_rows_that_are_not_contiguous() -> None:
    network = build()
    wide = normal(12, 10)
    np.testing.assert_allclose(network.forward(wide[::2, 3:8]), build().forward(wide[::2, 3:8].copy()), atol=1e-6)
    np.testing.assert_allclose(network.predict(wide[:1, ::2]), network.forward(wide[:1, ::2].copy()), atol=1e-6)


def test_gradients_in_any_order_of_memory() -> None:
    network = build()
    weights = normal(6, 4)
    network.forward(normal(6, 5))
    network.backward(weights)
    before = network.gradients.copy()
    network.backward(np.asfortranarray(weights))
    np.testing.assert_array_equal(network.gradients, before)


# Dropout ------------------------------------------------------------------------------------------------------------


def test_masks_are_scaled_and_differ() -> None:
    network = build(hidden=(200,), dropout=0.25, shared=False)
    assert network.num_masks == NUM_MASKS
    ones = np.ones((NUM_MASKS, 5), dtype=np.float32)
    table = network.tables[0]
    assert set(np.unique(table)) == {np.float32(0), np.float32(1) / np.float32(0.75)}
    assert abs(table.mean() - 1) < 0.01
    assert len(np.unique(table.reshape(-1, 200), axis=0)) == 2 * NUM_MASKS  # another one for each tower too
    seen = network.predict(ones, np.arange(NUM_MASKS))
    assert len(np.unique(seen[:, 0])) > NUM_MASKS // 2
    assert np.ptp(network.predict(ones)[:, 0]) < 1e-5


def test_dropout_is_the_same_for_the_same_seed_and_the_twin() -> None:
    first, second, other = build(dropout=0.5), build(dropout=0.5), build(2, dropout=0.5)
    inputs, masks = normal(9, 5), np.arange(9)
    expected = first.predict(inputs, masks).copy()
    np.testing.assert_array_equal(second.predict(inputs, masks), expected)
    np.testing.assert_array_equal(first.copy().predict(inputs, masks), expected)
    assert (other.tables[0] != first.tables[0]).any()


@pytest.mark.parametrize("masks", [np.array([0, 256]), np.array([-1, 0]), np.array([0]), np.zeros((2, 1), dtype=int)])
def test_masks_that_do_not_exist(masks: np.ndarray) -> None:
    with pytest.raises(UsageError, match="2 numbers from 0 to 255"):
        build(dropout=0.5).forward(normal(2, 5), masks)


def test_masks_without_dropout() -> None:
    with pytest.raises(UsageError, match="without dropout"):
        build().predict(normal(2, 5), np.zeros(2, dtype=np.int64))


# How it starts ------------------------------------------------------------------------------------------------------


def weight_of(network: MLP, name: str, num_outputs: int) -> np.ndarray:
    return network.parameters[network.layers()[f"{name}.weight"]].reshape(num_outputs, -1).astype(np.float64)


@pytest.mark.parametrize(("input_size", "width"), [(20, 50), (50, 20), (30, 30)])
def test_orthogonal(input_size: int, width: int) -> None:
    heads = (Head(name="policy", size=4, gain=0.01),)
    network = MLP(MLPConfig(input_size=input_size, hidden=(width,), heads=heads), 3)
    weight = weight_of(network, "trunk.0", width)
    product = weight @ weight.T if width <= input_size else weight.T @ weight
    np.testing.assert_allclose(product, 2 * np.eye(min(width, input_size)), atol=1e-5)
    head = weight_of(network, "policy.1", 4)
    np.testing.assert_allclose(head @ head.T, 1e-4 * np.eye(4), atol=1e-8)
    assert not network.parameters[network.layers()["trunk.0.bias"]].any()


@pytest.mark.parametrize(
    ("init", "variance", "head_variance"),
    [("xavier", 2 / 700, 0.25 * 2 / 700), ("he", 2 / 300, 0.25 / 400), ("uniform", 1 / 900, 1 / 1200)],
)
def test_variances(init: Any, variance: float, head_variance: float) -> None:
    heads = (Head(name="q", size=300, gain=0.5),)
    network = MLP(MLPConfig(input_size=300, hidden=(400,), heads=heads, init=init), 3)
    assert weight_of(network, "trunk.0", 400).var() == pytest.approx(variance, rel=0.02)
    assert weight_of(network, "q.1", 300).var() == pytest.approx(head_variance, rel=0.02)
    bias = network.parameters[network.layers()["trunk.0.bias"]]
    assert bias.any() == (init == "uniform")
    assert np.abs(bias).max() <= 1 / math.sqrt(300)


def test_constant_heads_and_layer_norm_start_as_said() -> None:
    network = MLP(MLPConfig(input_size=2, hidden=(3,), heads=(POLICY, LOG_STD), layer_norm=True), 0)
    np.testing.assert_array_equal(network.predict(normal(2, 2))[:, 3:], np.full((2, 3), -0.5, dtype=np.float32))
    assert (network.parameters[network.layers()["trunk.0.scale"]] == 1).all()
    assert (network.parameters[network.layers()["trunk.0.shift"]] == 0).all()


def test_same_seed_same_bytes() -> None:
    config = MLPConfig(input_size=4, hidden=(8, 8), heads=(POLICY, VALUE), shared=False)
    assert MLP(config, 5).parameters.tobytes() == MLP(config, 5).parameters.tobytes()
    assert MLP(config, 5).parameters.tobytes() != MLP(config, 6).parameters.tobytes()


def test_towers_start_differently() -> None:
    network = MLP(MLPConfig(input_size=4, heads=(Head(name="q1", size=1), Head(name="q2", size=1)), shared=False), 0)
    assert (weight_of(network, "q1.0", 64) != weight_of(network, "q2.0", 64)).all()


# Parts, copies, storage ---------------------------------------------------------------------------------------------


def test_layers_cover_the_parameters_once() -> None:
    for variant in VARIANTS.values():
        network = build(**variant)
        places = np.concatenate([np.arange(part.start, part.stop) for part in network.layers().values()])
        np.testing.assert_array_equal(np.sort(places), np.arange(network.parameters.size))
    names = build(shared=False, heads=(POLICY, LOG_STD), layer_norm=True).layers()
    assert {"policy.0.weight", "policy.1.scale", "policy.1.shift", "policy.2.bias", "log_std"} <= names.keys()


def test_parameters_and_gradients_are_contiguous_float32() -> None:
    network: Network = build()
    for vector in (network.parameters, network.gradients):
        assert vector.dtype == np.float32
        assert vector.flags.c_contiguous
        assert vector.ndim == 1


def test_what_is_written_to_parameters_counts() -> None:
    network = build()
    network.parameters[:] = 0
    network.refresh()
    assert not network.predict(normal(1, 5)).any()
    assert not network.forward(normal(3, 5)).any()


def test_twin_is_independent() -> None:
    network = build(layer_norm=True)
    twin = network.copy()
    inputs = normal(3, 5)
    expected = network.predict(inputs).copy()
    np.testing.assert_array_equal(twin.predict(inputs), expected)
    twin.parameters[:] = 0
    np.testing.assert_array_equal(network.predict(inputs), expected)
    network.forward(inputs)
    network.backward(np.ones((3, 4), dtype=np.float32))
    assert not twin.gradients.any()


def test_activations() -> None:
    network = build(shared=False, dropout=0.5)
    layers = network.activations(normal(4, 5))
    assert [layer.shape for layer in layers] == [(4, 8), (4, 8), (4, 6), (4, 6)]
    weight = weight_of(network, "value.0", 8)
    bias = network.parameters[network.layers()["value.0.bias"]]
    np.testing.assert_allclose(layers[1], np.tanh(normal(4, 5) @ weight.T + bias), atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_json_round_trip(variant: str) -> None:
    network = build(**VARIANTS[variant])
    data = msgspec.json.encode(network.to_config())
    assert msgspec.json.decode(data, type=MLPConfig) == network.config
    again = MLP.from_config(msgspec.json.decode(data), network.parameters)
    inputs = normal(3, network.input_size)
    np.testing.assert_array_equal(again.predict(inputs), network.predict(inputs))
    assert again.parameters is not network.parameters


def test_numbers_that_are_not_finite_go_through() -> None:
    for variant in ({}, {"activation": "relu"}, {"layer_norm": True}, {"dropout": 0.5}):
        network = build(**variant)
        inputs = normal(4, 5)
        inputs[1, 2] = np.nan
        masks = np.zeros(4, dtype=np.int64) if network.num_masks else None
        outputs_found = network.forward(inputs, masks)
        assert np.isnan(outputs_found[1]).all()
        assert np.isfinite(outputs_found[[0, 2, 3]]).all()
        assert np.isnan(network.predict(inputs[1:2])).all()
        network.backward(np.ones((4, 4), dtype=np.float32))
        assert np.isnan(network.gradients).any()


# What is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_size": 0}, "input_size is 0"),
        ({"hidden": (8, 0)}, "the size of a hidden layer is 0"),
        ({"hidden": (10**7,)}, "allowed is from 1 to"),
        ({"heads": ()}, "at least one head"),
        ({"heads": (LOG_STD,)}, "at least one head that is not constant"),
        ({"heads": (POLICY, POLICY)}, "each name must be another"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"dropout": -0.1}, "dropout is -0.1"),
        ({"dropout": math.nan}, "dropout is nan"),
        ({"hidden": (), "dropout": 0.1}, "there are none"),
        ({"hidden": (), "layer_norm": True}, "there are none"),
    ],
)
def test_bad_configs(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(**changes)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "", "size": 1}, "must not be empty"),
        ({"name": "a.b", "size": 1}, "hold a dot"),
        ({"name": "trunk", "size": 1}, "'trunk'"),
        ({"name": "a", "size": 0}, "the size of the head 'a' is 0"),
        ({"name": "a", "size": 1, "gain": -1.0}, "gain -1.0"),
        ({"name": "a", "size": 1, "gain": math.nan}, "gain nan"),
        ({"name": "a", "size": 1, "initial": math.inf, "constant": True}, "starts at inf"),
        ({"name": "a", "size": 1, "initial": 1.0}, "not constant"),
    ],
)
def test_bad_heads(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Head(**fields)


@pytest.mark.parametrize(
    "inputs", [normal(5), normal(2, 4), normal(1, 4), normal(2, 5).astype(np.float64), np.zeros((1, 5), dtype=int)]
)
def test_bad_inputs(inputs: np.ndarray) -> None:
    network = build()
    for call in (network.forward, network.predict):
        with pytest.raises(UsageError, match=r"\(batch, 5\) of float32 is needed"):
            call(inputs)


def test_backward_without_forward() -> None:
    with pytest.raises(UsageError, match="without forward"):
        build().backward(normal(2, 4))


@pytest.mark.parametrize("parameters", [None, normal(3), normal(109).astype(np.float64)])
def test_parameters_that_do_not_fit(parameters: Any) -> None:
    with pytest.raises(UsageError, match="parameters"):
        MLP.from_config(build().to_config(), parameters)


def test_unknown_fields_of_a_stored_config() -> None:
    config = build().to_config() | {"activatoin": "relu"}
    with pytest.raises(msgspec.ValidationError, match="activatoin"):
        MLP.from_config(config, build().parameters)


def test_tanh_of_many_numbers_is_tanh() -> None:
    """Large arrays take another way; infinities and NaN go the same one as numpy's."""
    from learnloop.nn.mlp.layers import MANY, _tanh

    values = np.concatenate([np.linspace(-60, 60, MANY), [np.inf, -np.inf, 0.0]]).astype(np.float32)
    found = values.copy()
    _tanh(found)
    np.testing.assert_allclose(found, np.tanh(values.astype(np.float64)), atol=2e-7)
    poisoned = np.array([np.nan], dtype=np.float32)
    _tanh(poisoned)
    assert np.isnan(poisoned[0])


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_rows_without_a_gradient_cost_nothing_and_change_nothing(activation: str, dropout: float) -> None:
    """The gradient behind the lesser of two critics: zero in one of them for each row."""
    heads = (Head(name="one", size=1), Head(name="two", size=1))
    config = MLPConfig(input_size=5, hidden=(16, 8), heads=heads, shared=False, activation=activation, dropout=dropout)  # type: ignore[arg-type]
    network = MLP(config, seed=2)
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((40, 5)).astype(np.float32)
    masks = rng.integers(256, size=40) if dropout else None
    gradient = rng.standard_normal((40, 2)).astype(np.float32)
    gradient[np.arange(40), rng.integers(2, size=40)] = 0
    network.forward(inputs, masks)
    by_rows = network.backward(gradient, parameters=False, inputs=True)
    network.forward(inputs, masks)
    whole = network.backward(gradient, parameters=True, inputs=True)
    assert by_rows is not None
    assert whole is not None
    np.testing.assert_allclose(by_rows, whole, rtol=1e-4, atol=1e-6)


def test_activations_of_the_last_forward_are_not_computed_again() -> None:
    network = MLP(MLPConfig(input_size=5, hidden=(8, 6), heads=(Head(name="a", size=2),)), seed=1)
    with pytest.raises(UsageError, match="before any forward"):
        network.activations()
    inputs = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    network.forward(inputs)
    network.backward(np.ones((7, 2), dtype=np.float32))
    for found, wanted in zip(network.activations(), network.activations(inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)
