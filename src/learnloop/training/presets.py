"""Where trainings start from: hyper-parameters that are known to work, which ``presets.toml`` holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from learnloop.algorithms.building import translate
from learnloop.algorithms.on_policy.ppo import PPOConfig
from learnloop.core.decoding import convert_record
from learnloop.core.errors import UsageError, one_of


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a training starts from; what the caller says wins."""

    steps: int
    """Environment steps, of all environments together."""
    updates: int = 20_000
    """Gradient steps, where it learns from a data set."""
    n_envs: int = 1
    options: dict[str, Any] = {}
    """Of the algorithm."""


class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Presets by algorithm, then by environment or by name."""

    zoo: dict[str, dict[str, Preset]]
    own: dict[str, dict[str, Preset]]
    named: dict[str, dict[str, Preset]]


_TABLES = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Tables)

PRESETS: Mapping[tuple[str, str], Preset] = {
    (algorithm, name): preset for algorithm, presets in _TABLES.named.items() for name, preset in presets.items()
}
"""Those that are asked for by name, by algorithm and name."""

PLAIN = "defaults"
"""The preset of the algorithm's own defaults, also where rl-zoo knows better."""
DEFAULT_STEPS = 100_000
DEFAULT_ENVS: Mapping[str, int] = {"ppo": 8, "a2c": 8, "a3c": 8}


def find_preset(algorithm: str, env: str, name: str | None) -> Preset:
    """Returns where a training of ``algorithm`` in ``env`` starts from.

    Args:
        algorithm: its name.
        env: the environment's id; those of rl-zoo's tables have settings of their own.
        name: a preset's name; None: by environment, or the algorithm's defaults where it is not known.

    Raises:
        UsageError: there is no preset of that name for the algorithm.
    """
    plain = Preset(steps=DEFAULT_STEPS, n_envs=DEFAULT_ENVS.get(algorithm, 1))
    if name == PLAIN:
        return plain
    if name is None:
        zoo = _TABLES.zoo.get("a2c" if algorithm == "a3c" else algorithm, {})
        return zoo.get(env) or _TABLES.own.get(algorithm, {}).get(env, plain)
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
