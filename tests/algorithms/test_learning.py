"""What is learned: near the optimum within 2,000 decisions, and nothing where there is nothing to learn."""

from __future__ import annotations

import numpy as np
import pytest

from learnloop.algorithms import BanditTrainer, ContextualBandit, build_config, draw
from learnloop.core.protocols import Sample
from learnloop.testing.problems import (
    ACTIONS,
    RoutingProblem,
    expected_reward,
    expected_rewards,
    optimum,
)

NUM_DECISIONS = 2000
NUM_SEEDS = 20


def learn(name: str, seed: int) -> tuple[float, float]:
    """Returns the shares of the optimum: acting in decisions 1,801-2,000, and of the greedy policy after them."""
    problem, rng = RoutingProblem(seed), np.random.default_rng(seed)
    bandit = ContextualBandit(build_config(name))
    earned, possible = [], []
    for _ in range(NUM_DECISIONS):
        context = problem.context()
        prepared = bandit.prepare(context)
        probabilities = bandit.probabilities(prepared, ACTIONS, None, rng)
        chosen = draw(probabilities, rng)
        bandit.learn(prepared, ACTIONS[chosen], float(problem.rewards(context)[chosen]))
        means = expected_rewards(context)
        earned.append(probabilities @ means)
        possible.append(means.max())
    held_out = RoutingProblem(1_000_000 + seed).contexts(500)
    greedy = expected_reward(bandit.policy(), held_out) / optimum(held_out)
    return float(np.sum(earned[-200:]) / np.sum(possible[-200:])), greedy


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squarecb", "linucb", "thompson"])
def test_95_percent_of_the_optimum_within_2000_decisions(name: str) -> None:
    """The mean of 20 seeds; the best arm without context earns 42 %."""
    results = np.array([learn(name, seed) for seed in range(NUM_SEEDS)])
    acting, greedy = results.mean(axis=0)
    assert acting >= 0.95, f"{name} acting: {acting:.4f}; per seed {results[:, 0].round(3).tolist()}"
    assert greedy >= 0.95, f"{name} greedy: {greedy:.4f}; per seed {results[:, 1].round(3).tolist()}"


def samples(seed: int, *, shuffled: bool) -> list[Sample]:
    """Returns 600 uniformly logged decisions; with ``shuffled``, the rewards are dealt anew among them."""
    problem, rng = RoutingProblem(seed), np.random.default_rng(seed)
    contexts = problem.contexts(600)
    chosen = rng.integers(5, size=600)
    rewards = np.array([problem.rewards(context)[arm] for context, arm in zip(contexts, chosen, strict=True)])
    if shuffled:
        rng.shuffle(rewards)
    return [
        Sample(f"u{index}", context, ACTIONS, None, ACTIONS[arm], 0.2, float(reward))
        for index, (context, arm, reward) in enumerate(zip(contexts, chosen, rewards, strict=True))
    ]


def test_shuffled_rewards_teach_nothing() -> None:
    """Twelve policies learned from shuffled rewards earn what random earns, up to chance; real rewards teach."""
    held_out = RoutingProblem(999).contexts(300)
    random = float(np.mean([expected_rewards(context).mean() for context in held_out]))
    trainer = BanditTrainer()
    earned = np.array(
        [expected_reward(trainer.train(samples(seed, shuffled=True), seed), held_out) for seed in range(12)]
    )
    assert abs(earned.mean() - random) < 4 * earned.std(ddof=1) / np.sqrt(12), earned
    real = expected_reward(trainer.train(samples(1, shuffled=False), 1), held_out)
    assert real > random + 6 * earned.std(ddof=1)
    assert real > 0.8 * optimum(held_out)
