"""Something that a verdict takes for granted."""

from __future__ import annotations

from enum import StrEnum

import msgspec

ERROR_RATE = 0.01
"""A check finds fault with so large a share of sound logs at the most: each costs a proof, none makes a false one."""


class AssumptionState(StrEnum):
    """What is known of an assumption."""

    HOLDS = "holds"
    """It was checked, and nothing speaks against it."""
    BROKEN = "broken"
    UNKNOWN = "unknown"
    """It cannot be checked from what was logged."""


class Assumption(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a verdict takes for granted, and what was found."""

    name: str
    """``propensities``, ``independence``, ``missing_rewards``, ``support``, ``tails`` ..."""
    finding: AssumptionState
    detail: str
    """What was looked at and what came out; of a broken one also what to do."""
