"""Between gymnasium's spaces and ours, and from the actions of algorithms to those of an environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import Bools
from learnloop.core.errors import ActionError, UsageError
from learnloop.core.spaces import (
    ActionSpace,
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    ObservationSpace,
    Spaces,
    Text,
    Tuple,
)
from learnloop.nn.encoders.text_encoders import find_encoder

if TYPE_CHECKING:
    from learnloop.core.stepping import Actions

Space = gymnasium.Space[Any]


class EncodedText(gymnasium.spaces.Text):
    """Texts that an encoder turns into numbers, which was added by name.

    Attributes:
        encoder: its name.
    """

    def __init__(self, encoder: str, max_length: int = 100_000, **options: Any) -> None:
        """Takes the encoder's name, and what ``gymnasium.spaces.Text`` takes."""
        super().__init__(max_length, min_length=0, **options)
        self.encoder = encoder

    def contains(self, x: Any) -> bool:
        """Returns whether ``x`` is a text: all letters are allowed."""
        return isinstance(x, str) and len(x) <= self.max_length


def from_gymnasium(observation_space: Space, action_space: Space) -> Spaces:
    """Returns the spaces of a policy for an environment with these two.

    Raises:
        UsageError: one is of a kind that no policy here can see or act in; the message names it.
    """
    return Spaces(observation=_observation(observation_space, "observation space"), action=_action(action_space))


def _observation(space: Space, name: str) -> ObservationSpace:
    match space:
        case gymnasium.spaces.Box():
            return _box(space, bounds_matter=False)
        case gymnasium.spaces.Discrete():
            return Discrete(n=int(space.n), start=int(space.start))
        case gymnasium.spaces.MultiDiscrete() if not np.any(space.start):
            return MultiDiscrete(nvec=tuple(int(n) for n in space.nvec.reshape(-1)))
        case gymnasium.spaces.MultiBinary():
            return MultiBinary(n=int(np.prod(space.shape)))
        case EncodedText():
            return Text(num_buckets=find_encoder(space.encoder).size, encoder=space.encoder)
        case gymnasium.spaces.Text():
            return Text()
        case gymnasium.spaces.Dict():
            inner = space.spaces
            return Dict(spaces={str(key): _observation(each, f"{name}[{key!r}]") for key, each in inner.items()})
        case gymnasium.spaces.Tuple():
            return Tuple(
                spaces=tuple(_observation(each, f"{name}[{place}]") for place, each in enumerate(space.spaces))
            )
    raise UsageError(
        f"the {name} {space} is not supported; allowed are Box, Discrete, MultiDiscrete (from 0), MultiBinary, Text, "
        "and Dict and Tuple of them. A gymnasium.ObservationWrapper can turn it into one"
    )


def _action(space: Space) -> ActionSpace:
    match space:
        case gymnasium.spaces.Discrete():
            return Discrete(n=int(space.n), start=int(space.start))
        case gymnasium.spaces.MultiDiscrete() if space.nvec.ndim == 1 and not np.any(space.start):
            return MultiDiscrete(nvec=tuple(int(n) for n in space.nvec))
        case gymnasium.spaces.Box() if np.dtype(space.dtype).kind == "f":
            return _box(space, bounds_matter=True)
    raise UsageError(
        f"the action space {space} is not supported; allowed are Discrete, MultiDiscrete (flat, from 0) and Box of "
        "floats. A gymnasium.ActionWrapper can turn it into one"
    )


def _box(space: gymnasium.spaces.Box, *, bounds_matter: bool) -> Box:
    low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
    # A number that is always the same has equal bounds; observations are not scaled by theirs, so none are told.
    tell = np.full(low.shape, True) if bounds_matter else low < high
    return Box(
        shape=tuple(int(each) for each in space.shape),
        low=tuple(float(each) if told and np.isfinite(each) else None for each, told in zip(low, tell, strict=True)),
        high=tuple(float(each) if told and np.isfinite(each) else None for each, told in zip(high, tell, strict=True)),
    )


class ActionEdge:
    """Turns the actions of an algorithm into those of an environment.

    To a Discrete action its space's ``start`` is added; those of a Box are clipped to its bounds, as in
    Stable-Baselines3, so that an algorithm learns from the action that it drew and the environment sees a legal one.
    What it returns is new: an environment may keep it.
    """

    def __init__(self, space: ActionSpace, dtype: Any = None) -> None:
        """Takes the space of a policy and, for a Box, the environment's type of numbers."""
        self._space = space
        self._dtype = dtype
        if isinstance(space, Box):
            self._low = np.array([-np.inf if each is None else each for each in space.low])
            self._high = np.array([np.inf if each is None else each for each in space.high])

    def to_envs(self, actions: Actions) -> list[Any]:
        """Returns one action for each row: ints, or arrays."""
        if isinstance(self._space, Discrete):
            shifted = actions + self._space.start if self._space.start else actions
            listed: list[Any] = shifted.tolist()
            return listed
        return list(self.to_vector_env(actions))

    def to_vector_env(self, actions: Actions) -> NDArray[Any]:
        """Returns the batch of actions that a vector environment takes."""
        if isinstance(self._space, Box):
            clipped: NDArray[Any] = np.minimum(np.maximum(actions, self._low), self._high)
            return clipped.reshape(len(actions), *self._space.shape).astype(self._dtype, copy=False)
        if isinstance(self._space, Discrete):
            return np.add(actions, self._space.start, dtype=np.int64)
        return np.array(actions, dtype=np.int64)


def check_num_actions(actions: Actions, num_envs: int) -> None:
    """Returns if there is one action for each env.

    Raises:
        ActionError: there is not.
    """
    if len(actions) != num_envs:
        raise ActionError(f"{len(actions)} actions were given for {num_envs} envs; one for each is needed")


def random_actions(space: ActionSpace, masks: Bools | None, num: int, rng: np.random.Generator) -> Actions:
    """Returns uniform actions, allowed by ``masks`` of shape ``(num, num_choices)``; within 1 where unbounded."""
    if isinstance(space, Box):
        low = np.array([-1.0 if each is None else each for each in space.low])
        high = np.array([1.0 if each is None else each for each in space.high])
        return rng.uniform(np.minimum(low, high), np.maximum(low, high), size=(num, space.size)).astype(np.float32)
    nvec: Sequence[int] = (space.n,) if isinstance(space, Discrete) else space.nvec
    weights = rng.random((num, sum(nvec)))
    if masks is not None:
        weights[~masks] = -1.0
    picks = np.stack([part.argmax(axis=1) for part in np.split(weights, np.cumsum(nvec)[:-1], axis=1)], axis=1)
    return picks[:, 0] if isinstance(space, Discrete) else picks


def refuse_step(label: str) -> UsageError:
    """Returns the error for a step where no episode runs."""
    return UsageError(f"{label} is stepped while no episode runs; call reset first, and again after each end")
