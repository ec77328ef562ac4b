"""What the configs of all sequential algorithms share. Names are those of Stable-Baselines3."""

from __future__ import annotations

from typing import Literal

import msgspec

from learnloop.algorithms.base.schedules import Schedule, check_schedule, is_changing
from learnloop.core.checks import check_range
from learnloop.core.errors import UsageError


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

    def __post_init__(self) -> None:
        """Refuses values without a meaning, and those that contradict each other."""
        check_schedule("learning_rate", self.learning_rate, 0, 10)
        check_range("gamma", self.gamma, 0, 1)
        check_range("dropout", self.dropout, 0, 0.95)
        if self.live_steps is not None:
            check_range("live_steps", self.live_steps, 1)
        for width in self.net_arch:
            check_range("a layer of net_arch", width, 1)
        if not self.net_arch and (self.dropout or self.layer_norm):
            raise UsageError("dropout and layer_norm act on hidden layers, and net_arch has none")

    def changing(self) -> list[str]:
        """Returns the names of the options whose values change with the progress of the training."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return [name for name, value in values.items() if is_changing(value)]
