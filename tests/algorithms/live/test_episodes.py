"""Live agents: act and observe by the name of the episode, any number at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learnloop.algorithms.live.episodes import LiveSegments, LiveStep
from learnloop.algorithms.on_policy.a2c import A2C, A2CConfig
from learnloop.algorithms.on_policy.ppo import PPO, PPOConfig
from learnloop.core.errors import ActionError, ContextError, RewardError, UsageError
from learnloop.core.spaces import Box, Discrete
from tests.algorithms.steps import spaces

F = np.float32


def make(n_steps: int = 64, **options: Any) -> PPO:
    config = PPOConfig(n_steps=n_steps, batch_size=min(32, n_steps), n_epochs=2, net_arch=(16,), **options)
    return PPO(config, spaces(2, Discrete(n=2, start=5)), seed=3)


def test_episodes_of_concurrent_clients_never_mix() -> None:
    """F1.3: the seed's buffer interleaved its clients and bootstrapped from each other's rows."""
    algorithm = make(n_steps=12)
    for step in range(4):
        for client in range(3):
            algorithm.act(np.array([client, step]), episode=f"client-{client}")
        for client in (2, 0, 1):  # answers come in another order
            algorithm.observe(10.0 * client, episode=f"client-{client}", terminated=step == 3)
    batches = [algorithm.live_batch([steps]) for steps in algorithm.segments]
    assert len(batches) == 3
    gamma, lam = 0.99, 0.95
    for batch in batches:
        clients = batch.observations[:, 0]
        assert (clients == clients[0]).all()
        assert batch.observations[:, 1].tolist() == [0, 1, 2, 3]
        reward = 10.0 * clients[0]
        expected, carry = [], 0.0
        for at in reversed(range(4)):
            ahead = 0.0 if at == 3 else float(batch.values[at + 1])
            carry = reward + gamma * ahead - float(batch.values[at]) + gamma * lam * (0.0 if at == 3 else carry)
            expected.append(carry)
        np.testing.assert_allclose(batch.advantages, expected[::-1], rtol=1e-4, atol=1e-4)
    assert algorithm.learn()
    assert not algorithm.learn()
    assert algorithm.num_steps == 12


def test_a_live_agent_learns() -> None:
    """Ask, tell, learn, without an environment: the second number says which action pays."""
    algorithm = make(n_steps=64, learning_rate=3e-3)
    rng = np.random.default_rng(0)
    for number in range(1500):
        observation = rng.choice([-1.0, 1.0], size=2)
        action = algorithm.act(observation, episode=f"request-{number}")
        assert action in (5, 6)
        algorithm.observe(float((action == 6) == (observation[1] > 0)), episode=f"request-{number}", terminated=True)
        algorithm.learn()
    policy = algorithm.policy()
    assert [policy.act([0.5, sign]) for sign in (-1.0, 1.0)] == [5, 6]
    assert policy.probabilities([0.5, 1.0])[1] > 0.9


def test_a_name_can_be_used_again_before_the_update() -> None:
    algorithm = make(n_steps=100)
    for _ in range(3):
        algorithm.act([0.0, 0.0], episode="same")
        algorithm.observe(1.0, episode="same", terminated=True)
    assert len(algorithm.segments) == 3
    assert algorithm.num_steps == 3


def test_a_truncated_episode_is_worth_its_last_observation() -> None:
    """F0.11, F1.3: a time limit is not an end."""
    algorithm = make()
    algorithm.act([0.0, 0.0])
    algorithm.observe(1.0, truncated=True, next_observation=[2.0, 3.0])
    batch = algorithm.live_batch(algorithm.segments)
    worth = float(algorithm.value(np.array([[2.0, 3.0]], dtype=F))[0])
    assert batch.returns[0] == pytest.approx(1 + 0.99 * worth, rel=1e-5)


def test_a_discarded_episode_is_not_learned_from() -> None:
    algorithm = make()
    algorithm.act([0.0, 0.0], episode="a")
    algorithm.observe(1.0, episode="a")
    algorithm.act([0.0, 1.0], episode="a")
    algorithm.discard("a")
    assert algorithm.segments.num_steps == 0
    algorithm.act([0.0, 0.0], episode="a")  # may begin again


@pytest.mark.parametrize("reward", [None, float("nan"), float("inf"), "1", True, 10**400, 1j, np.complex64(1)])
def test_a_reward_that_is_none_is_refused_and_changes_nothing(reward: Any) -> None:
    """Missing is not zero."""
    algorithm = make()
    algorithm.act([0.0, 0.0], episode="a")
    with pytest.raises(RewardError, match="'a'"):
        algorithm.observe(reward, episode="a")
    algorithm.observe(1.0, episode="a", terminated=True)  # still waits for its reward
    assert algorithm.num_steps == 1


def test_wrong_calls_name_the_episode() -> None:
    algorithm = make()
    with pytest.raises(UsageError, match="no action of episode 'x' waits"):
        algorithm.observe(1.0, episode="x")
    algorithm.act([0.0, 0.0], episode="x")
    with pytest.raises(UsageError, match="'x' waits for the reward"):
        algorithm.act([0.0, 0.0], episode="x")
    with pytest.raises(UsageError, match="truncated without next_observation"):
        algorithm.observe(1.0, episode="x", truncated=True)
    with pytest.raises(ContextError):
        algorithm.act([0.0, 0.0, 0.0], episode="y")
    with pytest.raises(ContextError):
        algorithm.act([0.0, float("nan")], episode="y")
    for mask in ([True], [False, False], [0.5, 1.0]):
        with pytest.raises(ActionError):
            algorithm.act([0.0, 0.0], episode="y", mask=mask)
    assert algorithm.act([0.0, 0.0], episode="y", mask=[False, True]) == 6


def test_continuous_actions_stay_in_their_bounds() -> None:
    action = Box(shape=(2,), low=(-0.1, 0.0), high=(0.1, None))
    algorithm = A2C(A2CConfig(net_arch=(8,)), spaces(2, action))
    for number in range(50):
        found = algorithm.act([0.0, 1.0], episode=str(number))
        assert found.shape == (2,)
        assert found.dtype == np.float32
        assert -0.1 <= found[0] <= 0.1
        assert found[1] >= 0
    with pytest.raises(UsageError, match="cannot be masked"):
        algorithm.act([0.0, 1.0], episode="masked", mask=[True, True])


def test_running_scales_are_those_of_the_acting() -> None:
    algorithm = make(normalize_observations=True)
    for number in range(5):
        algorithm.act([float(number), 7.0], episode=str(number))
        algorithm.observe(1.0, episode=str(number), terminated=True)
    first = next(iter(algorithm.segments))[0]
    assert first.chosen.seen is not None
    np.testing.assert_array_equal(first.observation, first.chosen.seen[0])


@pytest.mark.parametrize("name", ["a\x000", "a\x00", "", "a/../b", "\ud800"])
def test_no_name_mixes_episodes(name: str) -> None:
    """F1.3: an ended episode keeps its steps whatever running ones are called."""
    algorithm = make()
    algorithm.act([0.0, 0.0], episode="a")
    algorithm.observe(1.0, episode="a", terminated=True)
    for step in range(3):
        algorithm.act([0.0, float(step)], episode=name)
        algorithm.observe(1.0, episode=name)
    assert sorted(len(steps) for steps in algorithm.segments) == [1, 2]
    algorithm.discard(name)
    assert [len(steps) for steps in algorithm.segments] == [1]
    assert algorithm.segments.num_steps == 1


@pytest.mark.parametrize("name", [5, None, ["a"]])
def test_a_name_is_a_text(name: Any) -> None:
    with pytest.raises(UsageError, match="name of one is a text"):
        make().act([0.0, 0.0], episode=name)


def test_a_mask_of_rows_of_different_lengths_is_refused() -> None:
    with pytest.raises(ActionError, match="no flat list"):
        make().act([0.0, 0.0], mask=[[True], [True, False]])


def test_live_rewards_are_scaled_as_those_of_lanes() -> None:
    """Chan et al.'s moments of the discounted returns, computed anew here; episodes do not leak into each other."""
    algorithm = make(normalize_rewards=True, gamma=0.5)
    rewards = {"a": [3.0, -1.0, 4.0], "b": [10.0, 20.0, -5.0]}
    seen, totals, expected = [], {"a": 0.0, "b": 0.0}, []
    for step in range(3):
        for name, given in rewards.items():
            algorithm.act([0.0, 0.0], episode=name)
            algorithm.observe(given[step], episode=name, terminated=step == 2)
    recorded = [("a", 3.0), ("b", 10.0), ("a", -1.0), ("a", 4.0), ("b", 20.0), ("b", -5.0)]  # as they became whole
    for name, reward in recorded:
        totals[name] = 0.5 * totals[name] + reward
        seen.append(totals[name])
        variance = float(np.var(seen)) if len(seen) > 1 else 1.0
        expected.append((name, float(np.clip(reward / np.sqrt(variance + 1e-8), -10, 10))))
    by_episode = dict(zip("ab", [[step.reward for step in steps] for steps in algorithm.segments], strict=True))
    for name in rewards:
        assert by_episode[name] == pytest.approx([value for owner, value in expected if owner == name])
    assert algorithm.reward_scaler is not None
    assert algorithm.reward_scaler._live == {}


