"""Environments by name: aliases, our own under ``learnloop/``, suggestions for unknown names, and how one is made."""

from __future__ import annotations

import copy
import difflib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from learnloop.core.errors import LearnloopError, NotFoundError, UsageError, one_of
from learnloop.core.extensions import POINTS
from learnloop.core.importing import import_named
from learnloop.envs.probes import REGISTERED as PROBES
from learnloop.envs.streams.masks import with_masks
from learnloop.envs.text_view import TEXT_ENCODER, with_text_encoder

NAMESPACE = "learnloop"
ADDED = "plugin/"
"""The namespace of environments that were added by name."""
ALIASES = {
    "acrobot": "Acrobot-v1",
    "bipedalwalker": "BipedalWalker-v3",
    "cartpole": "CartPole-v1",
    "goal-task": "learnloop/GoalTask-v0",
    "identity": "learnloop/Identity-v0",
    "jsonl": "learnloop/TraceReplay-v0",
    "llm-task": "learnloop/LLMTask-v0",
    "lunarlander": "LunarLander-v3",
    "mountaincar": "MountainCar-v0",
    "pendulum": "Pendulum-v1",
    "prompt-mutation": "learnloop/PromptMutation-v0",
    "tool-use": "learnloop/ToolUse-v0",
    "trace-replay": "learnloop/TraceReplay-v0",
}
"""Short names for environments, in lower case."""

REGISTERED: Mapping[str, tuple[type | str, Mapping[str, Any]]] = {
    **PROBES,
    "GoalTask-v0": ("learnloop.envs.goals.task:GoalTask", {}),
    "LLMTask-v0": ("learnloop.envs.llm_task:LLMTask", {}),
    "PromptMutation-v0": ("learnloop.envs.prompt_mutation:PromptMutationSimulator", {}),
    "ToolUse-v0": ("learnloop.envs.tool_use:ToolUse", {}),
    "TraceReplay-v0": ("learnloop.training.replaying:trace_replay", {}),
}
"""What is registered under ``learnloop/``: its class, or where that is, and what it is made with."""

_EXTRAS = {
    "gymnasium.envs.box2d": "box2d",
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.phys2d": "jax",
    "gymnasium.envs.tabular": "jax",
    "ale_py": "atari",
    "shimmy": "atari",
}
"""Which of gymnasium's extras the environments of a module need."""

_NOT_SINGLE = {"render_mode", "num_envs", "vectorization_mode", "vector_kwargs", "wrappers", "max_episode_steps"}
"""What gymnasium notes among the arguments of an environment that are no arguments of its class."""

_TOLD = ("max_episode_steps", "render_mode")
"""Arguments that mean nothing where they are None."""

EnvMaker = Callable[..., gymnasium.Env[Any, Any]]


class MadeEnv(NamedTuple):
    """One environment, ready to be stepped by us."""

    env: gymnasium.Env[Any, Any]
    max_steps: int | None
    """After so many steps we say truncated: what its TimeLimit would have done. None: it ends by itself."""


def register_envs() -> None:
    """Registers our environments with gymnasium, under ``learnloop/``; again is harmless."""
    for name, (entry_point, kwargs) in REGISTERED.items():
        if (env_id := f"{NAMESPACE}/{name}") not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=cast(Any, entry_point), kwargs=dict(kwargs))


def resolve_env(name: str) -> str:
    """Returns the id under which gymnasium makes the environment ``name``, an id or one of ``ALIASES``.

    Raises:
        NotFoundError: there is none of this name; the nearest names are said.
        UsageError: it needs an optional package (the line that installs it is said), or the module that registers it
            is not named, or cannot be imported.
    """
    register_envs()
    env_id = ALIASES.get(name.lower(), name)
    if ":" not in env_id and env_id not in gymnasium.registry:
        env_id = added_env(env_id) or env_id
    module, colon, registered = env_id.rpartition(":")  # gymnasium's form "module:id", which registers by its import
    if colon:
        import_named(module, f"the environment {name!r}", "my_envs:MyEnv-v0")
    spec = gymnasium.registry.get(registered)
    if spec is None:
        raise NotFoundError(f"there is no environment {name!r}; {_suggestion(name)}")
    _load(spec)
    return env_id


