"""Makes streams of steps, and tries environments out first: do they keep gymnasium's rules?"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from learnloop.core.arrays import Bools
from learnloop.core.checks import check_choice, check_range
from learnloop.core.errors import UsageError, one_of
from learnloop.core.seeding import generator
from learnloop.core.spaces import Spaces
from learnloop.envs.registry import (
    EnvMaker,
    MadeEnv,
    checked_kwargs,
    has_vector_entry,
    label_of,
    make_env,
    portable_env,
    register_envs,
    resolve_env,
)
from learnloop.envs.spaces import random_actions
from learnloop.envs.streams.masks import refuse_env, with_masks
from learnloop.envs.streams.stream import EnvStream, StepBlock
from learnloop.envs.streams.subprocess_stream import SubprocessStream
from learnloop.envs.streams.sync_stream import SyncEnvs, SyncStream, short, spaces_of
from learnloop.envs.streams.vector_stream import AnyVectorEnv, VectorStream

Vectorization = Literal["auto", "sync", "subprocess", "vector"]
AnyEnv = str | EnvMaker | gymnasium.Env[Any, Any] | AnyVectorEnv

VECTOR_ENVS = 16
"""From so many envs on ``auto`` takes an environment's own vectorised form: below, single ones are as fast."""
NUM_TRIAL_STEPS = 24


def make_stream(
    env: AnyEnv,
    num_envs: int | None = None,
    *,
    vectorization: Vectorization = "auto",
    env_kwargs: Mapping[str, Any] | None = None,
    check: bool = True,
) -> EnvStream:
    """Returns a stream of steps of ``env``.

    Args:
        env: an id or an alias; a callable that returns a ``gymnasium.Env``; one such (then one env); or a
            ``gymnasium.vector.VectorEnv`` (then as many envs as it has).
        num_envs: how many environments; None: 1, or as many as a vector environment has.
        vectorization: ``sync`` steps them in this process one after the other; ``subprocess`` in as many processes as
            there are processors; ``vector`` takes gymnasium's vectorised form of the id; ``auto`` takes that from
            ``VECTOR_ENVS`` envs on where there is one, else ``sync``.
        env_kwargs: what ids and callables are called with.
        check: try the environment out for a few steps first (not a ``VectorEnv``).

    Raises:
        UsageError: the environment cannot be made, is not supported or breaks gymnasium's rules; the arguments
            contradict each other.
        NotFoundError: there is no environment of this name; the nearest are said.
    """
    check_choice("vectorization", vectorization, ("auto", "sync", "subprocess", "vector"))
    if num_envs is not None:
        check_range("num_envs", num_envs, 1)
    register_envs()
    if isinstance(env, gymnasium.Env | VectorEnv):
        return _stream_of_instance(env, num_envs, vectorization, env_kwargs, check)
    given: object = env
    if not callable(given) and not isinstance(given, str):
        refuse_env(given)
    target = resolve_env(env) if isinstance(env, str) else env
    count = num_envs or 1
    kwargs = dict(env_kwargs or {})
    is_vectorised = isinstance(target, str) and has_vector_entry(target)
    if vectorization == "vector" and not is_vectorised:
        raise UsageError(f"{label_of(target)} has no vectorised form; leave vectorization at 'auto', or take 'sync'")
    if (
        isinstance(target, str)
        and is_vectorised
        and (vectorization == "vector" or (vectorization == "auto" and count >= VECTOR_ENVS))
    ):
        return VectorStream(_make_vector(target, count, kwargs))
    first = make_env(target, kwargs)
    spaces, label = spaces_of(first.env), label_of(target)
    findings = try_out(first, label, spaces, seed=0) if check else []
    if vectorization == "subprocess":
        first.env.close()
        return SubprocessStream(portable_env(target), count, label, spaces, kwargs, findings)
    return SyncStream([first, *(make_env(target, kwargs) for _ in range(count - 1))], label, spaces, findings)


