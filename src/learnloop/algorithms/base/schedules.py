"""Hyper-parameters that change with the progress of a training."""

from __future__ import annotations

import math
import re
from typing import TypeAlias

import msgspec

from learnloop.core.checks import check_range
from learnloop.core.errors import UsageError


class Linear(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="linear"):
    """From ``initial`` to ``final`` in a straight line over the first ``fraction`` of the training, then ``final``."""

    initial: float
    final: float = 0.0
    fraction: float = 1.0

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        if not (math.isfinite(self.initial) and math.isfinite(self.final)):
            raise UsageError(f"a schedule goes from {self.initial} to {self.final}; both must be finite")
        check_range("the fraction of a schedule", self.fraction, above=0, high=1)


Schedule: TypeAlias = float | Linear | str
"""A constant, a line, or rl-zoo's short form of one: ``lin_0.001`` falls from .001 to 0."""

_SHORT = re.compile(r"lin_(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)")


def check_schedule(name: str, schedule: Schedule, low: float, high: float) -> None:
    """Returns if all values of ``schedule`` lie from ``low`` to ``high``.

    Raises:
        UsageError: they do not, or it is none.
    """
    line = parse_schedule(name, schedule)
    for value in (line.initial, line.final):
        check_range(name, value, low, high)


def parse_schedule(name: str, schedule: Schedule) -> Linear:
    """Returns ``schedule`` as a line; a constant is a flat one.

    Raises:
        UsageError: it is a text of another form.
    """
    if isinstance(schedule, Linear):
        return schedule
    if isinstance(schedule, str):
        found = _SHORT.fullmatch(schedule)
        if found is None:
            raise UsageError(f"{name} is {schedule!r}; allowed are a number and lin_NUMBER, such as lin_0.001")
        return Linear(initial=float(found[1]))
    return Linear(initial=schedule, final=schedule)


def is_changing(value: object) -> bool:
    """Returns whether ``value`` is a schedule that changes with the progress."""
    if isinstance(value, Linear):
        return value.initial != value.final
    return isinstance(value, str) and _SHORT.fullmatch(value) is not None


def value_at(schedule: Schedule, progress: float) -> float:
    """Returns the value of ``schedule`` when ``progress`` (0 to 1) of the training is done."""
    line = schedule if isinstance(schedule, Linear) else parse_schedule("a schedule", schedule)
    done = min(progress / line.fraction, 1.0)
    return line.initial + done * (line.final - line.initial)
