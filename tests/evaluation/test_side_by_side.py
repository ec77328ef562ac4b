"""Policies that play in turns: the same episodes as alone, and a clock that is the same for all."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from learnloop.core.errors import UsageError
from learnloop.evaluation.returns import evaluate_returns, evaluate_side_by_side


class Leaning:
    """Pushes the cart to where the pole leans."""

    def choose(self, observations: Any, masks: Any = None) -> Any:
        return (observations[:, 2] > 0).astype(np.int64)


class Constant:
    def __init__(self, action: int) -> None:
        self.action = action

    def choose(self, observations: Any, masks: Any = None) -> Any:
        return np.full(len(observations), self.action)


class Clock:
    """A clock that each step of each environment moves on."""

    def __init__(self) -> None:
        self.time = 0
        self.num_closed = 0


class Falling(gymnasium.Env[Any, Any]):
    """Ten steps an episode; a step's reward is minus the time, whatever is done."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.clock.time += 1
        self.steps += 1
        return np.zeros(1, dtype=np.float32), -float(self.clock.time), self.steps >= 10, False, {}

    def close(self) -> None:
        self.clock.num_closed += 1


ALIKE = {"a": Constant(0), "b": Constant(1), "c": Constant(0)}
POLICIES = {"leaning": Leaning(), "left": Constant(0), "right": Constant(1)}


@pytest.mark.parametrize("num_turns", [1, 2, 5, 11, 12, 40])
@pytest.mark.parametrize("max_envs", [1, 64])
def test_each_earns_what_it_earns_alone_however_many_turns(num_turns: int, max_envs: int) -> None:
    found = evaluate_side_by_side(
        POLICIES, "CartPole-v1", num_episodes=11, seed=7, num_turns=num_turns, max_envs=max_envs
    )
    assert list(found) == list(POLICIES)
    for name, policy in POLICIES.items():
        assert found[name] == evaluate_returns(policy, "CartPole-v1", num_episodes=11, seed=7)
    assert len({each.mean for each in found.values()}) == 3


def test_episodes_that_are_given_up_keep_their_numbers() -> None:
    """Leaning balances for more than 30 steps, in all episodes but some."""
    alone = evaluate_returns(Leaning(), "CartPole-v1", num_episodes=20, seed=7, max_episode_steps=40)
    found = evaluate_side_by_side(
        {"leaning": Leaning()}, "CartPole-v1", num_episodes=20, seed=7, max_episode_steps=40, num_turns=6
    )
    assert 2 < len(alone.unfinished) < 20
    assert found["leaning"] == alone


def test_one_after_the_other_it_does_not() -> None:
    """Each policy's 60 episodes take 600 steps, so the next earns 10 * 600 less an episode."""
    clock = Clock()
    means = [
        evaluate_returns(policy, lambda: Falling(clock), num_episodes=60, seed=0).mean for policy in ALIKE.values()
    ]
    assert means[0] - means[1] == pytest.approx(6_000)
    assert means[1] - means[2] == pytest.approx(6_000)


@pytest.mark.parametrize(("num_policies", "num_turns"), [(2, 12), (3, 12), (3, 4), (3, 7), (2, 5)])
def test_no_two_are_farther_apart_than_one_turn_would_set_them(num_policies: int, num_turns: int) -> None:
    """A clock does the same to all: where each has each place as often, they earn exactly the same.

    Else a policy is at most num_policies - 1 places off in the turns that are left over. A place is a turn of one
    policy: 5 episodes of 10 steps, so 50 steps, and 10 * 50 less an episode.
    """
    clock = Clock()
    policies = {str(number): Constant(0) for number in range(num_policies)}
    found = evaluate_side_by_side(
        policies, lambda: Falling(clock), num_episodes=5 * num_turns, seed=0, num_turns=num_turns
    )
    means = [each.mean for each in found.values()]
    left_over = num_turns % num_policies
    assert max(means) - min(means) <= 500 * (num_policies - 1) * left_over / num_turns + 1e-9
    assert clock.time == 50 * num_turns * num_policies


def test_environments_are_made_once_and_closed() -> None:
    clock = Clock()
    made = []

    def make() -> Falling:
        made.append(Falling(clock))
        return made[-1]

    evaluate_side_by_side(ALIKE, make, num_episodes=30, seed=0, num_turns=6)
    assert len(made) == clock.num_closed == 5


def test_an_environment_of_the_caller_s_own_stays_open() -> None:
    clock = Clock()
    found = evaluate_side_by_side({"a": Constant(0)}, Falling(clock), num_episodes=6, seed=0, num_turns=3)
    assert clock.num_closed == 0
    assert found["a"].lengths == (10,) * 6


@pytest.mark.parametrize("name", ["num_episodes", "num_turns", "max_envs"])
def test_numbers_that_have_no_meaning_are_refused(name: str) -> None:
    given: dict[str, Any] = {"num_episodes": 2, "num_turns": 1, "max_envs": 1, name: 0}
    with pytest.raises(UsageError, match=name):
        evaluate_side_by_side({"a": Constant(0)}, "CartPole-v1", seed=0, **given)
