"""Parts of a state: what goes in comes out, and nothing else is taken."""

from __future__ import annotations

import numpy as np
import pytest

from learnloop.algorithms.base.states import part_of, prefixed, put_parameters
from learnloop.nn.mlp.network import MLP, Head, MLPConfig


def test_parts_come_out_as_they_went_in() -> None:
    given = {"x": np.ones(1), "y/z": np.zeros(2)}
    tensors = prefixed("one.", {"x": np.full(1, 7.0)}) | prefixed("two.", given)
    found = part_of(tensors, "two.")
    assert found.keys() == given.keys()
    assert found["x"][0] == 1
    given["x"][0] = 5
    assert found["x"][0] == 1  # a copy


@pytest.mark.parametrize("wrong", [np.zeros(3, dtype=np.float32), np.full(10, np.nan, dtype=np.float32)])
def test_parameters_that_do_not_fit_change_nothing(wrong: np.ndarray) -> None:
    network = MLP(MLPConfig(input_size=4, hidden=(), heads=(Head(name="a", size=2),)), seed=1)
    before = network.parameters.copy()
    with pytest.raises(ValueError, match="it has shape"):
        put_parameters(network, wrong, "it")
    np.testing.assert_array_equal(network.parameters, before)
    put_parameters(network, np.ones(10, dtype=np.float32), "it")
    assert (network.parameters == 1).all()
