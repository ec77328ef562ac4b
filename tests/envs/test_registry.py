"""Names of environments: aliases, suggestions, missing packages; what making one by its id leaves out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

from learnloop.core.errors import NotFoundError, UsageError
from learnloop.envs import ALIASES, make_stream, register_envs, resolve_env
from learnloop.envs.registry import REGISTERED, evaluation_env, label_of, make_env
from tests.envs.counting import Counting


@pytest.mark.parametrize(
    ("name", "env_id"),
    [
        ("cartpole", "CartPole-v1"),
        ("CartPole", "CartPole-v1"),
        ("CartPole-v1", "CartPole-v1"),
        ("identity", "learnloop/Identity-v0"),
        ("goal-task", "learnloop/GoalTask-v0"),
        ("prompt-mutation", "learnloop/PromptMutation-v0"),
        ("Tool-Use", "learnloop/ToolUse-v0"),
        ("learnloop/DelayedAction-v0", "learnloop/DelayedAction-v0"),
        ("gymnasium.envs:Acrobot-v1", "gymnasium.envs:Acrobot-v1"),
    ],
)
def test_names(name: str, env_id: str) -> None:
    assert resolve_env(name) == env_id
    assert make_env(env_id).env.action_space is not None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cartpol", "'cartpol'; did you mean 'cartpole', 'CartPole-v1'"),
        ("CartPole-v7", "did you mean 'CartPole-v1'"),
        ("learnloop/Identty-v0", "did you mean 'learnloop/Identity-v0'"),
        ("Identity-v0", "did you mean 'learnloop/Identity-v0'"),
        ("halfchetah-v5", "HalfCheetah-v5"),
        ("zzzzqqqq", "see gymnasium.pprint_registry"),
        ("no.such.module:Env-v0", "needs the module 'no.such.module'"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(NotFoundError, match=message):
        resolve_env(name)


@pytest.mark.parametrize("name", [".x:y", "..:y", ":CartPole-v1"])
def test_a_module_without_a_whole_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"{re.escape(repr(name))} names the module .* such as my_envs:MyEnv-v0"):
        resolve_env(name)


def test_what_a_module_raises_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_envs.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UsageError, match=r"the module 'broken_envs' cannot be imported; it raised RuntimeError: no licence"
    ):
        resolve_env("broken_envs:Env-v0")


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_episode_steps": -1}, "max_episode_steps of CartPole-v1 is -1; a whole number from 1 is needed. Leave"),
        ({"max_episode_steps": 0}, "is 0; a whole number from 1"),
        ({"max_episode_steps": 2.5}, "is 2.5; a whole number from 1"),
        ({"max_episode_steps": "7"}, "is '7'; a whole number from 1"),
        ({"render_mode": "nope"}, "render_mode of CartPole-v1 is 'nope'; allowed are 'human', 'rgb_array'.* leave it"),
        ({"render_mode": 5}, "render_mode of CartPole-v1 is 5; allowed"),
        ({"nope": 1}, "cannot be made with {'nope': 1}"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(kwargs: dict[str, Any], message: str, lanes: int) -> None:
    with pytest.raises(UsageError, match=message):
        make_stream("CartPole-v1", lanes, env_kwargs=kwargs)


@pytest.mark.parametrize("lanes", [1, 16])
def test_arguments_that_are_none_are_as_if_not_given(lanes: int) -> None:
    stream = make_stream("CartPole-v1", lanes, env_kwargs={"max_episode_steps": None, "render_mode": None})
    stream.reset(0)
    for _ in range(60):  # the pole falls long before the environment's own limit of 500 steps
        stream.step(np.zeros(lanes, dtype=np.int64))
    ended = stream.episodes()
    stream.close()
    assert len(ended) >= lanes
    assert all(episode.length < 60 for episode in ended)


def test_what_a_maker_raises_is_told() -> None:
    def maker(side: int) -> Any:
        raise ValueError(f"a side of {side} is too short")

    with pytest.raises(UsageError, match=r"'maker' cannot be made with {'side': 1}: ValueError: a side of 1 is too"):
        make_env(maker, {"side": 1})
    with pytest.raises(UsageError, match=r"'FrozenLake-v1' cannot be made .*KeyError: '9x9'"):
        make_env("FrozenLake-v1", {"map_name": "9x9"})


def test_a_missing_package_is_said_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, env_id, extra in (
        ("Box2D", "LunarLander-v3", "box2d"),
        ("mujoco", "Hopper-v5", "mujoco"),
        ("jax", "phys2d/CartPole-v1", "jax"),
    ):
        for loaded in [each for each in sys.modules if each.startswith(f"gymnasium.envs.{extra}")]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UsageError, match=rf'{env_id}.*pip install "gymnasium\[{extra}\]"'):
            resolve_env(env_id)


def test_aliases_exist() -> None:
    register_envs()
    assert set(ALIASES.values()) <= gymnasium.registry.keys()


def test_registering_happens_when_asked_and_again_is_harmless() -> None:
    code = (
        "import learnloop, gymnasium\n"
        "def ours(): return sum(each.startswith('learnloop/') for each in gymnasium.registry)\n"
        "counts = [ours()]\n"
        "from learnloop.envs import register_envs\n"
        "for _ in range(2): register_envs(); counts.append(ours())\n"
        "gymnasium.make('learnloop/Identity-v0').reset(seed=0); print(*counts)"
    )
    found = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True)
    before, once, twice = map(int, found.stdout.split())
    assert before == 0
    assert once == twice == len(REGISTERED)


def test_made_by_id_the_limit_is_counted_by_us() -> None:
    made = make_env("CartPole-v1", {"max_episode_steps": 7})
    assert made.max_steps == 7
    assert made.env is made.env.unwrapped
    assert make_env("learnloop/Identity-v0").max_steps is None
    wrapped = make_env(lambda: TimeLimit(gymnasium.make("CartPole-v1"), 5))
    assert wrapped.max_steps is None
    assert isinstance(wrapped.env, TimeLimit), "what the user made is left as it is"


def test_the_quick_space_is_the_same_space() -> None:
    quick, plain = make_env("CartPole-v1").env.action_space, gymnasium.spaces.Discrete(2)
    assert quick == plain
    for value in (0, 1, 2, -1, 1.0, "1", None, True):
        assert (value in quick) == (value in plain)


def test_labels() -> None:
    assert label_of("CartPole-v1") == "CartPole-v1"
    assert label_of(gymnasium.make("CartPole-v1")) == "CartPole-v1"
    assert label_of(TimeLimit) == "TimeLimit"


@pytest.mark.parametrize(
    ("env", "limit"),
    [
        (gymnasium.make("CartPole-v1", sutton_barto_reward=True), 500),
        (gymnasium.make("CartPole-v1", max_episode_steps=7, render_mode="rgb_array", sutton_barto_reward=True), 7),
        (TimeLimit(gymnasium.make("CartPole-v1", sutton_barto_reward=True), 9), 9),
        (gymnasium.make_vec("CartPole-v1", 2, sutton_barto_reward=True), 500),
        (gymnasium.make_vec("CartPole-v1", 2, max_episode_steps=6, sutton_barto_reward=True), 6),
        (gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync", sutton_barto_reward=True), 500),
    ],
)
def test_another_environment_like_a_given_one(env: Any, limit: int) -> None:
    maker = evaluation_env(env)
    assert callable(maker)
    made = maker()
    made.reset(seed=0)
    rewards, is_over, length = [], False, 0
    while not is_over:
        _, reward, terminated, truncated, _ = made.step(length % 2)
        rewards.append(float(reward))
        is_over, length = terminated or truncated, length + 1
    assert set(rewards) <= {0.0, -1.0}, "its own arguments are kept"
    assert made.spec is not None
    assert made.spec.max_episode_steps == limit
    assert length <= limit


def test_an_environment_that_cannot_be_made_again_is_refused() -> None:
    with pytest.raises(UsageError, match="Counting is one object, and evaluations need another"):
        evaluation_env(Counting())
