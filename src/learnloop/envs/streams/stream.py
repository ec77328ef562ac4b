"""Streams of environment steps: one contract over single, vectorised and remote environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import gymnasium
from gymnasium.vector import VectorEnv

from learnloop.core.arrays import F32
from learnloop.core.checks import check_choice, check_range
from learnloop.core.errors import UsageError, one_of
from learnloop.core.spaces import Spaces
from learnloop.core.stepping import LaneStep
from learnloop.envs.checks import try_out
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
from learnloop.envs.streams.episodes import Episode
from learnloop.envs.streams.lanes import spaces_of
from learnloop.envs.streams.masks import refuse_env, with_masks
from learnloop.envs.streams.subprocess_stream import SubprocessStream
from learnloop.envs.streams.sync_stream import SyncStream
from learnloop.envs.streams.vector_stream import AnyVectorEnv, VectorStream
from learnloop.nn.encoders.observation_encoder import ObservationEncoder

if TYPE_CHECKING:
    from learnloop.core.stepping import Actions, Masks

Vectorization = Literal["auto", "sync", "subprocess", "vector"]
AnyEnv = str | EnvMaker | gymnasium.Env[Any, Any] | AnyVectorEnv

VECTOR_LANES = 16
"""From so many lanes on ``auto`` takes an environment's own vectorised form: below, single ones are as fast."""


class EnvStream(Protocol):
    """Several environments of one kind that step together, each a lane; encoded, with their episodes counted.

    The arrays of ``reset`` and ``step`` are the stream's: they stay as they are until the next call but one, which
    writes over them. Copy what must last longer.
    """

    @property
    def spaces(self) -> Spaces:
        """The spaces of a policy for the environment."""
        ...

    @property
    def encoder(self) -> ObservationEncoder:
        """Of the environment's observations."""
        ...

    @property
    def num_lanes(self) -> int:
        """How many environments there are."""
        ...

    @property
    def findings(self) -> tuple[str, ...]:
        """What was odd, but no error, when the environment was tried out."""
        ...

    def reset(self, seed: int) -> tuple[F32, Masks | None]:
        """Begins new episodes in all lanes, whatever ran; what ran is not among ``episodes``.

        The seed of a lane derives from ``seed`` and the lane's number; its later episodes go on with the
        environment's own random numbers. So equal seeds and actions give equal steps, whatever came before.

        Returns:
            The observations, shape ``(num_lanes, encoder.size)``, and the action masks, shape
            ``(num_lanes, num_choices)``, None where the environment has none.

        Raises:
            UsageError: the environment breaks gymnasium's rules.
            ActionError: an action mask has the wrong length or allows nothing.
        """
        ...

    def step(self, actions: Actions) -> LaneStep:
        """Acts in all lanes. Actions of a Box are clipped to its bounds.

        Raises:
            UsageError: the environment breaks gymnasium's rules: the rule, the lane and the value are named.
            ActionError: an action mask has the wrong length or allows nothing.
        """
        ...

    def episodes(self) -> list[Episode]:
        """Returns the episodes that ended since it was last asked, in the order of their ends."""
        ...

    def close(self) -> None:
        """Closes the environments."""
        ...


def make_stream(
    env: AnyEnv,
    num_lanes: int | None = None,
    *,
    vectorization: Vectorization = "auto",
    env_kwargs: Mapping[str, Any] | None = None,
    check: bool = True,
) -> EnvStream:
    """Returns a stream of steps of ``env``.

    Args:
        env: an id or an alias; a callable that returns a ``gymnasium.Env``; one such (then one lane); or a
            ``gymnasium.vector.VectorEnv`` (then as many lanes as it has).
        num_lanes: how many environments; None: 1, or as many as a vector environment has.
        vectorization: ``sync`` steps them in this process one after the other; ``subprocess`` in as many processes as
            there are processors; ``vector`` takes gymnasium's vectorised form of the id; ``auto`` takes that from
            ``VECTOR_LANES`` lanes on where there is one, else ``sync``.
        env_kwargs: what ids and callables are called with.
        check: try the environment out for a few steps first (not a ``VectorEnv``).

    Raises:
        UsageError: the environment cannot be made, is not supported or breaks gymnasium's rules; the arguments
            contradict each other.
        NotFoundError: there is no environment of this name; the nearest are said.
    """
    check_choice("vectorization", vectorization, ("auto", "sync", "subprocess", "vector"))
    if num_lanes is not None:
        check_range("num_lanes", num_lanes, 1)
    register_envs()
    if isinstance(env, gymnasium.Env | VectorEnv):
        return _stream_of_instance(env, num_lanes, vectorization, env_kwargs, check)
    given: object = env
    if not callable(given) and not isinstance(given, str):
        refuse_env(given)
    target = resolve_env(env) if isinstance(env, str) else env
    count = num_lanes or 1
    kwargs = dict(env_kwargs or {})
    is_vectorised = isinstance(target, str) and has_vector_entry(target)
    if vectorization == "vector" and not is_vectorised:
        raise UsageError(f"{label_of(target)} has no vectorised form; leave vectorization at 'auto', or take 'sync'")
    if (
        isinstance(target, str)
        and is_vectorised
        and (vectorization == "vector" or (vectorization == "auto" and count >= VECTOR_LANES))
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
    num_lanes: int | None,
    vectorization: str,
    env_kwargs: Mapping[str, Any] | None,
    check: bool,
) -> EnvStream:
    label = label_of(env)
    if env_kwargs:
        raise UsageError(f"env_kwargs {one_of(env_kwargs)} are given, but {label} exists already; give its id or class")
    has = int(env.num_envs) if isinstance(env, VectorEnv) else 1
    if num_lanes not in (None, has):
        raise UsageError(
            f"num_lanes is {num_lanes}, but {label} was given as one object with {has} lane{'s' * (has > 1)}; give its "
            "id, or a callable that returns one"
        )
    if vectorization not in ("auto", "vector" if isinstance(env, VectorEnv) else "sync"):
        raise UsageError(f"vectorization is {vectorization!r}, but {label} exists already; leave it at 'auto'")
    if isinstance(env, VectorEnv):
        return VectorStream(env)
    made, spaces = MadeEnv(with_masks(env), None), spaces_of(env)
    return SyncStream([made], label, spaces, try_out(made, label, spaces, seed=0) if check else [])


def _make_vector(env_id: str, num_lanes: int, env_kwargs: dict[str, Any]) -> AnyVectorEnv:
    kwargs = checked_kwargs(env_id, env_kwargs)
    try:
        return gymnasium.make_vec(env_id, num_lanes, vectorization_mode="vector_entry_point", **kwargs)
    except Exception as error:  # whatever its constructor raises
        raise UsageError(
            f"the vectorised {env_id!r} cannot be made with {kwargs}: {type(error).__name__}: {error}"
        ) from error
