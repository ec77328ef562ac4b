"""What the configs of all sequential algorithms share, and values that change with the progress of a training."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import ClassVar, Literal, TypeAlias

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


Ranges: TypeAlias = Mapping[str, tuple[float, float | None]]
"""From where to where the numbers of a config may be, or all values of its schedules, by their names."""


def check_setting(name: str, value: Schedule | None, low: float, high: float | None) -> None:
    """Returns if ``value``, or all values of a schedule, lie from ``low`` to ``high``.

    Raises:
        UsageError: they do not, or it is no schedule, or None.
    """
    if value is None:
        raise UsageError(f"{name} is None; a number is needed")
    if isinstance(value, Linear | str):
        line = parse_schedule(name, value)
        check_range(name, line.initial, low, high)
        check_range(name, line.final, low, high)
    else:
        check_range(name, value, low, high)


def _check_kind(name: str, value: Schedule | None, hint: object) -> None:
    """Returns if ``value`` is no schedule, or the field's ``hint`` allows one.

    Raises:
        UsageError: it is one where a number is needed.
    """
    if isinstance(value, Linear | str) and "Schedule" not in str(hint):
        raise UsageError(f"{name} is {value!r}; a number is needed, it cannot change with the progress")


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


def check_max_norm(max_grad_norm: float | None) -> None:
    """Returns if gradients may be scaled down to this norm.

    Raises:
        UsageError: it is not above 0.
    """
    if max_grad_norm is not None and not max_grad_norm > 0:
        raise UsageError(f"max_grad_norm is {max_grad_norm}; it must be above 0, or None for no clipping")


class AlgorithmConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="algorithm"):
    """The network, its optimiser and the discount."""

    learning_rate: Schedule = 3e-4
    """Of the optimiser; a schedule over the training."""
    gamma: float = 0.99
    """The discount: what a reward one step later is worth. 1: no discount."""
    net_arch: tuple[int, ...] = (64, 64)
    """The hidden layers."""
    activation: Literal["tanh", "relu"] = "tanh"
    init: Literal["orthogonal", "xavier", "he", "uniform"] = "orthogonal"
    """How weights start; ``uniform`` is torch's default."""
    layer_norm: bool = False
    """Whether each hidden layer is normalised before its activation, the same when acting and when learning."""
    dropout: float = 0.0
    """Which share of hidden units is dropped; the same ones when acting and when learning."""
    live_steps: int | None = None
    """After so many steps the training of live agents counts as done, which is what schedules (and DQN's exploration)
    depend on. None: ``set_progress`` says how much is done. A trainer with environments says it itself."""

    ranges: ClassVar[Ranges] = {
        "learning_rate": (0, 10),
        "gamma": (0, 1),
        "dropout": (0, 0.95),
        "live_steps": (1, None),
    }
    """Of the fields of the class itself; those of its bases have theirs. A field that is None unless it is said may be
    None."""

    def __post_init__(self) -> None:
        """Refuses values outside of the ``ranges`` of its classes, and those that contradict each other."""
        defaults = dict(zip(self.__struct_fields__[::-1], self.__struct_defaults__[::-1], strict=False))
        for kind in reversed(type(self).__mro__):
            for name, (low, high) in vars(kind).get("ranges", {}).items():
                value = getattr(self, name)
                if value is not None or defaults.get(name, 0) is not None:
                    _check_kind(name, value, kind.__annotations__.get(name, ""))
                    check_setting(name, value, low, high)
        for width in self.net_arch:
            check_range("a layer of net_arch", width, 1)
        if not self.net_arch and (self.dropout or self.layer_norm):
            raise UsageError("dropout and layer_norm act on hidden layers, and net_arch has none")

    def changing(self) -> list[str]:
        """Returns the names of the options whose values change with the progress of the training."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return [name for name, value in values.items() if is_changing(value)]