# Updates meanwhile, and none -----------------------------------------------------------------------------------------


def test_an_action_in_flight_over_an_update_is_one_of_an_earlier_policy() -> None:
    """Its ratio is clipped around the policy of now, and it counts by how likely that one would have chosen it."""
    algorithm = make(n_steps=16, learning_rate=0.05)
    algorithm.act([1.0, 0.0], episode="slow")
    for number in range(16):
        action = algorithm.act([1.0, 0.0], episode=str(number))
        algorithm.observe(float(action == 5), episode=str(number), terminated=True)
    assert algorithm.learn()
    algorithm.observe(1.0, episode="slow", terminated=True)
    algorithm.act([1.0, 0.0], episode="new")
    algorithm.observe(1.0, episode="new", terminated=True)
    old, new = (algorithm.live_batch([steps]) for steps in algorithm.segments)
    (step,) = next(iter(algorithm.segments))
    assert step.chosen.log_probs is not None
    outputs = algorithm.network.predict(np.array([[1.0, 0.0]], dtype=F))[0]
    logits = outputs[:2].astype(float)
    now = float(logits[step.chosen.actions[0]] - np.log(np.exp(logits).sum()))
    behaviour = float(step.chosen.log_probs[0])
    assert abs(now - behaviour) > 1e-3
    assert old.log_probs == pytest.approx([now], rel=1e-4)
    assert old.values == pytest.approx([outputs[2]], rel=1e-4)
    assert old.weights == pytest.approx([min(1.0, np.exp(now - behaviour))], rel=1e-4)
    assert new.weights is None
    assert algorithm.num_stale == 1
    assert algorithm.metrics.peek()["train/num_stale_steps"] == 1


