"""What one training is asked to do, as data: written beside its results, enough to do it again."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from learnloop.algorithms.algorithm_config import AlgorithmConfig, check_count
from learnloop.algorithms.building import configure, find_algorithm, tag_of, translate
from learnloop.core.errors import UsageError
from learnloop.training.presets import find_preset

Vectorization = Literal["auto", "sync", "subprocess", "vector"]


class TrainingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One training of one algorithm in one environment, but for its seed."""

    algorithm: str
    env: str
    """The environment's id, or a description of the caller's own."""
    steps: int
    """When it ends: so many environment steps, all lanes together."""
    episodes: int | None = None
    """When it ends at the latest: so many episodes; None: ``steps`` alone counts."""
    n_envs: int = 1
    """How many environments run side by side: its lanes."""
    vectorization: Vectorization = "auto"
    env_kwargs: dict[str, Any] = {}
    config: dict[str, Any]
    """The whole config of the algorithm."""
    device: str = "cpu"
    """``cpu``: numpy; another one, such as ``cuda``: torch."""
    checkpoint_interval: int | None = None
    """Steps between checkpoints; None: none. At a checkpoint all lanes begin new episodes, so that a training that is
    resumed from it sees what the uninterrupted one saw."""
    eval_interval: int
    """Steps between evaluations; the best of them is kept."""
    eval_episodes: int = 10
    shuffled: bool = False
    """Whether what is learned from is shuffled among actions: the twin of a proof, which must not learn."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        for name in ("episodes", "steps", "n_envs", "eval_interval", "eval_episodes", "checkpoint_interval"):
            value = getattr(self, name)
            if value is not None:
                check_count(name, value)

    def algorithm_config(self) -> AlgorithmConfig:
        """Returns the config as its record."""
        return configure(self.algorithm, {name: value for name, value in self.config.items() if name != "algorithm"})


MAX_EPISODE_STEPS = 1_000
"""How many steps an episode is taken to have at the most where only episodes are asked for."""


def make_options(
    algorithm: str,
    env: str,
    *,
    steps: int | None = None,
    episodes: int | None = None,
    preset: str | None = None,
    options: dict[str, Any] | None = None,
    n_envs: int | None = None,
    **others: Any,
) -> TrainingOptions:
    """Returns the options of a training: what is given, else the preset's, else the algorithm's defaults.

    Args:
        algorithm: ``ppo``, ``dqn``, ``a2c``, ``sac`` or ``random``.
        env: the environment's id.
        steps: environment steps; None: the preset's, or as many as ``episodes`` take.
        episodes: ends after so many, if that comes first.
        preset: None: rl-zoo's settings for the environment, or the algorithm's defaults where it has none.
        options: hyper-parameters, which win over the preset's.
        n_envs: lanes; None: the preset's.
        others: fields of ``TrainingOptions``.

    Raises:
        UsageError: an unknown algorithm, preset or option, or values that contradict each other.
    """
    find_algorithm(algorithm)
    counts: dict[str, object] = {"steps": steps, "episodes": episodes, "n_envs": n_envs}
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise UsageError(f"{name} is {value!r}; a whole number from 1 is needed")
    named: object = preset
    if named is not None and not isinstance(named, str):
        raise UsageError(f"preset is {named!r}; the name of one is needed")
    others = {name: value for name, value in others.items() if value is not None}
    if "env_kwargs" in others:
        others["env_kwargs"] = _as_json(others["env_kwargs"])
    start = find_preset(algorithm, env, preset)
    config = configure(algorithm, {**start.options, **translate(algorithm, options or {})})
    if steps is None:
        steps = start.steps if episodes is None else episodes * MAX_EPISODE_STEPS
    fields: dict[str, Any] = {
        "algorithm": tag_of(config),
        "env": env,
        "steps": steps,
        "episodes": episodes,
        "n_envs": start.n_envs if n_envs is None else n_envs,
        "config": msgspec.json.decode(msgspec.json.encode(config)),
        "eval_interval": max(1, (start.steps if episodes is not None else steps) // 20),
        **others,
    }
    try:
        return msgspec.convert(fields, TrainingOptions)
    except msgspec.ValidationError as error:
        raise UsageError(f"the training's options cannot be used: {error}") from error


def _as_json(env_kwargs: Any) -> Any:
    """Returns ``env_kwargs`` as they are written beside the results, and read for a resumption."""
    try:
        return json.loads(json.dumps(env_kwargs, allow_nan=False)) if isinstance(env_kwargs, dict) else env_kwargs
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"env_kwargs {env_kwargs!r} cannot be written as JSON ({error}), so that the training could be repeated; "
            "give a callable that makes the environment with them instead"
        ) from error