def _stream_of_instance(
    env: gymnasium.Env[Any, Any] | AnyVectorEnv,
    num_envs: int | None,
    vectorization: str,
    env_kwargs: Mapping[str, Any] | None,
    check: bool,
) -> EnvStream:
    label = label_of(env)
    if env_kwargs:
        raise UsageError(f"env_kwargs {one_of(env_kwargs)} are given, but {label} exists already; give its id or class")
    has = int(env.num_envs) if isinstance(env, VectorEnv) else 1
    if num_envs not in (None, has):
        raise UsageError(
            f"num_envs is {num_envs}, but {label} was given as one object with {has} env{'s' * (has > 1)}; give its "
            "id, or a callable that returns one"
        )
    if vectorization not in ("auto", "vector" if isinstance(env, VectorEnv) else "sync"):
        raise UsageError(f"vectorization is {vectorization!r}, but {label} exists already; leave it at 'auto'")
    if isinstance(env, VectorEnv):
        return VectorStream(env)
    made, spaces = MadeEnv(with_masks(env), None), spaces_of(env)
    return SyncStream([made], label, spaces, try_out(made, label, spaces, seed=0) if check else [])


def _make_vector(env_id: str, num_envs: int, env_kwargs: dict[str, Any]) -> AnyVectorEnv:
    kwargs = checked_kwargs(env_id, env_kwargs)
    try:
        return gymnasium.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point", **kwargs)
    except Exception as error:  # whatever its constructor raises
        raise UsageError(
            f"the vectorised {env_id!r} cannot be made with {kwargs}: {type(error).__name__}: {error}"
        ) from error


def check_env(
    env: str | EnvMaker | gymnasium.Env[Any, Any], *, env_kwargs: Mapping[str, Any] | None = None, seed: int = 0
) -> list[str]:
    """Tries an environment out for ``NUM_TRIAL_STEPS`` random steps and returns what is odd but no error.

    Args:
        env: an id or alias, a callable that returns an environment, or an environment, which is reset.
        env_kwargs: what it is made with.
        seed: of its episodes and of the actions.

    Raises:
        UsageError: it breaks a rule of gymnasium; the message names the rule and the value.
        ActionError: its action mask does not fit.
        NotFoundError: there is none of this name.
    """
    if isinstance(env, gymnasium.Env):
        return try_out(MadeEnv(with_masks(env), None), label_of(env), spaces_of(env), seed)
    target = resolve_env(env) if isinstance(env, str) else env
    made = make_env(target, env_kwargs)
    try:
        return try_out(made, label_of(target), spaces_of(made.env), seed)
    finally:
        made.env.close()


def try_out(made: MadeEnv, label: str, spaces: Spaces, seed: int) -> list[str]:
    """Does the trial of ``check_env`` with an environment that exists; it must be reset afterwards."""
    watched = _Watched(made.env, label)
    alone = SyncEnvs([MadeEnv(watched, made.max_steps)], label, spaces)
    block = StepBlock(1, alone.encoder.size, spaces.action)
    findings = []
    firsts = []
    for _ in range(2):
        alone.reset(block, seed)
        firsts.append(block.observations.copy())
    if not np.array_equal(firsts[0], firsts[1]):
        findings.append(
            f"{label}: two resets with the same seed gave different observations; runs cannot be repeated. Draw from "
            "self.np_random after super().reset(seed=seed)"
        )
    rng = generator(seed, "check")
    masks: Bools = block.masks
    for _ in range(NUM_TRIAL_STEPS):
        ended = alone.advance(block, random_actions(spaces.action, masks if alone.has_masks else None, 1, rng))
        if ended:
            alone.restart(block, ended)
        masks = block.masks if ended else block.final_masks
    return findings + sorted(watched.findings)


class _Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Looks at the types that an environment returns, which the fast loop does not."""

    def __init__(self, env: gymnasium.Env[Any, Any], label: str) -> None:
        super().__init__(env)
        self.findings: set[str] = set()
        self._label = label

    def reset(self, **kwargs: Any) -> Any:
        """Resets the environment."""
        result: object = self.env.reset(**kwargs)
        if isinstance(result, tuple) and len(result) == 2:
            self._look(result[0])
        return result

    def step(self, action: Any) -> Any:
        """Steps the environment."""
        result: object = self.env.step(action)
        if isinstance(result, tuple) and len(result) == 5:
            for name, value in (("terminated", result[2]), ("truncated", result[3])):
                if not isinstance(value, bool | np.bool_):
                    raise UsageError(f"{self._label}: {name} is {short(value)}; gymnasium's rule is True or False")
            self._look(result[0])
        return result

    def _look(self, observation: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it casts what is no array: then it is no finding
            is_inside = self.observation_space.contains(observation)
        if not is_inside:
            self.findings.add(
                f"{self._label}: an observation lies outside its space {self.observation_space} (its bounds or its "
                "type of numbers); it is used as it is"
            )
