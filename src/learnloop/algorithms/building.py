"""From names and options, as people type them, to configs and algorithms."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from learnloop.algorithms.bandits.uniform import Random
from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.base.config import AlgorithmConfig
from learnloop.algorithms.off_policy.dqn import DQN
from learnloop.algorithms.off_policy.sac import SAC
from learnloop.algorithms.offline.awac import AWAC
from learnloop.algorithms.offline.bc import BC
from learnloop.algorithms.offline.cql import CQL
from learnloop.algorithms.offline.iql import IQL
from learnloop.algorithms.on_policy.a2c import A2C
from learnloop.algorithms.on_policy.a3c import A3C
from learnloop.algorithms.on_policy.ppo import PPO
from learnloop.core.decoding import convert_record
from learnloop.core.errors import UsageError, one_of
from learnloop.core.extensions import POINTS
from learnloop.core.spaces import Spaces
from learnloop.nn.network import Network

ALGORITHMS: Mapping[str, type[Algorithm]] = {
    each.tag: each for each in (PPO, DQN, A2C, A3C, SAC, BC, CQL, IQL, AWAC, Random)
}
"""The class of each sequential algorithm, by its name."""

ALIASES: Mapping[str, str] = {
    "lr": "learning_rate",
    "eps_clip": "clip_range",
    "entropy_coef": "ent_coef",
    "value_coef": "vf_coef",
    "lam": "gae_lambda",
    "gae_gamma": "gamma",
    "epochs": "n_epochs",
    "num_epochs": "n_epochs",
    "activation_fn": "activation",
    "clip_epsilon": "clip_range",
    "entropy_coeff": "ent_coef",
    "value_loss_coef": "vf_coef",
    "target_update_freq": "target_update_interval",
}
"""Other names of options, of the documents that describe this loop and of other libraries. Nothing inside uses them."""


def all_algorithms() -> list[str]:
    """Returns the names of all sequential algorithms: learnloop's own, and those that were added."""
    return sorted({*ALGORITHMS, *POINTS["algorithm"].names()})


def configure(name: str, options: Mapping[str, Any]) -> AlgorithmConfig:
    """Returns the config of the algorithm called ``name``.

    Options have Stable-Baselines3's names; those of ``ALIASES``, ``hidden_dim`` (three layers: 256 gives 256-256-128)
    and, for PPO and A2C, ``buffer_size`` (their ``n_steps``) are understood too.

    Raises:
        UsageError: there is no such algorithm or option (the nearest names are told), or a value is not allowed.
    """
    config = find_algorithm(name).config_type
    what = f"the options {dict(options)} do not fit {name!r}"
    return convert_record(translate(name, options), what, config, strict=False)


def find_algorithm(name: str) -> type[Algorithm]:
    """Returns the class of the algorithm called ``name``.

    Raises:
        UsageError: there is none; the nearest names are told.
    """
    given: object = name
    if isinstance(given, str):
        if name in ALGORITHMS:
            return ALGORITHMS[name]
        added = POINTS["algorithm"].find(name)
        if added is not None:
            return check_algorithm(name, added)
    known = all_algorithms()
    raise UsageError(f"no algorithm is called {name!r}{nearest(name, known)}; known are {one_of(known, 20)}")


def check_algorithm(name: str, value: object) -> type[Algorithm]:
    """Returns what is to be added as the algorithm ``name``.

    Args:
        name: under which it is.
        value: a class with ``config_type``, a subclass of ``AlgorithmConfig`` whose tag is ``name``.

    Raises:
        UsageError: it is no such class.
    """
    wanted = (
        f"a subclass of learnloop.algorithms.Algorithm with config_type, whose config and itself have the tag {name!r}"
    )
    if not isinstance(value, type) or not issubclass(value, Algorithm):
        raise UsageError(f"the algorithm {name!r} is {value!r}; needed is {wanted}")
    if missing := sorted(getattr(value, "__abstractmethods__", ())):
        raise UsageError(f"the algorithm {name!r} is abstract: {value.__name__} does not define {one_of(missing)}")
    config: object = getattr(value, "config_type", None)
    if not isinstance(config, type) or not issubclass(config, AlgorithmConfig):
        raise UsageError(f"the algorithm {name!r} has config_type {config!r}; needed is {wanted}")
    tags = (config.__struct_config__.tag, getattr(value, "tag", None))
    if tags != (name, name):
        raise UsageError(f"the algorithm {name!r} has the tags {tags} (config, class); needed is {wanted}")
    return value


def build_algorithm(
    config: AlgorithmConfig, spaces: Spaces, *, num_envs: int = 1, seed: int = 0, **networks: Network
) -> Algorithm:
    """Returns a fresh algorithm for ``config``.

    Args:
        config: which one, and how.
        spaces: what it sees and what it may do.
        num_envs: how many environments it serves at once.
        seed: all its random numbers derive from it.
        networks: of one's own in the place of the default ones: ``network``, or SAC's ``actor`` and ``critic``.

    Raises:
        UsageError: the config does not fit the spaces, or contradicts the number of envs.
    """
    tag = tag_of(config)
    algorithm = find_algorithm(tag) if tag in all_algorithms() else None
    if algorithm is None or type(config) is not algorithm.config_type:
        raise UsageError(f"{type(config).__name__} is the config of no sequential algorithm")
    return algorithm(config, spaces, num_envs=num_envs, seed=seed, **networks)


def tag_of(config: AlgorithmConfig) -> str:
    """Returns the name of the algorithm that ``config`` is for."""
    return str(type(config).__struct_config__.tag)


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a hint at the known names that are most like ``name``; empty where none is."""
    close = difflib.get_close_matches(str(name), list(known), n=3)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""


def translate(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``options`` of the algorithm called ``name`` under their own names.

    Raises:
        UsageError: there is no such algorithm or option, or two of them are the same one.
    """
    fields = find_algorithm(name).config_type.__struct_fields__
    found: dict[str, Any] = {}
    for key, value in options.items():
        target, translated = key, value
        if key not in fields:
            target, translated = _from_alias(name, key, value, fields)
        if target in found:
            raise UsageError(f"{key!r} and another option both set {target!r}; give one of them")
        found[target] = translated
    return found


def _from_alias(name: str, key: str, value: Any, fields: tuple[str, ...]) -> tuple[str, Any]:
    if key == "hidden_dim" and "net_arch" in fields:
        if not isinstance(value, int) or value < 2:
            raise UsageError(f"hidden_dim is {value!r}; a whole number from 2 is needed")
        return "net_arch", (value, value, value // 2)
    if key == "buffer_size" and "n_steps" in fields:
        return "n_steps", value
    target = ALIASES.get(key)
    if target is None or target not in fields:
        raise UsageError(
            f"{name} has no option {key!r}{nearest(key, [*fields, *ALIASES])}; its options are {one_of(fields, 40)}"
        )
    return target, value