def added_env(name: str) -> str | None:
    """Returns the id of an environment that was added as ``name``, or None where none was.

    Raises:
        UsageError: it is neither an id nor what makes an environment.
        ExtensionError: its package cannot be imported.
    """
    plain = name.removeprefix(ADDED)
    found = POINTS["environment"].find(plain)
    if found is None:
        return None
    target = check_env_maker(plain, found)
    if isinstance(target, str):
        return ALIASES.get(target.lower(), target)
    env_id = f"{ADDED}{plain}"
    known = gymnasium.registry.get(env_id)
    if known is None or known.entry_point is not target:  # it may have been defined again
        gymnasium.registry.pop(env_id, None)
        gymnasium.register(env_id, entry_point=cast(Any, target))
    return env_id


def check_env_maker(name: str, value: object) -> str | EnvMaker:
    """Returns what is to be added as the environment ``name``.

    Raises:
        UsageError: it is neither an id nor what makes an environment when it is called.
    """
    is_maker = issubclass(value, gymnasium.Env) if isinstance(value, type) else callable(value)
    if not is_maker and not (isinstance(value, str) and value):
        raise UsageError(
            f"the environment {name!r} is {value!r}; the id of a gymnasium environment, a subclass of gymnasium.Env, "
            "or a function that returns an environment, is needed"
        )
    return cast("str | EnvMaker", value)


def portable_env(env: str | EnvMaker) -> str | EnvMaker:
    """Returns what another process can make ``env`` of: what was registered in this process goes there itself."""
    if not isinstance(env, str) or not POINTS["environment"].is_local(plain := env.removeprefix(ADDED)):
        return env
    return check_env_maker(plain, POINTS["environment"].find(plain))


def _suggestion(name: str) -> str:
    known = {each.lower(): each for each in [*ALIASES, *POINTS["environment"].names(), *gymnasium.registry]}
    short = {key.rpartition("/")[2]: value for key, value in known.items()}
    near = difflib.get_close_matches(name.lower(), [*known, *short], n=6, cutoff=0.6)
    names = dict.fromkeys(known.get(each) or short[each] for each in near)
    if not names:
        return "see gymnasium.pprint_registry() for all, or give a callable that returns a gymnasium.Env"
    return f"did you mean {one_of(names, 4)}?"


def _load(spec: EnvSpec) -> None:
    """Imports an environment's class, so that what is missing shows before anything is made."""
    if not isinstance(spec.entry_point, str):
        return
    try:
        load_env_creator(spec.entry_point)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        module = spec.entry_point.partition(":")[0]
        extra = next((extra for prefix, extra in _EXTRAS.items() if module.startswith(prefix)), None)
        line = f'. Install it with: pip install "gymnasium[{extra}]"' if extra else ""
        raise UsageError(
            f"the environment {spec.id!r} needs a package that is not installed ({error}){line}"
        ) from error


def has_vector_entry(env_id: str) -> bool:
    """Returns whether gymnasium has a vectorised form of the environment."""
    spec = gymnasium.registry[env_id.rpartition(":")[2]]
    return spec.vector_entry_point is not None and not spec.additional_wrappers


def make_env(env: str | EnvMaker, env_kwargs: Mapping[str, Any] | None = None) -> MadeEnv:
    """Returns one environment, made by its id or by a callable.

    ``text_encoder`` among ``env_kwargs`` names the encoder that its texts are seen through.

    One that is made by its id comes without gymnasium's checker, which warns at each fault instead of stopping, and
    without ``TimeLimit`` and ``OrderEnforcing``, which cost more than a microsecond a step: whoever steps it counts.

    Raises:
        UsageError: it cannot be made, or is none.
    """
    if isinstance(env, str) and env.startswith(ADDED):
        resolve_env(env)  # another process registered it
    given = dict(env_kwargs or {})
    encoder = given.pop(TEXT_ENCODER, None)
    made = _make(env, checked_kwargs(env, given) if isinstance(env, str) else given)
    return made if encoder is None else made._replace(env=with_text_encoder(made.env, encoder, label_of(env)))


