"""Controls must not learn: nothing of a step's own is left, also in small batches."""

from __future__ import annotations

import numpy as np
import pytest

from learnloop.algorithms import build_algorithm, configure
from learnloop.algorithms.base.dealing import deal, deal_centred
from learnloop.core.errors import UsageError
from learnloop.envs import make_stream

F = np.float32


@pytest.mark.parametrize("size", [2, 3, 20, 257])
def test_each_goes_to_another_row(size: int) -> None:
    rng = np.random.default_rng(0)
    values = np.arange(size)
    places = np.zeros((size, size))
    for _ in range(400):
        dealt = deal(values, rng)
        assert sorted(dealt) == list(values)
        assert not (dealt == values).any()
        places[values, dealt] += 1
    if size <= 20:  # each other one is as likely
        others = places[~np.eye(size, dtype=bool)]
        expected = 400 / (size - 1)
        assert abs(others - expected).max() < 6 * np.sqrt(expected) + 1e-9


def test_one_alone_cannot_be_dealt() -> None:
    """A control with batches of one step would learn the truth."""
    with pytest.raises(UsageError, match="batch_size of at least 2"):
        deal(np.array([3.0]), np.random.default_rng(0))


def test_rows() -> None:
    rng = np.random.default_rng(0)
    rows = np.arange(8).reshape(4, 2)
    assert sorted(map(tuple, deal(rows, rng))) == sorted(map(tuple, rows))


def test_centred_advantages_give_no_gradient_in_expectation() -> None:
    """The sum over rows of a score times what was dealt: its mean over orders is 0, its own share included."""
    rng = np.random.default_rng(0)
    advantages = (rng.random(10) * 3 + 5).astype(F)
    scores = rng.standard_normal(10) + advantages  # goes with the advantage, as what can be learned does
    found = [float(scores @ deal_centred(advantages, rng)) for _ in range(20_000)]
    assert abs(np.mean(found)) < 5 * np.std(found) / np.sqrt(len(found))
    permuted = [float(scores @ rng.permutation(advantages)) for _ in range(20_000)]
    assert np.mean(permuted) > 50 * np.std(permuted) / np.sqrt(len(permuted))  # so was it before, without centring


@pytest.mark.slow
def test_twins_of_a2c_stay_at_chance() -> None:
    """20 steps an update, and advantages that are not normalised: with a permutation they got .2544 +- .0005."""
    earned = []
    for seed in range(24):
        stream = make_stream("learnloop/Identity-v0", 4)
        config = configure("a2c", {"learning_rate": 0.02, "gamma": 0.0})
        algorithm = build_algorithm(config, stream.spaces, num_envs=4, seed=seed)
        algorithm.shuffled = True
        observations, masks = stream.reset(seed)
        while algorithm.num_steps < 2_000:
            step = stream.step(algorithm.choose(observations, masks))
            algorithm.record(step)
            observations, masks = step.observations, step.masks
            algorithm.learn()
        policy = algorithm.policy()
        earned.append(np.mean([policy.probabilities(shown)[shown] for shown in range(4)]))
        stream.close()
    error = np.std(earned, ddof=1) / np.sqrt(len(earned))
    assert abs(np.mean(earned) - 0.25) < 3.5 * error, (np.mean(earned), error)
