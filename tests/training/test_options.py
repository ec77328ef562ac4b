"""Options of a training: presets, the seeds' names, and what is refused before anything starts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from learnloop.algorithms.building import configure
from learnloop.core.errors import UsageError
from learnloop.training.options import TrainingOptions, make_options
from learnloop.training.presets import PRESETS, find_preset


def test_known_environments_get_rl_zoos_settings() -> None:
    options = make_options("ppo", "CartPole-v1")
    assert (options.steps, options.n_envs) == (100_000, 8)
    assert options.config["n_steps"] == 32
    assert options.config["learning_rate"] == "lin_0.001"
    assert options.config["n_epochs"] == 20
    assert make_options("dqn", "CartPole-v1").config["gradient_steps"] == 128


def test_what_is_given_wins_over_the_preset() -> None:
    options = make_options("ppo", "CartPole-v1", steps=7_000, n_envs=2, options={"n_steps": 64, "lr": 0.5})
    assert (options.steps, options.n_envs, options.eval_interval) == (7_000, 2, 350)
    assert options.config["n_steps"] == 64
    assert options.config["learning_rate"] == 0.5
    assert options.config["gae_lambda"] == 0.8


def test_other_environments_get_the_algorithms_defaults() -> None:
    options = make_options("a2c", "Other-v0")
    assert options.config["n_steps"] == 5
    assert options.n_envs == 8


def test_the_prompt_mutation_preset_has_the_seeds_numbers() -> None:
    """S1.1: PPOConfig of the seed, its names included."""
    theirs = {
        "learning_rate": 3e-4,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "eps_clip": 0.2,
        "entropy_coef": 0.01,
        "value_coef": 0.5,
        "n_epochs": 4,
        "batch_size": 64,
        "buffer_size": 2048,
        "hidden_dim": 256,
    }
    ours = configure("ppo", find_preset("ppo", "", "prompt-mutation").options)
    named = configure("ppo", {**theirs, "layer_norm": True, "dropout": 0.1, "init": "xavier", "activation": "relu"})
    assert named == ours
    assert ours.net_arch == (256, 256, 128)


@pytest.mark.parametrize(("algorithm", "name"), PRESETS)
def test_every_preset_is_a_valid_config(algorithm: str, name: str) -> None:
    options = make_options(algorithm, "Any-v0", preset=name)
    assert options.algorithm_config() == configure(algorithm, PRESETS[algorithm, name].options)


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "dqn", "sac", "random"])
def test_options_survive_json(algorithm: str) -> None:
    options = make_options(algorithm, "CartPole-v1", episodes=3)
    assert msgspec.json.decode(msgspec.json.encode(options), type=TrainingOptions) == options
    assert options.algorithm_config() == configure(algorithm, find_preset(algorithm, "CartPole-v1", None).options)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"algorithm": "pop"}, "did you mean 'ppo'"),
        ({"options": {"learning_rat": 1}}, "did you mean 'learning_rate'"),
        ({"options": {"gamma": 1.2}}, "gamma is 1.2"),
        ({"options": {"gamma": "high"}}, "gamma"),
        ({"options": {"lr": 1e-3, "learning_rate": 1e-3}}, "both set 'learning_rate'"),
        ({"preset": "fast"}, "ppo has no preset 'fast'"),
        ({"steps": 0}, "steps is 0"),
        ({"n_envs": -1}, "n_envs is -1"),
        ({"episodes": 0}, "episodes"),
        ({"checkpoint_interval": 0}, "checkpoint_interval is 0"),
        ({"vectorization": "threads"}, "vectorization"),
        ({"steps": "100"}, "steps is '100'"),
        ({"steps": 1e3}, "steps is 1000.0"),
        ({"episodes": "5"}, "episodes is '5'"),
        ({"n_envs": True}, "n_envs is True"),
        ({"preset": ["many-envs"]}, "preset is ['many-envs']"),
        ({"algorithm": None}, "no algorithm is called None"),
        ({"algorithm": ["ppo"]}, "no algorithm is called ['ppo']"),
        ({"env_kwargs": {"x": object}}, "cannot be written as JSON"),
        ({"env_kwargs": {"x": float("nan")}}, "cannot be written as JSON"),
        ({"options": {"hidden_dim": "8"}}, "hidden_dim is '8'"),
    ],
)
def test_what_is_wrong_is_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_options(**{"algorithm": "ppo", "env": "CartPole-v1", **arguments})
    assert words in str(caught.value)


def test_what_environments_are_made_with_is_what_a_resumption_reads() -> None:
    options = make_options("ppo", "Any-v0", env_kwargs={"size": (3, 4)})
    assert options.env_kwargs == {"size": [3, 4]}
    assert msgspec.json.decode(msgspec.json.encode(options), type=TrainingOptions) == options
