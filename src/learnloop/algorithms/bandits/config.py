"""What the configs of all contextual bandits share."""

from __future__ import annotations

import math

import msgspec

from learnloop.core.errors import UsageError


class BanditConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="algorithm"):
    """The part of a bandit's config that does not depend on how it explores."""

    num_warm_up: int = 40
    """How many rewards are learned before the encoder and the scale of the rewards are fitted; until then actions
    are drawn uniformly. It lasts longer, up to 10 times, while all rewards are equal: they have no scale yet."""
    l2_weight: float = 1.0
    """The ridge penalty on the weights of each action, for rewards of standard deviation 1."""
    interactions: bool = True
    """Whether the encoder adds interactions of features."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        check_range("num_warm_up", self.num_warm_up, 1, math.inf)
        check_range("l2_weight", self.l2_weight, 1e-6, 1e6)


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Returns if ``low`` <= ``value`` <= ``high``.

    Raises:
        UsageError: it is not, or it is not a number.
    """
    if not low <= value <= high:
        raise UsageError(f"{name} is {value!r}; allowed is from {low} to {high}")
