"""The probes do what their names say, each step by hand; the identity environment is Stable-Baselines3's."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check

from learnloop.core.errors import UsageError
from learnloop.envs import check_env, make_stream, register_envs
from learnloop.envs.probes import FLIP_STEPS, REGISTERED

register_envs()
IDS = [f"learnloop/{name}" for name in REGISTERED]


def played(name: str, *actions: Any, seed: int = 0) -> list[Any]:
    """Returns what an episode shows, then its rewards, then how it ended."""
    env = gymnasium.make(f"learnloop/{name}-v0")
    observation, _ = env.reset(seed=seed)
    shown, rewards = [float(observation[0])], []
    terminated = truncated = False
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        shown.append(float(observation[0]))
        rewards.append(round(float(reward), 6))
    return [shown[:-1], rewards, terminated, truncated]


@pytest.mark.parametrize("env_id", IDS)
def test_they_keep_the_rules(env_id: str) -> None:
    assert check_env(env_id) == []
    gymnasium_check(gymnasium.make(env_id).unwrapped, skip_render_check=True)


def test_constant_reward() -> None:
    assert played("ConstantReward", 0) == [[0], [1], True, False]


def test_delayed_reward() -> None:
    assert played("DelayedReward", 0, 0) == [[0, 1], [0, 1], True, False]


def test_action_and_negative_reward() -> None:
    assert [played("ActionReward", action) for action in (0, 1)] == [[[0], [r], True, False] for r in (-1, 1)]
    assert [played("NegativeReward", action) for action in (0, 1)] == [[[0], [r], True, False] for r in (-1, -0.2)]


def test_endless_reward_is_cut_after_four_steps() -> None:
    """F0.11: it never terminates."""
    assert played("EndlessReward", 0, 0, 0) == [[0, 0, 0], [1, 1, 1], False, False]
    assert played("EndlessReward", 0, 0, 0, 0) == [[0, 0, 0, 0], [1, 1, 1, 1], False, True]


@pytest.mark.parametrize("second", [0, 1])
def test_delayed_action_pays_for_the_first_action(second: int) -> None:
    assert played("DelayedAction", 0, second) == [[0, 1], [0, -1], True, False]
    assert played("DelayedAction", 1, second) == [[0, 1], [0, 1], True, False]
    assert played("RevealedAction", 0, second) == [[0, -1], [0, -1], True, False]
    assert played("RevealedAction", 1, second) == [[0, 1], [0, 1], True, False]


def test_coins_are_fair_and_pay_as_shown() -> None:
    signs = []
    for seed in range(200):
        shown, rewards, *ends = played("ObservedReward", 0, seed=seed)
        signs.append(shown[0])
        assert (rewards, ends) == (shown, [True, False])
        right = int(shown[0] > 0)
        assert played("ContextualReward", right, seed=seed)[1] == [1]
        assert played("ContextualReward", 1 - right, seed=seed)[1] == [-1]
    assert set(signs) == {-1.0, 1.0}
    assert 70 < signs.count(1.0) < 130


def test_independent_reward_is_independent() -> None:
    """P9: neither what is shown nor what is done says anything about the reward."""
    env = gymnasium.make("learnloop/IndependentReward-v0")
    rng = np.random.default_rng(0)
    rows = []
    env.reset(seed=0)
    for _ in range(4_000):
        shown, action = float(env.reset()[0][0]), int(rng.integers(2))
        reward, terminated = env.step(action)[1:3]
        assert terminated
        rows.append((shown, action, float(reward)))
    table = np.array(rows)
    assert set(table[:, 2]) == {-1.0, 1.0}
    assert np.abs(np.corrcoef(table.T) - np.eye(3)).max() < 0.06
    assert abs(table[:, 2].mean()) < 0.06


def test_noise_follows_the_signal() -> None:
    """P10: 30 numbers that mean nothing, new ones at each look."""
    env = gymnasium.make("learnloop/NoisyObservation-v0")
    shown = np.array([env.reset(seed=seed)[0] for seed in range(400)])
    assert shown.shape == (400, 31)
    assert set(shown[:, 0]) == {-1.0, 1.0}
    np.testing.assert_allclose(shown[:, 1:].std(axis=0), np.sqrt(1 / 3), rtol=0.15)
    for seed in range(20):
        right = int(env.reset(seed=seed)[0][0] > 0)
        assert env.step(right)[1] == 1
        env.reset(seed=seed)
        assert env.step(1 - right)[1] == -1


def test_masked_reward_tempts_whoever_does_not_keep_to_the_mask() -> None:
    """P11: the best action is illegal in half of the states, pays all the same, and is told."""
    env = gymnasium.make("learnloop/MaskedReward-v0")
    signs = []
    for seed in range(200):
        observation, info = env.reset(seed=seed)
        is_free = bool(observation[0] > 0)
        signs.append(is_free)
        assert info["action_mask"].tolist() == [True, True, is_free]
        for action, reward in enumerate((0.0, 0.5, 1.0)):
            env.reset(seed=seed)
            _, found, terminated, truncated, after = env.step(action)
            assert (found, terminated, truncated) == (reward, True, False)
            assert after["illegal"] is (action == 2 and not is_free)
    assert 70 < sum(signs) < 130
    stream = make_stream("learnloop/MaskedReward-v0", 3)
    assert stream.reset(0)[1] is not None


def test_the_arms_change_places_once_in_a_life() -> None:
    """P12: episodes last one step, a life lasts until the next reset to a seed."""
    env = gymnasium.make("learnloop/ChangingReward-v0", flip_steps=3)
    for _ in range(2):
        rewards = []
        env.reset(seed=1)
        for _ in range(6):
            rewards.append(env.step(0)[1])
            env.reset()
        assert rewards == [1.0, 1.0, 1.0, -1.0, -1.0, -1.0]
    assert FLIP_STEPS == 4_000
    with pytest.raises(UsageError, match="flip_steps of ChangingReward is 0; a whole number from 1"):
        gymnasium.make("learnloop/ChangingReward-v0", flip_steps=0)


def test_only_the_first_agent_earns_the_team_its_reward() -> None:
    """P13."""
    env = gymnasium.make("learnloop/TeamReward-v0")
    for worker in (0, 1):
        for dummy in (0, 1):
            env.reset(seed=0)
            assert env.step(np.array([worker, dummy]))[1] == float(worker)


def test_continuous_actions_pay_less_by_their_squared_distance() -> None:
    def action(value: float) -> Any:
        return np.array([value], dtype=np.float32)

    assert played("ActionRewardContinuous", action(0.5))[1] == [1.0]
    assert played("ActionRewardContinuous", action(-0.5))[1] == [0.0]
    assert played("NegativeRewardContinuous", action(0.0))[1] == [-0.45]
    shown, rewards, *_ = played("ContextualRewardContinuous", action(0.5), seed=3)
    assert rewards == [1.0 if shown[0] > 0 else 0.0]
    assert played("DelayedActionContinuous", action(0.0), action(1.0)) == [[0, 1], [0, 0.75], True, False]
    assert played("RevealedActionContinuous", action(-0.25), action(1.0))[:2] == [[0, -0.25], [0, 0.4375]]
    assert played("ConstantRewardContinuous", action(0.3))[1] == [1.0]


@pytest.mark.parametrize("kind", ["", "MultiDiscrete", "Box"])
def test_identity_pays_100_for_repeating_what_is_shown(kind: str) -> None:
    env = gymnasium.make(f"learnloop/Identity{kind}-v0")
    for shift, wanted in ((0, 100.0), (1, 0.0)):
        observation, _ = env.reset(seed=1)
        total, num_steps, shown = 0.0, 0, []
        terminated = truncated = False
        while not (terminated or truncated):
            shown.append(np.array(observation))
            action = observation + 0.06 * shift if kind == "Box" else (observation + shift) % 4
            observation, reward, terminated, truncated, _ = env.step(action)
            total, num_steps = total + float(reward), num_steps + 1
        assert (total, num_steps, terminated, truncated) == (wanted, 100, False, True)
        assert len({tuple(each.reshape(-1)) for each in shown}) >= 4
    first = env.reset(seed=1)[0]
    np.testing.assert_array_equal(first, env.reset(seed=1)[0])


def test_a_uniform_policy_earns_a_quarter_on_identity() -> None:
    stream = make_stream("identity", 20)
    stream.reset(0)
    rng = np.random.default_rng(0)
    for _ in range(100):
        stream.step(rng.integers(4, size=20))
    assert np.mean([each.total_reward for each in stream.episodes()]) == pytest.approx(25, abs=3)
