"""What one training is asked to do, as data: written beside its results, enough to do it again."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from learnloop.algorithms.base.config import AlgorithmConfig
from learnloop.algorithms.building import ALGORITHMS, configure, find_algorithm, tag_of, translate
from learnloop.core.checks import check_range, check_whole
from learnloop.core.datasets import Dataset
from learnloop.core.decoding import convert_record
from learnloop.core.errors import UsageError, one_of
from learnloop.nn.network_builders import DEFAULT, check_network
from learnloop.training.presets import find_preset

Vectorization = Literal["auto", "sync", "subprocess", "vector"]


class TrainingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One training of one algorithm in one environment, but for its seed."""

    algorithm: str
    env: str | None = None
    """The environment's id, or a description of the caller's own. None: it learns from a data set, and what its policy
    earns is not measured."""
    steps: int | None = None
    """When it ends: so many environment steps, all envs together. None: it learns from a data set."""
    updates: int | None = None
    """When it ends, if it learns from a data set: so many gradient steps."""
    dataset: str | None = None
    """The fingerprint of the data set that it learns from; None: it learns in ``env``."""
    episodes: int | None = None
    """When it ends at the latest: so many episodes; None: ``steps`` alone counts."""
    n_envs: int = 1
    """How many environments run side by side."""
    vectorization: Vectorization = "auto"
    env_kwargs: dict[str, Any] = {}
    config: dict[str, Any]
    """The whole config of the algorithm."""
    network: str = DEFAULT
    """``mlp``, or the name of one that was added, which stands in for it in each of the algorithm's networks."""
    device: str = "cpu"
    """``cpu``: numpy; another one, such as ``cuda``: torch."""
    checkpoint_interval: int | None = None
    """Steps (updates, with a data set) between checkpoints; None: none. At a checkpoint all envs begin new episodes,
    so that a training that is resumed from it sees what the uninterrupted one saw."""
    eval_interval: int
    """Steps (updates, with a data set) between evaluations; the best of them is kept."""
    eval_episodes: int = 10
    shuffled: bool = False
    """Whether what is learned from is shuffled among actions: the shuffled control of a proof, which must not learn."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        if (self.steps is None) == (self.updates is None) or (self.updates is None) != (self.dataset is None):
            raise UsageError(
                "a training in an environment ends after steps, one from a data set after updates: give one of them"
            )
        if self.env is None and self.dataset is None:
            raise UsageError("there is no environment and no data set; one to learn from is needed")
        for name in ("episodes", "steps", "updates", "n_envs", "eval_interval", "eval_episodes", "checkpoint_interval"):
            value = getattr(self, name)
            if value is not None:
                check_range(name, value, 1)

    @property
    def budget(self) -> int:
        """When it ends: steps, or updates where it learns from a data set."""
        return self.steps or self.updates or 0  # one of them is there, and at least 1

    def algorithm_config(self) -> AlgorithmConfig:
        """Returns the config as its record."""
        return configure(self.algorithm, {name: value for name, value in self.config.items() if name != "algorithm"})


OF_THE_MLP = ("net_arch", "activation", "init", "layer_norm", "dropout")
"""Options that say what the default network is like."""


MAX_EPISODE_STEPS = 1_000
"""How many steps an episode is taken to have at the most where only episodes are asked for."""


def make_options(
    algorithm: str,
    env: str | None,
    *,
    steps: int | None = None,
    episodes: int | None = None,
    dataset: Dataset | None = None,
    preset: str | None = None,
    options: dict[str, Any] | None = None,
    **others: Any,
) -> TrainingOptions:
    """Returns the options of a training: what is given, else the preset's, else the algorithm's defaults.

    Args:
        algorithm: the name of one, such as ``ppo``.
        env: the environment's id; None: it learns from ``dataset``, and is not evaluated.
        steps: environment steps; None: the preset's, or as many as ``episodes`` take.
        episodes: ends after so many, if that comes first.
        dataset: what it learns from in the place of an environment.
        preset: None: rl-zoo's settings for the environment, or the algorithm's defaults where it has none.
        options: hyper-parameters, which win over the preset's.
        others: fields of ``TrainingOptions``; of ``n_envs`` and ``updates`` the preset's where they are not given.

    Raises:
        UsageError: an unknown algorithm, preset or option, or values that contradict each other.
    """
    is_offline = find_algorithm(algorithm).is_offline
    updates, n_envs = others.pop("updates", None), others.pop("n_envs", None)
    check_source(algorithm, has_dataset=dataset is not None)
    for name, value in (("steps", steps), ("episodes", episodes), ("updates", updates), ("n_envs", n_envs)):
        if value is not None:
            _check_unit(algorithm, name, is_offline)
            check_whole(name, value)
    named: object = preset
    if named is not None and not isinstance(named, str):
        raise UsageError(f"preset is {named!r}; the name of one is needed")
    others = {name: value for name, value in others.items() if value is not None}
    if "env_kwargs" in others:
        others["env_kwargs"] = _as_json(others["env_kwargs"])
    start = find_preset(algorithm, env or "", preset)
    own = translate(algorithm, options or {})
    _check_network(others.get("network", DEFAULT), own)
    config = configure(algorithm, {**start.options, **own})
    if is_offline:
        length = usual = start.updates if updates is None else updates
    else:
        usual = start.steps if steps is None or episodes is not None else steps  # episodes may end it long before
        length = steps or (start.steps if episodes is None else episodes * MAX_EPISODE_STEPS)
    fields: dict[str, Any] = {
        "algorithm": tag_of(config),
        "env": env,
        "updates" if is_offline else "steps": length,
        "episodes": episodes,
        "dataset": None if dataset is None else dataset.fingerprint(),
        "n_envs": 1 if is_offline else start.n_envs if n_envs is None else n_envs,
        "config": msgspec.json.decode(msgspec.json.encode(config)),
        "eval_interval": max(1, usual // 20),
        **others,
    }
    return convert_record(fields, "the training's options cannot be used", TrainingOptions)


def check_source(algorithm: str, *, has_dataset: bool) -> None:
    """Returns if ``algorithm`` learns from what it is given: a data set, or an environment in which it acts.

    Raises:
        UsageError: it does not, or there is no such algorithm.
    """
    is_offline = find_algorithm(algorithm).is_offline
    offline = [name for name, each in ALGORITHMS.items() if each.is_offline]
    if is_offline and not has_dataset:
        raise UsageError(
            f"{algorithm} learns from logged episodes; give a file of them (--trace-file) or a data set (dataset=)"
        )
    if not is_offline and has_dataset:
        raise UsageError(
            f"{algorithm} learns by its own actions in an environment: what others would have brought is not in a log. "
            f"From logs learn {one_of(offline)}"
        )


def _check_network(name: Any, options: dict[str, Any]) -> None:
    if not isinstance(name, str):
        raise UsageError(f"network is {name!r}; the name of one is needed")
    check_network(name)
    unused = [each for each in OF_THE_MLP if each in options]
    if name != DEFAULT and unused:
        raise UsageError(f"the network {name!r} has layers of its own; leave out {one_of(unused)}")


def _check_unit(algorithm: str, name: str, is_offline: bool) -> None:
    """Raises UsageError where ``name`` means nothing to an algorithm that learns from data, or in an environment."""
    if is_offline and name != "updates":
        raise UsageError(
            f"{algorithm} takes no step in an environment: leave steps, episodes and n_envs out, and give updates"
        )
    if not is_offline and name == "updates":
        raise UsageError(f"{algorithm} ends after environment steps; give steps or episodes in the place of updates")


def _as_json(env_kwargs: Any) -> Any:
    """Returns ``env_kwargs`` as they are written beside the results, and read for a resumption."""
    try:
        return json.loads(json.dumps(env_kwargs, allow_nan=False)) if isinstance(env_kwargs, dict) else env_kwargs
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"env_kwargs {env_kwargs!r} cannot be written as JSON ({error}), so that the training could be repeated; "
            "give a callable that makes the environment with them instead"
        ) from error
