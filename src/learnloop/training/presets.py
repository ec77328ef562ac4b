"""Hyper-parameters that are known to work: by algorithm and environment, or by the name of a preset.

Those of environments are from rl-baselines3-zoo's ``hyperparams/*.yml``; where it uses state-dependent exploration
(gSDE), which is not here, ours leave it out. ``many-envs`` is our recommendation for environments that step cheaply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from learnloop.algorithms.building import translate
from learnloop.algorithms.on_policy.ppo import PPOConfig
from learnloop.core.decoding import convert_record
from learnloop.core.errors import UsageError, one_of


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """Where a training starts from; what the caller says wins."""

    steps: int
    """Environment steps, all lanes together."""
    updates: int = 20_000
    """Gradient steps, where it learns from a data set."""
    n_envs: int = 1
    options: dict[str, Any] = {}
    """Of the algorithm."""
    source: str = "rl-baselines3-zoo"


_WIDE: dict[str, Any] = {"net_arch": (256, 256)}
_DQN_FREQUENT: dict[str, Any] = {
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "gamma": 0.99,
    "target_update_interval": 250,
    "train_freq": 4,
    "gradient_steps": -1,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
    **_WIDE,
}
_SCALED = {"normalize_observations": True, "normalize_rewards": True}

_A2C: Mapping[str, Preset] = {
    "CartPole-v1": Preset(steps=500_000, n_envs=8, options={"ent_coef": 0.0}),
    "Acrobot-v1": Preset(steps=500_000, n_envs=16, options={"ent_coef": 0.0, **_SCALED}),
    "MountainCar-v0": Preset(steps=1_000_000, n_envs=16, options={"ent_coef": 0.0, **_SCALED}),
    "LunarLander-v3": Preset(
        steps=200_000,
        n_envs=8,
        options={"gamma": 0.995, "n_steps": 5, "learning_rate": "lin_0.00083", "ent_coef": 1e-5},
    ),
}
"""A3C takes them too: each of its workers has as many environments as A2C."""

_ZOO: Mapping[tuple[str, str], Preset] = {
    ("ppo", "CartPole-v1"): Preset(
        steps=100_000,
        n_envs=8,
        options={
            "n_steps": 32,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "n_epochs": 20,
            "ent_coef": 0.0,
            "learning_rate": "lin_0.001",
            "clip_range": "lin_0.2",
        },
    ),
    ("ppo", "Acrobot-v1"): Preset(
        steps=1_000_000,
        n_envs=16,
        options={"n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0, **_SCALED},
    ),
    ("ppo", "MountainCar-v0"): Preset(
        steps=1_000_000,
        n_envs=16,
        options={"n_steps": 16, "gae_lambda": 0.98, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0, **_SCALED},
    ),
    ("ppo", "Pendulum-v1"): Preset(
        steps=100_000,
        n_envs=4,
        options={"n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "learning_rate": 1e-3},
    ),
    ("ppo", "LunarLander-v3"): Preset(
        steps=1_000_000,
        n_envs=16,
        options={
            "n_steps": 1024,
            "batch_size": 64,
            "gae_lambda": 0.98,
            "gamma": 0.999,
            "n_epochs": 4,
            "ent_coef": 0.01,
        },
    ),
    **{(name, env): preset for name in ("a2c", "a3c") for env, preset in _A2C.items()},
    ("dqn", "CartPole-v1"): Preset(
        steps=50_000,
        options={
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1000,
            "gamma": 0.99,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04,
            **_WIDE,
        },
    ),
    ("dqn", "MountainCar-v0"): Preset(
        steps=120_000,
        options={
            "learning_rate": 4e-3,
            "batch_size": 128,
            "buffer_size": 10_000,
            "learning_starts": 1000,
            "gamma": 0.98,
            "target_update_interval": 600,
            "train_freq": 16,
            "gradient_steps": 8,
            "exploration_fraction": 0.2,
            "exploration_final_eps": 0.07,
            **_WIDE,
        },
    ),
    ("dqn", "Acrobot-v1"): Preset(steps=100_000, options=_DQN_FREQUENT),
    ("dqn", "LunarLander-v3"): Preset(steps=100_000, options=_DQN_FREQUENT),
    ("sac", "Pendulum-v1"): Preset(steps=20_000, options={"learning_rate": 1e-3}),
    ("sac", "LunarLanderContinuous-v3"): Preset(
        steps=500_000,
        options={
            "batch_size": 256,
            "learning_rate": "lin_7.3e-4",
            "tau": 0.01,
            "learning_starts": 10_000,
            "net_arch": (400, 300),
        },
    ),
}

_OURS = "learnloop"

PRESETS: Mapping[tuple[str, str], Preset] = {
    ("ppo", "many-envs"): Preset(
        steps=100_000,
        n_envs=64,
        options={
            "n_steps": 32,
            "batch_size": 256,
            "gae_lambda": 0.95,
            "gamma": 0.98,
            "n_epochs": 4,
            "ent_coef": 0.0,
            "learning_rate": 3e-3,
            "clip_range": 0.2,
        },
        source=_OURS,
    ),
    ("ppo", "prompt-mutation"): Preset(
        steps=100_000,
        n_envs=1,
        options={
            "net_arch": (256, 256, 128),
            "activation": "relu",
            "init": "xavier",
            "layer_norm": True,
            "dropout": 0.1,
            "learning_rate": 3e-4,
            "gamma": 0.99,
            "gae_lambda": 0.95,
            "clip_range": 0.2,
            "ent_coef": 0.01,
            "vf_coef": 0.5,
            "n_epochs": 4,
            "batch_size": 64,
            "n_steps": 2048,
        },
        source=_OURS,
    ),
    ("ppo", "orchestrator"): Preset(
        steps=100_000, options={"learning_rate": 3e-4, "batch_size": 64, "n_epochs": 4, **_WIDE}, source=_OURS
    ),
    ("dqn", "orchestrator"): Preset(
        steps=100_000, options={"learning_rate": 3e-4, "batch_size": 64, **_WIDE}, source=_OURS
    ),
    ("sac", "orchestrator"): Preset(
        steps=100_000, options={"learning_rate": 3e-4, "batch_size": 64, **_WIDE}, source=_OURS
    ),
}
"""By algorithm and name. ``prompt-mutation`` is for the choice of one of 5 prompt mutations by an embedding of 1536
numbers (S1.1; LayerNorm in the place of BatchNorm, which cannot give the same log-probability when acting and when
learning), ``orchestrator`` for an observation of 256 numbers and 64 actions (S2.2)."""

SEED_SHAPES: Mapping[str, tuple[int, int]] = {"prompt-mutation": (1536, 5), "orchestrator": (256, 64)}
"""Numbers of an observation and of actions that a preset is meant for."""

PLAIN = "defaults"
"""The preset of the algorithm's own defaults, also where rl-zoo knows better."""
DEFAULT_STEPS = 100_000
DEFAULT_ENVS: Mapping[str, int] = {"ppo": 8, "a2c": 8, "a3c": 8}


