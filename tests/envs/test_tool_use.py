"""Tool use: the published values are those of the environment, and no bandit gets far in any world."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.core.errors import UsageError
from learnloop.envs import check_env, make_stream, register_envs
from learnloop.envs.tool_use import BANDIT_SHARE, ToolUse, ToolWorld

register_envs()
WORLDS: list[dict[str, Any]] = [
    {},
    {"seed": 1},
    {"seed": 2, "num_intents": 1},
    {"num_tools": 3, "length": 3},
    {"num_tools": 10, "length": 5, "num_intents": 6},
    {"length": 1},
    {"length": 2, "failure_rate": 0.4},
    {"failure_rate": 0.0},
    {"guess_reward": 0.5},
    {"guess_reward": 0.0},
]


def test_it_keeps_the_rules() -> None:
    assert check_env("tool-use") == []
    gymnasium_check(gymnasium.make("learnloop/ToolUse-v0").unwrapped)


# Values ------------------------------------------------------------------------------------------------------------


def optimum_of(world: ToolWorld) -> float:
    """The best that can be earned, by a recursion of its own: help on, or guess when it is too late."""

    @cache
    def value(intent: int, num_results: int, steps_left: int) -> float:
        if not steps_left:
            return 0.0
        guess = float(world.rewards()[0, 0, -1])
        answer = guess + (1 - guess) * num_results / world.length
        if num_results == world.length:
            return answer
        tool = int(world.chains[intent, num_results])
        rate = float(world.failure_rates[tool])
        after = (1 - rate) * value(intent, num_results + 1, steps_left - 1)
        after += rate * value(intent, num_results, steps_left - 1)
        return max(answer, after - float(world.costs[tool]))

    return float(np.mean([value(intent, 0, world.max_steps) for intent in range(world.num_intents)]))


@pytest.mark.parametrize("options", WORLDS)
def test_the_optimum_is_that_of_another_recursion(options: dict[str, Any]) -> None:
    world = ToolWorld(**options)
    assert world.optimum() == pytest.approx(optimum_of(world), abs=1e-12)


@pytest.mark.parametrize("options", WORLDS)
def test_a_bandit_earns_at_most_60_percent(options: dict[str, Any]) -> None:
    world = ToolWorld(**options)
    assert world.bandit_optimum() <= BANDIT_SHARE * world.optimum()
    assert world.random_return() < world.optimum() / 2


@settings(max_examples=40, deadline=None)
@given(
    extra=st.integers(0, 4),
    length=st.integers(1, 4),
    num_intents=st.integers(1, 5),
    seed=st.integers(0, 10_000),
    cost=st.floats(0.001, 0.3),
    failure_rate=st.floats(0.0, 0.45),
    guess_reward=st.floats(0.0, 1.0),
)
def test_a_world_in_which_a_bandit_earns_more_is_refused(extra: int, length: int, **options: Any) -> None:
    try:
        world = ToolWorld(num_tools=length + extra, length=length, **options)
    except UsageError as refused:
        if "more than 60%" not in str(refused):
            raise
        return
    assert world.bandit_optimum() <= BANDIT_SHARE * optimum_of(world)
    assert world.bandit_optimum() >= options["guess_reward"] * (1 - 1e-9)


@pytest.mark.parametrize("options", [each for each in WORLDS if each.get("guess_reward") != 0.0])
def test_what_pays_now_misleads_everywhere(options: dict[str, Any]) -> None:
    """The next step pays best for an answer, and the least for the call that helps."""
    world = ToolWorld(**options)
    rewards = world.rewards()
    assert (rewards.argmax(axis=2) == world.num_tools).all()
    for intent, chain in enumerate(world.chains):
        for num_results, tool in enumerate(chain):
            assert rewards[intent, num_results].argmin() == tool
    assert world.bandit_optimum() == pytest.approx(options.get("guess_reward", 0.25))


def played(env: ToolUse, policy: Callable[[Any, int, int], int], num_episodes: int) -> np.ndarray:
    """Returns what each episode earns; a policy sees the observation, the intent and how many results there are."""
    earned = np.zeros(num_episodes)
    for episode in range(num_episodes):
        observation, info = env.reset(seed=episode)
        is_over = False
        while not is_over:
            action = policy(observation, info["intent"], info["num_results"])
            observation, reward, terminated, truncated, info = env.step(action)
            earned[episode] += reward
            is_over = terminated or truncated
            assert not (terminated and truncated)
    return earned


def test_the_values_are_those_of_the_environment() -> None:
    env = ToolUse(failure_rate=0.2)
    world, rng = env.world, np.random.default_rng(0)
    rewards = world.rewards()

    def best(observation: Any, intent: int, num_results: int) -> int:
        return world.num_tools if num_results == world.length else int(world.chains[intent, num_results])

    policies: list[tuple[Callable[[Any, int, int], int], float]] = [
        (best, world.optimum()),
        (lambda o, intent, k: int(rewards[intent, k].argmax()), world.bandit_optimum()),
        (lambda o, intent, k: int(rng.integers(world.num_tools + 1)), world.random_return()),
    ]
    for policy, wanted in policies:
        earned = played(env, policy, 3_000)
        assert earned.mean() == pytest.approx(wanted, abs=4 * earned.std() / np.sqrt(3_000) + 1e-3)


def test_an_intent_alone_is_not_enough() -> None:
    """A bandit that knows the intent alone and takes one action for it earns no more."""
    env = ToolUse()
    for action in range(7):
        assert played(env, lambda o, i, k, a=action: a, 50).mean() <= env.world.bandit_optimum() + 1e-9  # type: ignore[misc]


# The environment ---------------------------------------------------------------------------------------------------


def test_what_is_shown() -> None:
    env = ToolUse(failure_rate=0.0)
    observation, info = env.reset(seed=3)
    intent, chain = info["intent"], env.world.chains[info["intent"]].tolist()
    wanted = np.zeros(4 + 6 + 2, dtype=np.float32)
    wanted[intent] = 1
    np.testing.assert_array_equal(observation, wanted)
    for number, tool in enumerate(chain, start=1):
        observation, reward, terminated, truncated, info = env.step(tool)
        wanted[4 + tool], wanted[-1] = 1, number / 12
        np.testing.assert_allclose(observation, wanted)
        assert (reward, terminated, truncated) == (-env.world.costs[tool], False, False)
        assert info["num_results"] == number
    observation, reward, terminated, truncated, _ = env.step(chain[0])  # again, of no use
    assert reward == -env.world.costs[chain[0]] / 4
    assert observation[-2] == 1
    assert env.step(6)[1:4] == (1.0, True, False)


def test_order_matters() -> None:
    env = ToolUse(failure_rate=0.0)
    _, info = env.reset(seed=0)
    first, second, third = env.world.chains[info["intent"]].tolist()
    for tool in (third, second, first, third):
        info = env.step(tool)[4]
    assert info["num_results"] == 1
    assert env.step(6)[1] == 0.5


def test_the_limit_cuts_and_does_not_end() -> None:
    """F0.5: a time limit is no end of the task."""
    env = ToolUse()
    _, info = env.reset(seed=0)
    useless = next(tool for tool in range(6) if tool != env.world.chains[info["intent"], 0])
    ends = [env.step(useless)[2:4] for _ in range(12)]
    assert ends == [(False, False)] * 11 + [(False, True)]
    with pytest.raises(UsageError, match="stepped while no episode runs; call reset first"):
        env.step(0)


def test_worlds_and_episodes_have_seeds_of_their_own() -> None:
    one, same, other = ToolWorld(seed=5), ToolWorld(seed=5), ToolWorld(seed=6)
    np.testing.assert_array_equal(one.chains, same.chains)
    np.testing.assert_array_equal(one.costs, same.costs)
    assert not np.array_equal(one.chains, other.chains)
    env = ToolUse(failure_rate=0.4)
    rng = np.random.default_rng(0)
    actions = rng.integers(6, size=12).tolist()

    def episode(env: ToolUse, seed: int) -> list[Any]:
        shown = [env.reset(seed=seed)[0].tolist()]
        return shown + [(each[0].tolist(), each[1]) for each in map(env.step, actions)]

    assert episode(env, 1) == episode(ToolUse(failure_rate=0.4), 1)
    assert episode(pickle.loads(pickle.dumps(env)), 2) == episode(env, 2)  # noqa: S301 - our own
    assert len({str(episode(env, seed)) for seed in range(20)}) > 3


def test_a_line_on_each_step() -> None:
    env = ToolUse(render_mode="ansi", failure_rate=0.0)
    _, info = env.reset(seed=0)
    tool = int(env.world.chains[info["intent"], 0])
    assert env.render() == f"intent {info['intent']}, step 0 of 12: nothing yet; 0 of 3 results\n"
    env.step(tool)
    assert env.render() == f"intent {info['intent']}, step 1 of 12: tool {tool} gave its result; 1 of 3 results\n"
    env.step(6)
    assert "answered for 0.5" in env.render()
    assert ToolUse().render() is None


def test_it_runs_in_processes() -> None:
    stream = make_stream("tool-use", 2, vectorization="subprocess", env_kwargs={"world_seed": 1})
    assert stream.reset(0)[0].shape == (2, 12)
    stream.step(np.array([0, 6]))
    stream.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_tools": 2}, "num_tools of tool-use is 2; a whole number from 3 is needed"),
        ({"length": 0}, "length of tool-use is 0; a whole number from 1"),
        ({"num_intents": 1.5}, "num_intents of tool-use is 1.5; a whole number"),
        ({"num_intents": True}, "num_intents of tool-use is True"),
        ({"seed": -1}, "seed of tool-use is -1; a whole number from 0"),
        ({"cost": 0.0}, "cost of tool-use is 0.0; a number from 0.001 to 1 is needed"),
        ({"cost": float("nan")}, "cost of tool-use is nan"),
        ({"failure_rate": "much"}, "failure_rate of tool-use is 'much'; a number from 0 to 0.45"),
        ({"guess_reward": 2}, "guess_reward of tool-use is 2; a number from 0 to 1"),
        ({"guess_reward": 0.7}, r"a bandit earns up to 0.700 of 0.86\d, more than 60%.*lower guess_reward \(0.7\)"),
    ],
)
def test_worlds_without_a_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ToolWorld(**options)
