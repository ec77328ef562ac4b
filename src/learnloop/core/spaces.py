"""What an agent may do and what it sees, as data: the spaces of policies, stored with them.

They say what gymnasium's spaces say, without gymnasium: a policy is served with numpy alone.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import msgspec

from learnloop.core.errors import UsageError


class Discrete(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="discrete"):
    """One of ``n`` values from ``start`` on. Arrays of actions hold 0 to n - 1; ``start`` is added at the edge."""

    n: int
    start: int = 0

    def __post_init__(self) -> None:
        """Refuses an empty space."""
        _check_counts("a discrete space", (self.n,))


class MultiDiscrete(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="multi_discrete"):
    """Several choices at once, choice i one of ``nvec[i]`` values, counted from 0."""

    nvec: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuses an empty space."""
        _check_counts("a multi-discrete space", self.nvec)


class Box(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="box"):
    """A vector of numbers, or an array of ``shape``; its bounds are flat, None where there is none."""

    shape: tuple[int, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]

    def __post_init__(self) -> None:
        """Refuses bounds that do not fit."""
        _check_counts("a box", self.shape)
        if not len(self.low) == len(self.high) == self.size:
            raise UsageError(f"a box of shape {self.shape} has {len(self.low)} low and {len(self.high)} high bounds")
        for low, high in zip(self.low, self.high, strict=True):
            if low is not None and high is not None and not low < high:
                raise UsageError(f"a box goes from {low} to {high}; each low bound must be below its high bound")

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def is_bounded(self) -> bool:
        """Whether each number has both bounds."""
        return None not in self.low and None not in self.high


class MultiBinary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="multi_binary"):
    """``n`` switches."""

    n: int

    def __post_init__(self) -> None:
        """Refuses an empty space."""
        _check_counts("a multi-binary space", (self.n,))


class Text(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="text"):
    """A text, seen through its words and parts of words, hashed into ``num_buckets`` numbers."""

    num_buckets: int = 256
    encoder: str | None = None
    """The name of an encoder that was added, which gives ``num_buckets`` numbers in the place of hashing."""

    def __post_init__(self) -> None:
        """Refuses an empty space."""
        _check_counts("a text space", (self.num_buckets,))


class Dict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="dict"):
    """Several spaces by name, in the order of their names."""

    spaces: dict[str, ObservationSpace]

    def __post_init__(self) -> None:
        """Refuses an empty space."""
        _check_counts("a dict space", (len(self.spaces),))


class Tuple(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="tuple"):
    """Several spaces by position."""

    spaces: tuple[ObservationSpace, ...]

    def __post_init__(self) -> None:
        """Refuses an empty space."""
        _check_counts("a tuple space", (len(self.spaces),))


ActionSpace: TypeAlias = Discrete | MultiDiscrete | Box
ObservationSpace: TypeAlias = Discrete | MultiDiscrete | MultiBinary | Box | Text | Dict | Tuple


class Spaces(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The two spaces of a policy."""

    observation: ObservationSpace
    action: ActionSpace


def _check_counts(what: str, counts: tuple[int, ...]) -> None:
    if any(count < 1 for count in counts):
        raise UsageError(f"{what} has the size {counts if len(counts) != 1 else counts[0]}; at least 1 is needed")


def num_choices(space: Discrete | MultiDiscrete) -> int:
    """Returns the length of an action mask: the number of values, of all choices together."""
    return space.n if isinstance(space, Discrete) else sum(space.nvec)
