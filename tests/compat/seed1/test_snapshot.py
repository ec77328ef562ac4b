"""A network between two updates."""

from __future__ import annotations

import numpy as np
import pytest

from learnloop.algorithms.on_policy.segment_ppo import dropout_of
from learnloop.compat.seed1.snapshot import MAX_BATCH, Snapshot
from learnloop.nn.mlp.network import MLP, Head, MLPConfig

SIZE = 12
CONFIG = MLPConfig(
    input_size=SIZE, hidden=(16, 8), heads=(Head(name="policy", size=3), Head(name="value", size=1)), shared=False,
    layer_norm=True, dropout=0.2,
)  # fmt: skip


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 8, 9, MAX_BATCH, MAX_BATCH + 1, 3 * MAX_BATCH])
def test_each_row_is_as_in_one_pass_through_its_own_mask(number: int) -> None:
    network = MLP(CONFIG, seed=1)
    rows = np.random.default_rng(number).normal(size=(number, SIZE)).astype(np.float32)
    found = Snapshot(network, 7).outputs(list(rows))
    wanted = network.forward(rows, dropout_of(rows, 7, network.num_masks))
    assert found.shape == (number, 4)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_outputs_stay_when_others_are_asked_for() -> None:
    snapshot = Snapshot(MLP(CONFIG, seed=1), 0)
    first, second = np.ones((2, SIZE), dtype=np.float32) * np.array([[1], [-3]], dtype=np.float32)
    for number in (1, 4):
        kept = snapshot.outputs([first] * number)
        before = kept.copy()
        snapshot.outputs([second] * number)
        np.testing.assert_array_equal(kept, before)
