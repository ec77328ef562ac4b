"""What is probed, and how: an algorithm by name, class or callable, and the settings with which ours pass."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.base.config import AlgorithmConfig
from learnloop.algorithms.building import build_algorithm, configure, find_algorithm
from learnloop.core.decoding import convert_record
from learnloop.core.errors import UsageError, one_of
from learnloop.core.spaces import Spaces
from learnloop.testing.probes import GAMMA, PROBES, Probe

Options = Mapping[str, Any]
NO_OPTIONS: Options = MappingProxyType({})


class Make(Protocol):
    """Makes a fresh algorithm."""

    def __call__(self, spaces: Spaces, *, num_envs: int, seed: int) -> Algorithm:
        """Returns one for ``spaces``."""
        ...


CHOICES: Mapping[str, Probe] = {
    "P11": Probe("P11", "MaskedReward", "masks that are not kept", {}),
    "P12": Probe("P12", "ChangingReward", "learning that stops", {}),
}
"""Probes that are not in ``PROBES``: what is chosen is judged, not what is said of it."""
KNOWN: Mapping[str, Probe] = {**PROBES, **CHOICES}
"""All that judge an algorithm."""
ELSEWHERE = {"P13": "credit (learnloop.testing.credit_probe)", "P14": "a replay (learnloop.testing.replay_probe)"}
"""Probes that judge something else than an algorithm."""
DEFAULT_PROBES = (*PROBES, "P11")
"""P12 asks for settings that learn on for ever, and is run where it is named."""


class ProbeSettings(NamedTuple):
    """With what an algorithm is trained on a probe."""

    steps: int
    """Environment steps, all envs together."""
    num_envs: int
    options: Options = NO_OPTIONS
    """Of its config, if it has one."""


ON_POLICY: Mapping[str, Options] = {
    "ppo": {"n_steps": 16, "batch_size": 64, "n_epochs": 4, "learning_rate": "lin_0.01", "net_arch": (32,)},
    "a2c": {"n_steps": 8, "learning_rate": "lin_0.01", "net_arch": (32,), "use_rms_prop": False},
    "a3c": {"n_steps": 8, "learning_rate": "lin_0.01", "net_arch": (32,), "use_rms_prop": False},
}
OFF_POLICY: Options = {
    "net_arch": (32,),
    "learning_starts": 100,
    "batch_size": 64,
    "buffer_size": 5_000,
    "train_freq": 2,
    "learning_rate": "lin_0.01",
}
TEMPERATURE = 0.5
"""Of SAC with discrete actions: high enough for the worse observations to be seen now and then."""
CONTINUOUS_TEMPERATURE = 0.2

_DISCRETE: Mapping[str, ProbeSettings] = {
    **{name: ProbeSettings(8_000, 8, options) for name, options in ON_POLICY.items()},
    "dqn": ProbeSettings(
        6_000,
        2,
        {**OFF_POLICY, "target_update_interval": 50, "exploration_final_eps": 0.5, "exploration_fraction": 0.5},
    ),
    "sac": ProbeSettings(6_000, 2, {**OFF_POLICY, "ent_coef": TEMPERATURE, "tau": 0.05}),
}
_CONTINUOUS: Mapping[str, ProbeSettings] = {
    **{name: ProbeSettings(24_000, 8, {**options, "log_std_init": -0.5}) for name, options in ON_POLICY.items()},
    "sac": ProbeSettings(
        8_000, 2, {**OFF_POLICY, "ent_coef": CONTINUOUS_TEMPERATURE, "tau": 0.05, "learning_rate": "lin_0.005"}
    ),
}
_STEADY: Mapping[str, Options] = {
    **{name: {"learning_rate": 0.01} for name in ON_POLICY},
    "dqn": {"learning_rate": 3e-3, "buffer_size": 2_000, "exploration_final_eps": 0.1, "exploration_fraction": 0.3},
    "sac": {"learning_rate": 3e-3, "buffer_size": 2_000},
}
"""For P11 and P12: a rate that does not fall, and a replay that forgets. A2C fails P12 all the same: its policy has
become greedy by the flip."""
UNKNOWN = ProbeSettings(8_000, 8)
"""Of an algorithm that is not ours."""


def settings_for(name: str, probe: str = "P1", *, continuous: bool = False) -> ProbeSettings:
    """Returns with what the algorithm called ``name`` is trained on ``probe``; ``UNKNOWN`` where it is not ours."""
    found = (_CONTINUOUS if continuous else _DISCRETE).get(name, UNKNOWN)
    if probe in CHOICES and name in _STEADY:
        return found._replace(options={**found.options, **_STEADY[name]})
    return found


class Subject(NamedTuple):
    """An algorithm that is probed."""

    name: str
    build: Callable[[Options], Make]
    """From the options of its config to what makes it."""
    takes_options: bool

    def make(self, options: Options, spaces: Spaces, *, num_envs: int, seed: int) -> Algorithm:
        """Returns a fresh one for probes.

        Raises:
            UsageError: it is no Algorithm, learns from data, has another discount than the probes, or refuses the
                spaces or the options.
        """
        algorithm: object = self.build(options)(spaces, num_envs=num_envs, seed=seed)
        if not isinstance(algorithm, Algorithm):
            raise UsageError(
                f"{self.name} gave a {type(algorithm).__name__}; an object of a subclass of "
                "learnloop.algorithms.Algorithm is needed"
            )
        if algorithm.is_offline:
            raise UsageError(f"{self.name} learns from a data set; the probes are learned by acting")
        gamma = algorithm.config.gamma
        if gamma != GAMMA:
            raise UsageError(
                f"the gamma of {self.name} is {gamma}; what is right was worked out for {GAMMA} "
                "(learnloop.testing.probes.GAMMA): set it"
            )
        return algorithm


def subject_of(target: str | type[Algorithm] | Make, name: str | None = None) -> Subject:
    """Returns what can be probed.

    Args:
        target: the name of an algorithm of ours; a subclass of ``Algorithm`` whose constructor takes a config, spaces,
            ``num_envs`` and ``seed``; or a callable that takes spaces, ``num_envs`` and ``seed``.
        name: what messages call it.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(target, str):
        find_algorithm(target)
        return Subject(name or target, lambda options: _configured(target, options), True)
    called = str(name or getattr(target, "__name__", type(target).__name__))
    if isinstance(target, type):
        if not issubclass(target, Algorithm):
            raise UsageError(f"{called} is a class, but no subclass of learnloop.algorithms.Algorithm")
        return Subject(called, lambda options: _of_class(target, called, options), True)
    given: object = target
    if not callable(given):
        raise UsageError(f"{called} is a {type(target).__name__}; a class or a callable make(spaces, num_envs, seed)")
    return Subject(called, lambda options: _of_callable(target, called, options), False)