_OWN_ENVS: Mapping[tuple[str, str], Preset] = {
    ("ppo", "learnloop/ToolUse-v0"): Preset(steps=20_000, n_envs=8, options={"n_steps": 64}, source="learnloop"),
    ("dqn", "learnloop/ToolUse-v0"): Preset(
        steps=10_000,
        options={
            "gamma": 0.9,
            "learning_rate": 1e-3,
            "learning_starts": 500,
            "target_update_interval": 500,
            "exploration_fraction": 0.3,
        },
        source="learnloop",
    ),
}
"""Of our own environments, where the algorithm's defaults are not what they need."""


def find_preset(algorithm: str, env: str, name: str | None) -> Preset:
    """Returns where a training of ``algorithm`` in ``env`` starts from.

    Args:
        algorithm: its name.
        env: the environment's id; those of rl-zoo's tables have settings of their own.
        name: a preset's name; None: by environment, or the algorithm's defaults where it is not known.

    Raises:
        UsageError: there is no preset of that name for the algorithm.
    """
    plain = Preset(steps=DEFAULT_STEPS, n_envs=DEFAULT_ENVS.get(algorithm, 1), source=PLAIN)
    if name is None:
        return _ZOO.get((algorithm, env)) or _OWN_ENVS.get((algorithm, env), plain)
    if name == PLAIN:
        return plain
    found = PRESETS.get((algorithm, name))
    if found is None:
        known = [PLAIN, *(preset for owner, preset in PRESETS if owner == algorithm)]
        raise UsageError(f"{algorithm} has no preset {name!r}; it has {one_of(known)}")
    return found


def prompt_mutation_config(what: str, options: Mapping[str, Any], **chosen: Any) -> PPOConfig:
    """Returns PPO's hyper-parameters where others send the data: seed 1's preset, then ``chosen``, then ``options``.

    Args:
        what: how messages call ``options``, such as ``model.options``.
        options: of PPO, or the seed's names of them.
        chosen: what stands in the place of the preset's values.

    Raises:
        UsageError: an option is unknown or not allowed.
    """
    given = {**PRESETS["ppo", "prompt-mutation"].options, **chosen, **translate("ppo", options)}
    config = convert_record(given, f"{what} {dict(options)} do not fit PPO", PPOConfig, strict=False)
    if config.normalize_observations or config.normalize_rewards:
        raise UsageError(f"{what}: normalize_observations and normalize_rewards are not for data that others send")
    return config
