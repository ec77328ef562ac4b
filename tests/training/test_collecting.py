"""Data sets from environments: whole episodes, as they happened, of the policies and in the shares asked for."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.errors import UsageError
from learnloop.core.spaces import Box, Discrete, Spaces
from tests.algorithms.chi_square import fits
from tests.training.collecting import collect_dataset


class Counter(gymnasium.Env[Any, Any]):
    """Shows the number of the step; after how many it ends depends on the seed. Rewards tell step and action.

    Where it has masks, action 2 is not allowed at odd numbers.
    """

    action_space = gymnasium.spaces.Discrete(3)
    observation_space = gymnasium.spaces.Box(-1.0, 100.0, (1,), np.float32)

    def __init__(self, masked: bool = False) -> None:
        self._masked = masked
        self._at = 0
        self._end = 1
        self._cut = False

    def _seen(self) -> Any:
        info = {"action_mask": np.array([True, True, self._at % 2 == 0])} if self._masked else {}
        return np.array([self._at], dtype=np.float32), info

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._at = 0
        self._end = int(self.np_random.integers(1, 30))
        self._cut = bool(self.np_random.integers(2))
        return self._seen()

    def step(self, action: Any) -> Any:
        reward = self._at * 10.0 + float(action)
        self._at += 1
        is_over = self._at >= self._end
        observation, info = self._seen()
        return observation, reward, is_over and not self._cut, is_over and self._cut, info


class Fixed:
    """Always the same action."""

    def __init__(self, action: int) -> None:
        self.action = action

    def choose(self, observations: Any, masks: Any = None) -> Any:
        return np.full(len(observations), self.action)


@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_episodes_are_whole_and_as_they_happened(num_envs: int, masked: bool) -> None:
    data = collect_dataset(lambda: Counter(masked), "random", num_steps=500, seed=1, num_envs=num_envs)
    assert data.num_steps >= 500
    assert data.num_steps < 500 + 30
    ends = np.flatnonzero(data.terminated | data.truncated)
    assert data.num_episodes == len(ends)
    assert (data.truncated.any(), data.terminated.any()) == (True, True)
    assert not (data.truncated & data.terminated).any()
    starts = np.concatenate([[0], ends[:-1] + 1])
    numbers = np.arange(data.num_steps) - starts[data.episodes]
    np.testing.assert_array_equal(data.observations[:, 0], numbers)
    np.testing.assert_array_equal(data.next_observations[:, 0], numbers + 1)
    np.testing.assert_array_equal(data.rewards, numbers * 10.0 + data.actions)
    assert list(data.goals) == [""] * data.num_episodes
    if masked:
        assert data.masks is not None
        assert data.next_masks is not None
        np.testing.assert_array_equal(data.masks[:, 2], numbers % 2 == 0)
        goes_on = ~data.terminated
        np.testing.assert_array_equal(data.next_masks[goes_on, 2], ((numbers + 1) % 2 == 0)[goes_on])
        assert data.masks[np.arange(data.num_steps), data.actions].all()
    else:
        assert data.masks is None
        assert fits(np.bincount(data.actions, minlength=3), np.full(3, 1 / 3))


def test_long_episodes_are_not_left_out_for_being_late() -> None:
    """The lengths are uniform from 1 to 29 however many envs there are."""
    data = collect_dataset(Counter, "random", num_episodes=600, seed=2, num_envs=30)
    assert data.num_episodes == 600
    lengths = np.bincount(data.episodes)
    assert lengths.mean() == pytest.approx(15, abs=1.2)


def test_each_policy_has_its_share() -> None:
    policies = [Fixed(0), Fixed(1), "random"]
    data = collect_dataset(Counter, policies, num_episodes=40, seed=3, mix=[1, 2, 1])
    kinds = [set(data.actions[data.episodes == episode]) for episode in range(40)]
    assert kinds[:10] == [{0}] * 10
    assert kinds[10:30] == [{1}] * 20
    by_steps = collect_dataset(Counter, policies[:2], num_steps=2000, seed=3, mix=[3, 1])
    counts = np.bincount(by_steps.actions)
    assert 1500 <= counts[0] < 1530
    assert 500 <= counts[1] < 530


def test_the_same_arguments_give_the_same_data_set() -> None:
    one, other, different = (collect_dataset(Counter, "random", num_steps=200, seed=seed) for seed in (4, 4, 5))
    assert one.fingerprint() == other.fingerprint() != different.fingerprint()


def test_vector_environments_that_reset_in_a_step_of_their_own() -> None:
    envs = gymnasium.vector.SyncVectorEnv([Counter] * 3, autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP)
    try:
        data = collect_dataset(envs, "random", num_steps=300, seed=6)
    finally:
        envs.close()
    starts = np.concatenate([[0], np.flatnonzero(data.terminated | data.truncated)[:-1] + 1])
    numbers = np.arange(data.num_steps) - starts[data.episodes]
    np.testing.assert_array_equal(data.observations[:, 0], numbers)
    np.testing.assert_array_equal(data.rewards, numbers * 10.0 + data.actions)


def test_continuous_actions_are_logged_as_they_were_done() -> None:
    class Wild:
        def choose(self, observations: Any, masks: Any = None) -> Any:
            return np.full((len(observations), 1), 7.0, dtype=np.float32)

    data = collect_dataset("learnloop/ActionRewardContinuous-v0", Wild(), num_steps=5, seed=0)
    np.testing.assert_array_equal(data.actions, np.ones((5, 1), dtype=np.float32))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "num_steps or num_episodes, one of them"),
        ({"num_steps": 5, "num_episodes": 5}, "num_steps or num_episodes, one of them"),
        ({"num_steps": 0}, "num_steps is 0 for 1 policies"),
        ({"num_episodes": 2, "mix": [1, 1]}, "a share above 0 for each of the 1 policies"),
        ({"num_episodes": 2, "mix": [0]}, "a share above 0"),
    ],
)
def test_arguments_without_a_meaning_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        collect_dataset(Counter, "random", seed=0, **fields)


def test_policies_for_something_else_are_refused() -> None:
    space = Spaces(observation=Box(shape=(1,), low=(None,), high=(None,)), action=Discrete(n=4))
    policy = NetworkPolicy(space, None, outputs="uniform", learned_by="random")
    with pytest.raises(UsageError, match="policy 1 is for"):
        collect_dataset(Counter, ["random", policy], num_steps=9, seed=0)
    with pytest.raises(UsageError, match="'best' is no policy"):
        collect_dataset(Counter, "best", num_steps=9, seed=0)  # type: ignore[arg-type]