def _configured(name: str, options: Options) -> Make:
    config = configure(name, {"gamma": GAMMA, **options})
    return lambda spaces, *, num_envs, seed: build_algorithm(config, spaces, num_envs=num_envs, seed=seed)


def _of_class(kind: type[Any], name: str, options: Options) -> Make:
    if inspect.isabstract(kind):
        missing = one_of(sorted(kind.__abstractmethods__))
        raise UsageError(f"{name} is abstract; it does not define {missing}")
    config_kind = _config_of(kind, name)
    fields = config_kind.__struct_fields__
    given, what = {"gamma": GAMMA, **options}, f"the options {dict(options)} do not fit {name}"
    config = convert_record(given, what, config_kind, hint=f"; it has {one_of(fields, 40)}", strict=False)
    return lambda spaces, *, num_envs, seed: kind(config, spaces, num_envs=num_envs, seed=seed)


def _config_of(kind: type[Any], name: str) -> type[AlgorithmConfig]:
    """Returns the class of the config that the constructor of ``kind`` takes, or its attribute says: the nearer one."""
    try:
        hints = [typing.get_type_hints(each).get("config") for each in (kind, kind.__init__)]
    except NameError as error:
        raise UsageError(f"the annotations of {name} cannot be read: {error}") from error
    found = [each for each in hints if isinstance(each, type) and issubclass(each, AlgorithmConfig)]
    if not found:
        raise UsageError(
            f"the constructor of {name} says no config that is a subclass of AlgorithmConfig; annotate it, or give a "
            "callable make(spaces, num_envs, seed) in its place"
        )
    return max(found, key=lambda each: len(each.__mro__))


def _of_callable(target: Make, name: str, options: Options) -> Make:
    if options:
        raise UsageError(f"{name} is a callable and takes no options; set {one_of(options)} in it")
    try:
        inspect.signature(target).bind(None, num_envs=1, seed=0)
    except TypeError as error:
        raise UsageError(f"{name} cannot be called as make(spaces, num_envs=1, seed=0): {error}") from error
    return target
