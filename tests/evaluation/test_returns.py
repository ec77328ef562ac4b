"""Returns against episodes played by hand: seeds, envs, limits, masks."""

from __future__ import annotations

from typing import Any

import gymnasium
import msgspec
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from learnloop.core.errors import ActionError, NotFoundError, UsageError
from learnloop.core.seeding import derive_seed
from learnloop.core.spaces import Box, Discrete, Spaces
from learnloop.evaluation import returns
from learnloop.evaluation.returns import Returns, evaluate_returns
from tests.envs.counting import Counting, length_of, reward_of, tag_of


class Leaning:
    """Pushes the cart to where the pole leans; remembers how many rows it was asked about."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def choose(self, observations: Any, masks: Any = None) -> Any:
        self.rows.append(len(observations))
        return (observations[:, 2] > 0).astype(np.int64)


class Constant:
    def __init__(self, action: int = 0) -> None:
        self.action = action

    def choose(self, observations: Any, masks: Any = None) -> Any:
        return np.full(len(observations), self.action)


class FirstAllowed:
    def choose(self, observations: Any, masks: Any = None) -> Any:
        return masks.argmax(axis=1)


def by_hand(seed: int, num_episodes: int, **kwargs: Any) -> tuple[list[float], list[int]]:
    """Plays CartPole one episode after the other, with gymnasium's own wrappers."""
    env = gymnasium.make("CartPole-v1", **kwargs)
    returns, lengths = [], []
    for episode in range(num_episodes):
        observation, _ = env.reset(seed=derive_seed(seed, "evaluation", episode) & 0x7FFFFFFF)
        total, length, is_over = 0.0, 0, False
        while not is_over:
            action = int(observation[2] > 0)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, length, is_over = total + float(reward), length + 1, terminated or truncated
        returns.append(total)
        lengths.append(length)
    return returns, lengths


@pytest.mark.parametrize("max_envs", [1, 3, 64])
def test_returns_are_those_of_episodes_played_one_by_one(max_envs: int) -> None:
    wanted, lengths = by_hand(7, 12)
    found = evaluate_returns(Leaning(), "cartpole", num_episodes=12, seed=7, max_envs=max_envs)
    assert list(found.returns) == wanted
    assert list(found.lengths) == lengths
    assert found.mean == pytest.approx(np.mean(wanted))
    assert found.std == pytest.approx(np.std(wanted))
    assert (found.env, found.seed, found.unfinished, found.max_episode_steps) == ("CartPole-v1", 7, (), 500)
    assert len(set(wanted)) > 5


def test_kwargs_callables_and_environments() -> None:
    wanted, _ = by_hand(1, 4, max_episode_steps=30)
    for env, kwargs in (
        ("CartPole-v1", {"max_episode_steps": 30}),
        (lambda limit: gymnasium.make("CartPole-v1", max_episode_steps=limit), {"limit": 30}),
        (gymnasium.make("CartPole-v1", max_episode_steps=30), None),
    ):
        found = evaluate_returns(Leaning(), env, num_episodes=4, seed=1, env_kwargs=kwargs)
        assert list(found.returns) == wanted
        assert found.max_episode_steps == 30


def test_ended_lanes_are_not_stepped() -> None:
    policy = Leaning()
    found = evaluate_returns(policy, "CartPole-v1", num_episodes=10, seed=0, max_envs=4)
    assert sum(policy.rows) == sum(found.lengths)
    assert max(policy.rows) == 4
    assert policy.rows[-1] < 4


def test_short_episodes_count_no_more_than_long_ones() -> None:
    """Taking the first episodes that end, of many that run, would prefer short ones."""
    found = evaluate_returns(Constant(2), Counting, num_episodes=30, seed=3, max_envs=8)
    tags = [tag_of(derive_seed(3, "evaluation", episode) & 0x7FFFFFFF) for episode in range(30)]
    assert list(found.lengths) == [length_of(tag, 0) for tag in tags]
    assert set(found.lengths) == {2, 3, 4}
    assert list(found.returns) == [sum(reward_of(0, t, 2) for t in range(length_of(tag, 0))) for tag in tags]


def test_policies_meet_the_same_episodes_and_seeds_differ() -> None:
    one = evaluate_returns(Constant(0), Counting, num_episodes=10, seed=3)
    two = evaluate_returns(Constant(1), Counting, num_episodes=10, seed=3)
    assert one.lengths == two.lengths
    assert two.returns == tuple(each + length for each, length in zip(one.returns, one.lengths, strict=True))
    assert evaluate_returns(Constant(0), Counting, num_episodes=10, seed=4).lengths != one.lengths
    more = evaluate_returns(Constant(0), Counting, num_episodes=15, seed=3)
    assert more.returns[:10] == one.returns