def test_steps_that_nobody_learns_from_make_room() -> None:
    """A client that never calls learn does not fill the memory, and what was forgotten is counted."""
    algorithm = make(n_steps=8)
    for number in range(100):
        algorithm.act([float(number), 0.0], episode="a")
        algorithm.observe(1.0, episode="a", terminated=number % 3 == 0)
        assert algorithm.segments.num_steps <= 4 * 8
    kept = [float(step.observation[0]) for steps in algorithm.segments for step in steps]
    assert kept == [float(number) for number in range(100 - len(kept), 100)], "the newest"
    dropped = algorithm.metrics.peek()["rollout/num_dropped_steps"]
    assert (dropped, len(kept), algorithm.num_steps) == (68, 32, 100)
    assert algorithm.learn()


def test_one_endless_episode_makes_room_too() -> None:
    algorithm = make(n_steps=8)
    for number in range(100):
        algorithm.act([float(number), 0.0])
        algorithm.observe(1.0)
    assert algorithm.segments.num_steps == sum(map(len, algorithm.segments)) == 32
    assert algorithm.learn()


def test_schedules_follow_the_live_steps() -> None:
    algorithm = make(n_steps=16, learning_rate="lin_0.001", live_steps=64)
    for number in range(16):
        algorithm.act([0.0, 0.0], episode=str(number))
        algorithm.observe(1.0, episode=str(number), terminated=True)
    assert algorithm.learn()
    assert algorithm.metrics.take()["train/learning_rate"] == pytest.approx(0.00075)


def test_a_schedule_that_nobody_moves_is_warned_of() -> None:
    algorithm = make(n_steps=16, learning_rate="lin_0.001")
    for number in range(16):
        algorithm.act([0.0, 0.0], episode=str(number))
        algorithm.observe(1.0, episode=str(number), terminated=True)
    with pytest.warns(UserWarning, match="learning_rate of ppo change with the progress"):
        algorithm.learn()


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_a_flag_is_true_or_false(flag: str) -> None:
    algorithm = make()
    algorithm.act([0.0, 0.0], episode="a")
    with pytest.raises(UsageError, match=f"{flag} of episode 'a' is 'no'; True or False"):
        algorithm.observe(1.0, episode="a", next_observation=[0.0, 0.0], **{flag: "no"})  # type: ignore[arg-type]
    algorithm.observe(1.0, episode="a", next_observation=[0.0, 0.0], **{flag: np.True_})
    assert algorithm.num_steps == 1


def step(number: int, *, terminated: bool = False) -> LiveStep:
    shown: Any = np.array([number], dtype=np.float32)
    return LiveStep(shown, None, None, float(number), None, None, terminated=terminated, truncated=False)  # type: ignore[arg-type]


def kept(segments: LiveSegments) -> list[list[float]]:
    return [[each.reward for each in steps] for steps in segments]


def test_what_began_first_makes_room_first() -> None:
    segments = LiveSegments(4)
    segments.add("a", step(0))
    segments.add("a", step(1))
    segments.add("b", step(2))
    segments.add("a", step(3, terminated=True))
    segments.add("c", step(4))
    assert kept(segments) == [[1, 3], [2], [4]]
    assert (segments.num_steps, segments.num_dropped) == (4, 1)


def test_a_name_is_free_after_its_end() -> None:
    segments = LiveSegments(10)
    segments.add("a", step(0, terminated=True))
    segments.add("a", step(1))
    segments.discard("a")
    assert kept(segments) == [[0]]
    assert segments.num_steps == 1
    segments.clear()
    segments.discard("a")
    assert (len(segments), segments.num_steps) == (0, 0)


def test_an_episode_goes_on_after_its_first_steps_were_forgotten() -> None:
    segments = LiveSegments(1)
    for number in range(3):
        segments.add("a", step(number))
    assert kept(segments) == [[2]]
    assert segments.num_dropped == 2
