"""The batches that PPO and A2C learn from: of envs that are cut, that end, that have masks, that are scaled."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from learnloop.algorithms.building import build_algorithm, configure
from learnloop.algorithms.on_policy.a2c import A2C, A2CConfig
from learnloop.algorithms.on_policy.learner import OnPolicyAlgorithm
from learnloop.algorithms.on_policy.rollout import Batch, Segment, joined_segments
from learnloop.core.spaces import Discrete, MultiDiscrete
from tests.algorithms.steps import drive, env_step, spaces

F = np.float32
GAMMA = 0.9


def make(**options: Any) -> tuple[A2C, list[Batch]]:
    """A2C that learns nothing of its batches, but keeps them; a return is one reward and the value after it."""
    config = A2CConfig(**{"n_steps": 2, "gamma": GAMMA, "gae_lambda": 0.0, "net_arch": (16,), **options})
    algorithm, batches = A2C(config, spaces(3), num_envs=1), []
    algorithm._learn_batch = lambda batch: batches.append(copy.deepcopy(batch))  # type: ignore[method-assign]
    return algorithm, batches


def rows(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 1, 3)).astype(F)


def value(algorithm: A2C, observation: np.ndarray) -> float:
    return float(algorithm.network.predict(observation)[0, -1])


def test_a_cut_episode_is_worth_its_own_last_observation() -> None:
    """F0.11: not nothing, and not the observation that its env goes on with."""
    algorithm, batches = make()
    first, last, fresh, end = rows(0, 4)
    for observation, step in [
        (first, env_step(fresh, [2.0], final_observations=last, truncated=[True])),
        (fresh, env_step(end, [3.0])),
    ]:
        algorithm.choose(observation)
        algorithm.record(step)
    algorithm.learn()
    wanted = [2 + GAMMA * value(algorithm, last), 3 + GAMMA * value(algorithm, end)]
    np.testing.assert_allclose(batches[0].returns, wanted, rtol=1e-5)


def test_a_terminated_episode_is_worth_nothing_where_one_was_cut_before() -> None:
    algorithm, batches = make()
    first, last, fresh = rows(1, 3)
    for end in ("truncated", "terminated"):
        for _ in range(2):
            algorithm.choose(first)
            algorithm.record(env_step(fresh, [2.0], final_observations=last, **{end: [True]}))
        algorithm.learn()
    np.testing.assert_allclose(batches[0].returns, 2 + GAMMA * value(algorithm, last), rtol=1e-5)
    np.testing.assert_allclose(batches[1].returns, 2.0, rtol=1e-5)


@pytest.mark.parametrize("end", ["truncated", "none"])
def test_the_last_observation_is_scaled_as_the_others(end: str) -> None:
    algorithm, batches = make(normalize_observations=True)
    first, second, third = 5 + 3 * rows(2, 3)
    cut = {"truncated": [True]} if end == "truncated" else {}
    algorithm.choose(first)
    algorithm.record(env_step(second, [1.0]))
    algorithm.choose(second)
    algorithm.record(env_step(third, [1.0], final_observations=third, **cut))
    algorithm.learn()
    seen = np.concatenate([first, second]).astype(np.float64)
    scaled = np.clip((third - seen.mean(axis=0)) / np.sqrt(seen.var(axis=0) + 1e-8), -10, 10).astype(F)
    assert batches[0].returns[1] == pytest.approx(1 + GAMMA * value(algorithm, scaled), rel=1e-4)


def test_an_action_is_learned_with_the_mask_that_it_was_chosen_with() -> None:
    algorithm, batches = make()
    observation = rows(5, 1)[0]
    masks = [np.array([[True, False]]), np.array([[True, True]])]
    for mask in masks:
        algorithm.choose(observation, mask)
        algorithm.record(env_step(observation, [1.0]))
    algorithm.learn()
    for _ in range(2):
        algorithm.choose(observation)
        algorithm.record(env_step(observation, [1.0]))
    algorithm.learn()
    np.testing.assert_array_equal(batches[0].masks, np.concatenate(masks))
    assert batches[0].log_probs[0] == 0  # there was nothing else to choose
    assert batches[1].masks is None


def test_what_is_not_allowed_has_no_gradient() -> None:
    """F0.11: a mask holds in the loss as it did when the action was chosen."""
    algorithm = A2C(A2CConfig(n_steps=50, net_arch=(16,)), spaces(3, MultiDiscrete(nvec=(3, 2))), num_envs=1)
    observation, mask = rows(6, 1)[0], np.array([[True, False, True, False, True]])
    for _ in range(50):
        algorithm.choose(observation, mask)
        algorithm.record(env_step(observation, [1.0]))
    batch = algorithm.rollout_batch()
    _, evaluation = algorithm._evaluate(batch)
    np.testing.assert_allclose(evaluation.log_probs, batch.log_probs, atol=1e-6)
    gradient = evaluation.gradient(np.ones(50, dtype=F), 0.1)
    assert (gradient[:, ~mask[0]] == 0).all()
    assert (gradient[:, [0, 2]] != 0).all()


def test_a_gradient_forgets_the_one_before() -> None:
    """Nothing is to be zeroed before a step, since nothing is added up."""
    config = A2CConfig(n_steps=4, net_arch=(16,), max_grad_norm=None)
    algorithm = A2C(config, spaces(3), num_envs=2)
    drive(algorithm, 40)
    observations = rows(3, 8)[:, 0]
    gradient = np.random.default_rng(4).standard_normal((8, 3)).astype(F)
    algorithm.network.forward(observations)
    algorithm._step(gradient, 0.0, 0.0)
    first = algorithm.network.gradients.copy()
    algorithm.network.forward(observations)
    algorithm._step(gradient, 0.0, 0.0)
    assert np.abs(first).max() > 0
    np.testing.assert_allclose(algorithm.network.gradients, first, rtol=1e-5, atol=1e-7)
    twin = algorithm.network.copy()
    twin.forward(observations)
    twin.backward(gradient)
    np.testing.assert_allclose(twin.gradients, first, rtol=1e-5, atol=1e-7)


def far_from_uniform(algorithm: OnPolicyAlgorithm) -> None:
    """Moves the parameters to where probabilities differ: a fresh policy is uniform, and its entropy has no slope."""
    algorithm.network.parameters[:] += np.random.default_rng(7).normal(0, 0.5, algorithm.network.parameters.size)


def batch_of(algorithm: OnPolicyAlgorithm, count: int = 64) -> Batch:
    """What the policy does of itself, with random advantages and returns."""
    rng = np.random.default_rng(8)
    observations = rng.standard_normal((count, 3)).astype(F)
    outputs = algorithm.network.predict(observations).copy()
    actions, log_probs = algorithm.distribution.sample(outputs[:, :-1], rng)
    advantages, returns = rng.standard_normal((2, count)).astype(F)
    return Batch(observations, actions, log_probs, outputs[:, -1], advantages, returns, None, None)


@pytest.mark.parametrize("name", ["a2c", "ppo"])
def test_entropy_is_paid_for(name: str) -> None:
    """Where no action is better than another, the policy becomes more random."""
    config = configure(name, {"n_steps": 64, "net_arch": (16,), "ent_coef": 0.1, "learning_rate": 1e-3, "vf_coef": 0})
    algorithm = build_algorithm(config, spaces(3, Discrete(n=4)), num_envs=1)
    assert isinstance(algorithm, OnPolicyAlgorithm)
    far_from_uniform(algorithm)
    batch = batch_of(algorithm)._replace(advantages=np.zeros(64, dtype=F))
    entropies = []
    for _ in range(3):
        entropies.append(float(algorithm._evaluate(batch)[1].entropies.mean()))
        algorithm._update(batch)
    assert entropies[0] < 0.9 * np.log(4)
    assert entropies[0] < entropies[1] < entropies[2]


@pytest.mark.parametrize("name", ["a2c", "ppo"])
def test_a_weight_is_that_of_an_advantage(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2.2: an action of another policy counts by its importance weight, and its value does in full."""
    options = {"n_steps": 64, "net_arch": (16,), "normalize_advantage": False}
    algorithm = build_algorithm(configure(name, options), spaces(3, Discrete(n=4)), num_envs=1)
    assert isinstance(algorithm, OnPolicyAlgorithm)
    far_from_uniform(algorithm)
    batch = batch_of(algorithm)
    weights = np.linspace(0, 1, 64, dtype=F)
    seen: list[np.ndarray] = []
    monkeypatch.setattr(algorithm, "_step", lambda gradient, *_: seen.append(gradient.copy()))
    algorithm._update(batch._replace(weights=weights))
    weighted, seen[:] = seen[0], []
    algorithm._update(batch._replace(advantages=batch.advantages * weights))
    np.testing.assert_allclose(weighted, seen[0], rtol=1e-5, atol=1e-8)
    seen.clear()
    algorithm._update(batch)
    assert np.abs(weighted - seen[0]).max() > 1e-3


def test_history_is_weighed_over_what_was_allowed() -> None:
    """S2.2: what this policy would have done in the place of the other one, it would have done under the same mask."""
    algorithm = A2C(A2CConfig(net_arch=(16,), gamma=0.0), spaces(3, Discrete(n=4)), num_envs=1)
    far_from_uniform(algorithm)
    rng = np.random.default_rng(9)
    observations = rng.standard_normal((30, 3)).astype(F)
    masks = np.tile([True, False, True, False], (30, 1))
    actions = rng.choice([0, 2], 30)
    log_probs = np.full(30, np.log(0.5), dtype=F)
    rewards = np.zeros(30, dtype=F)
    segment = Segment(observations, actions, masks, log_probs, rewards, None)
    batch = algorithm.historical_batch(joined_segments([segment], algorithm.spaces.action))
    policy = algorithm.policy()
    chances = [policy.probabilities(row, masks[0])[action] for row, action in zip(observations, actions, strict=True)]
    np.testing.assert_allclose(batch.weights, np.minimum(np.array(chances) / 0.5, 1), rtol=1e-4)
    np.testing.assert_allclose(batch.log_probs, np.log(chances), rtol=1e-4)
    np.testing.assert_array_equal(batch.masks, masks)