@pytest.mark.parametrize("masked", ["info", "method"])
def test_masks_reach_the_policy(masked: str) -> None:
    """The environment raises at an action that it does not allow."""
    found = evaluate_returns(
        FirstAllowed(), Counting, num_episodes=9, seed=0, env_kwargs={"masked": masked}, max_envs=4
    )
    assert set(found.lengths) == {2, 3, 4}
    for total, length in zip(found.returns, found.lengths, strict=True):
        assert total == sum(10 * t + (1 if t % 3 == 0 else 0) for t in range(length))


def test_masks_that_allow_nothing_are_refused() -> None:
    class Blocked(Counting):
        def mask(self) -> Any:
            return np.arange(3) < (3 if self.t < 1 else 0)

    with pytest.raises(ActionError, match="Blocked, env 0, episode 1: the action mask allows no action"):
        evaluate_returns(FirstAllowed(), Blocked, seed=0, env_kwargs={"masked": "info"})


class Endless(gymnasium.Env[Any, Any]):
    """Pays 1 a step; the episodes of odd seeds end after 3 steps, the others never."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.is_odd = 0, bool((seed or 0) % 2)
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.zeros(1, dtype=np.float32), 1.0, self.is_odd and self.t == 3, False, {}


def test_episodes_that_never_end_are_said() -> None:
    odd = [bool(derive_seed(0, "evaluation", episode) & 1) for episode in range(8)]
    assert any(odd)
    assert not all(odd)
    found = evaluate_returns(Constant(), Endless, num_episodes=8, seed=0, max_envs=3, max_episode_steps=50)
    assert found.unfinished == tuple(episode for episode in range(8) if not odd[episode])
    assert list(found.lengths) == [3 if each else 50 for each in odd]
    assert list(found.returns) == [3.0 if each else 50.0 for each in odd]
    assert found.max_episode_steps == 50


def test_a_limit_below_the_environments_own_is_said_too() -> None:
    found = evaluate_returns(Leaning(), "CartPole-v1", num_episodes=2, seed=0, max_episode_steps=4)
    assert (found.unfinished, found.lengths) == ((0, 1), (4, 4))


def test_without_any_limit_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert returns.MAX_EPISODE_STEPS == 100_000
    monkeypatch.setattr(returns, "MAX_EPISODE_STEPS", 60)
    found = evaluate_returns(Constant(), Endless, num_episodes=8, seed=0)
    assert found.max_episode_steps == 60
    assert found.unfinished


def test_it_is_a_record() -> None:
    found = evaluate_returns(Constant(), Counting, num_episodes=2, seed=0)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Returns) == found


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"env": "CartPole-v1", "num_episodes": 0}, UsageError, "num_episodes is 0"),
        ({"env": "CartPole-v1", "max_envs": 0}, UsageError, "max_envs is 0"),
        ({"env": "CartPole-v1", "max_episode_steps": -1}, UsageError, "max_episode_steps is -1"),
        ({"env": "CartPol-v1"}, NotFoundError, "did you mean"),
        ({"env": SyncVectorEnv([Counting])}, UsageError, "is a vector environment"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        evaluate_returns(Constant(), seed=0, **arguments)


def test_a_policy_for_another_environment_is_refused() -> None:
    policy: Any = Constant()
    policy.spaces = Spaces(observation=Box(shape=(4,), low=(None,) * 4, high=(None,) * 4), action=Discrete(n=3))
    with pytest.raises(UsageError, match=r"the policy sees 4 numbers and acts in Discrete\(n=3.*Counting shows 3"):
        evaluate_returns(policy, Counting, seed=0)
    policy.spaces = Spaces(observation=Box(shape=(3,), low=(None,) * 3, high=(None,) * 3), action=Discrete(n=3))
    assert evaluate_returns(policy, Counting, num_episodes=1, seed=0).lengths


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_episodes": "5"}, "num_episodes is '5'; a whole number from 1 is needed"),
        ({"num_episodes": 2.5}, "num_episodes is 2.5"),
        ({"num_episodes": True}, "num_episodes is True"),
        ({"num_episodes": None}, "num_episodes is None"),
        ({"max_envs": "x"}, "max_envs is 'x'"),
        ({"max_episode_steps": 2.5}, "max_episode_steps is 2.5"),
        ({"seed": "a"}, "seed is 'a'; a whole number is needed"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"env_kwargs": 5}, "env_kwargs is 5; arguments by their names"),
    ],
)
def test_arguments_of_another_type_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        evaluate_returns(Constant(), "CartPole-v1", **{"seed": 0, **options})
