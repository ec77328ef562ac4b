"""The config of the linear model over hashed features of contexts and actions."""

from __future__ import annotations

import msgspec

from learnloop.core.checks import check_range


class HashedConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="hashed"
):
    """How a linear model over hashed features sees contexts and actions, and how it learns."""

    num_bits: int = 16
    """Features are hashed to 2^num_bits weights."""
    interactions: bool = True
    """Whether each feature of the context meets each feature of the action (Vowpal Wabbit's ``-q``)."""
    ignored: list[str] = []
    """Names of features, dotted where nested (``user.id``), that are logged and not learned from."""
    learning_rate: float = 0.5
    l2_weight: float = 1e-4
    num_passes: int = 8
    """How often the samples are gone through."""
    half_life: float | None = None
    """After so many samples a sample weighs half; None: all weigh the same."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        check_range("num_bits", self.num_bits, 4, 24)
        check_range("learning_rate", self.learning_rate, 1e-6, 100)
        check_range("l2_weight", self.l2_weight, 0, 1e3)
        check_range("num_passes", self.num_passes, 1, 1_000)
        if self.half_life is not None:
            check_range("half_life", self.half_life, 1)
