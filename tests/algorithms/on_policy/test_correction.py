"""The correction of steps that another policy chose, against its equations written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.algorithms.on_policy.advantages import gae
from learnloop.algorithms.on_policy.correction import JudgedSteps, corrected
from learnloop.algorithms.on_policy.rollout import Segment, Steps, joined_segments, last_rows
from learnloop.core.spaces import Discrete

F = np.float32
GAMMA, LAMBDA = 0.9, 0.7


def steps_of(seed: int, lengths: list[int], cut: list[bool]) -> tuple[Steps, JudgedSteps, np.ndarray]:
    """Returns steps, what the policy that learns says of them, and its values of what comes after cut segments."""
    rng = np.random.default_rng(seed)
    count, ended = sum(lengths), last_rows(lengths)
    steps = Steps(
        observations=rng.standard_normal((count, 2)).astype(F),
        actions=rng.integers(3, size=count),
        log_probs=-rng.random(count).astype(F),
        rewards=rng.standard_normal(count).astype(F),
        ended=ended,
        cut=np.flatnonzero(ended)[cut],
        next_observations=rng.standard_normal((sum(cut), 2)).astype(F),
        values=rng.standard_normal(count).astype(F),
    )
    judged = JudgedSteps(-rng.random(count).astype(F), rng.standard_normal(count).astype(F))
    return steps, judged, rng.standard_normal(sum(cut)).astype(F)


@given(st.integers(0, 10_000), st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_the_equations(seed: int, segments: list[tuple[int, bool]]) -> None:
    steps, judged, bootstraps = steps_of(seed, [length for length, _ in segments], [is_cut for _, is_cut in segments])
    is_own = np.random.default_rng(seed + 1).random(steps.size) < 0.5
    batch = corrected(steps, is_own, judged, bootstraps, gamma=GAMMA, gae_lambda=LAMBDA)
    assert steps.values is not None
    values = np.where(is_own, steps.values, judged.values).astype(float)
    ratios = np.where(is_own, 1.0, np.exp(judged.log_probs.astype(float) - steps.log_probs))
    rho = np.minimum(1, ratios)
    worth = dict(zip(steps.cut.tolist(), bootstraps.tolist(), strict=True))
    target = following = 0.0
    for row in reversed(range(steps.size)):
        if steps.ended[row]:
            target = following = worth.get(row, 0.0)
        ahead = (1 - LAMBDA) * following + LAMBDA * target
        assert batch.advantages[row] == pytest.approx(steps.rewards[row] + GAMMA * ahead - values[row], abs=1e-4)
        error = steps.rewards[row] + GAMMA * following - values[row]
        target = values[row] + rho[row] * (error + GAMMA * LAMBDA * (target - following))
        assert batch.returns[row] == pytest.approx(target, abs=1e-4)
        following = values[row]
    np.testing.assert_allclose(batch.values, values, rtol=1e-6)
    np.testing.assert_array_equal(batch.log_probs, np.where(is_own, steps.log_probs, judged.log_probs))
    np.testing.assert_allclose(np.ones(steps.size) if batch.weights is None else batch.weights, rho, rtol=1e-5)


def test_own_steps_are_those_of_ppo_bit_for_bit() -> None:
    steps, judged, bootstraps = steps_of(3, [4, 2, 3], [True, False, True])
    everything = np.ones(steps.size, dtype=np.bool_)
    batch = corrected(steps, everything, None, bootstraps, gamma=GAMMA, gae_lambda=LAMBDA)
    again = corrected(steps, everything, judged, bootstraps, gamma=GAMMA, gae_lambda=LAMBDA)
    assert steps.values is not None
    ahead = np.append(steps.values[1:], F(0))
    ahead[steps.ended] = 0
    ahead[steps.cut] = bootstraps
    lane = (steps.rewards[:, None], steps.values[:, None], ahead[:, None], steps.ended[:, None])
    wanted = gae(*lane, gamma=GAMMA, gae_lambda=LAMBDA)[:, 0]
    for found in (batch, again):
        assert found.weights is None
        np.testing.assert_array_equal(found.advantages, wanted)
        np.testing.assert_array_equal(found.returns, wanted + steps.values)
        np.testing.assert_array_equal(found.log_probs, steps.log_probs)


def test_values_that_nobody_knows_are_judged() -> None:
    steps, judged, bootstraps = steps_of(4, [3], [True])
    is_own = np.array([True, False, True])
    unknown = steps._replace(values=None)
    batch = corrected(unknown, is_own, judged, bootstraps, gamma=GAMMA, gae_lambda=LAMBDA)
    np.testing.assert_array_equal(batch.values, judged.values)
    with pytest.raises(TypeError, match="judge them"):
        corrected(unknown, is_own, None, bootstraps, gamma=GAMMA, gae_lambda=LAMBDA)


def test_segments_are_laid_one_after_the_other() -> None:
    first = Segment(
        observations=np.zeros((2, 2), dtype=F),
        actions=np.array([0, 1]),
        masks=None,
        log_probs=np.full(2, -1.0, dtype=F),
        rewards=np.array([1.0, 2.0], dtype=F),
        last_observation=None,
    )
    masks = np.array([[True, False, True]])
    second = Segment(
        np.ones((1, 2), dtype=F), np.array([2]), masks, *(np.zeros(1, dtype=F),) * 2, np.full(2, 7, dtype=F)
    )
    steps = joined_segments([first, second], Discrete(n=3))
    assert (steps.size, steps.ended.tolist(), steps.cut.tolist()) == (3, [False, True, True], [2])
    assert steps.next_observations.tolist() == [[7, 7]]
    assert steps.masks is not None
    assert steps.masks.tolist() == [[True] * 3, [True] * 3, [True, False, True]]
    assert joined_segments([first], Discrete(n=3)).masks is None
