"""The published problem is what its docstring says, by Monte Carlo."""

from __future__ import annotations

import math

import numpy as np
import pytest

from learnloop.testing.problems import ACTIONS, KINDS, NOISE, RoutingProblem, expected_rewards, optimum


def test_optimum_and_best_arm_without_context_are_as_published() -> None:
    contexts = RoutingProblem(1).contexts(20_000)
    means = np.array([expected_rewards(context) for context in contexts])
    best, fixed = means.max(axis=1).mean(), means.mean(axis=0).max()
    assert best == pytest.approx(0.818, abs=0.003)
    assert fixed == pytest.approx(0.346, abs=0.008)
    assert fixed / best < 0.6
    assert optimum(contexts) == pytest.approx(best)
    assert set(np.bincount(means.argmax(axis=1), minlength=5) > 2000) == {True}  # each arm is best somewhere


def test_expected_rewards_are_the_formula() -> None:
    for context in RoutingProblem(2).contexts(200):
        target = KINDS.index(str(context["kind"])) + 2.5 * float(context["load"])
        for arm, found in enumerate(expected_rewards(context)):
            distance = min(abs(arm - target + 5 * turn) for turn in (-2, -1, 0, 1, 2))
            sign = 1 if arm % 2 == 0 else -1
            size = math.tanh((math.log(float(context["size"])) - 8) / 2)
            assert found == pytest.approx(0.1 + 0.8 * math.exp(-((distance / 0.6) ** 2) / 2) + 0.05 * sign * size)


def test_rewards_are_noisy_around_their_means_and_come_again() -> None:
    problem = RoutingProblem(3)
    context = problem.context()
    rewards = np.array([problem.rewards(context) for _ in range(20_000)])
    np.testing.assert_allclose(rewards.mean(axis=0), expected_rewards(context), atol=5 * NOISE / math.sqrt(20_000))
    np.testing.assert_allclose(rewards.std(axis=0), NOISE, rtol=0.03)
    assert rewards.shape == (20_000, len(ACTIONS))
    assert RoutingProblem(4).contexts(5) == RoutingProblem(4).contexts(5)