def _make(env: str | EnvMaker, kwargs: dict[str, Any]) -> MadeEnv:
    try:
        if not isinstance(env, str):
            return MadeEnv(with_masks(env(**kwargs)), None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # "there is a newer version": the name was asked for
            made = gymnasium.make(env, disable_env_checker=True, **kwargs)
    except LearnloopError:
        raise
    except Exception as error:  # whatever a constructor of the caller's raises
        raise UsageError(
            f"the environment {label_of(env)!r} cannot be made with {kwargs}: {type(error).__name__}: {error}"
        ) from error
    max_steps = None
    if type(made) is TimeLimit and made.spec is not None:
        max_steps, made = made.spec.max_episode_steps, made.env
    if type(made) is OrderEnforcing:
        made = made.env
    if type(made.action_space) is gymnasium.spaces.Discrete:
        made.action_space.__class__ = _QuickDiscrete
    return MadeEnv(with_masks(made), max_steps)


def checked_kwargs(env_id: str, env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what an environment is made with, without what says nothing.

    Raises:
        UsageError: ``max_episode_steps`` is no whole number from 1 (gymnasium takes -1 for no limit, or cuts each
            step, by the form of the environment), or the environment has no such ``render_mode``.
    """
    kwargs = {name: value for name, value in env_kwargs.items() if name not in _TOLD or value is not None}
    if TEXT_ENCODER in kwargs:
        raise UsageError(f"the vectorised form of {env_id} takes no {TEXT_ENCODER}; set vectorization to 'sync'")
    steps, mode = kwargs.get("max_episode_steps", 1), kwargs.get("render_mode")
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise UsageError(
            f"max_episode_steps of {env_id} is {steps!r}; a whole number from 1 is needed. Leave it out for the "
            "environment's own limit"
        )
    known = _render_modes(env_id)
    if mode is not None and (not isinstance(mode, str) or (known is not None and mode not in known)):
        raise UsageError(
            f"render_mode of {env_id} is {mode!r}; allowed are {one_of(known or (), 20)}. Training needs none: leave "
            "it out"
        )
    return kwargs


def _render_modes(env_id: str) -> list[str] | None:
    """Returns what an environment can render, gymnasium's lists of frames included; None where its maker tells none."""
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    if spec is None or spec.entry_point is None:
        return None
    creator: object = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    metadata = getattr(creator, "metadata", None)
    if not isinstance(metadata, Mapping):
        return None
    modes = [str(mode) for mode in metadata.get("render_modes") or ()]
    return modes + [f"{mode}_list" for mode in modes if mode in ("rgb_array", "ansi") and f"{mode}_list" not in modes]


def label_of(env: object) -> str:
    """Returns what messages call an environment: its id, or the name of its class or maker."""
    if isinstance(env, str):
        return env
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        return env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    return getattr(env, "__name__", type(env).__name__)


class _QuickDiscrete(gymnasium.spaces.Discrete):
    """The same space, with a quick answer for ints.

    Environments ask it at each step whether the action is one of its own; gymnasium's answer takes a third of
    CartPole's whole step.
    """

    def contains(self, x: Any) -> bool:
        """Returns whether ``x`` is one of its values."""
        return bool(self.start <= x < self.start + self.n) if type(x) is int else super().contains(x)


def evaluation_env(env: object) -> str | EnvMaker:
    """Returns what makes another environment like ``env``: evaluating in the one that is trained in would disturb it.

    Raises:
        UsageError: it is one object that gymnasium cannot make again.
    """
    if isinstance(env, str):
        return resolve_env(env)
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        spec = env.spec
        if spec is None or spec.id not in gymnasium.registry:
            raise UsageError(
                f"{label_of(env)} is one object, and evaluations need another environment of its kind; give an id, or "
                "a callable that makes one"
            )
        again = copy.deepcopy(spec)  # with its wrappers and its time limit
        again.kwargs = {name: value for name, value in spec.kwargs.items() if name not in _NOT_SINGLE}
        again.max_episode_steps = spec.kwargs.get("max_episode_steps", spec.max_episode_steps)
        return lambda: gymnasium.make(again, disable_env_checker=True)
    return cast(EnvMaker, env)
