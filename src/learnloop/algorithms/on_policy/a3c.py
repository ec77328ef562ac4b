"""Asynchronous advantage actor-critic: A2C's gradients from several workers, each taken as it comes.

A worker acts with a copy of the parameters, finds the gradient of its rollout and hands it over; a learner steps along
it with one optimiser, and the worker goes on with the parameters of then. Meanwhile the gradients of others may have
moved them: a gradient's staleness is how many updates lie between the parameters that it was found with and those that
it is applied to. This file knows of no processes; ``training/workers/asynchronous.py`` runs them.

Source: Mnih et al. 2016, Asynchronous Methods for Deep Reinforcement Learning, supplement, algorithm S3, with the
shared statistics of section 4 (one optimiser for all workers). There, workers write to the parameters without a lock;
here one process writes, so that no update is lost or half seen.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from learnloop.algorithms.base.config import Ranges, value_at
from learnloop.algorithms.on_policy.a2c import A2C, A2CConfig
from learnloop.core.arrays import F32, F64
from learnloop.core.errors import DivergedError, UsageError
from learnloop.nn.network import Network
from learnloop.nn.optimizers import Optimizer

MAX_WORKERS = 64


class A3CConfig(A2CConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="a3c"):
    """A3C's hyper-parameters: A2C's, and its workers."""

    num_workers: int = 2
    """How many processes act, each in as many environments as A2C would have: a gradient is of as many steps as
    A2C's, so that its settings hold."""
    max_staleness: int | None = None
    """A gradient that is older than so many updates is dropped, and counted; None: none is. Each worker's update makes
    each other worker's next gradient older by one: on average they are as old as there are other workers."""

    ranges: ClassVar[Ranges] = {"num_workers": (1, MAX_WORKERS), "max_staleness": (0, None)}


class A3C(A2C):
    """A2C whose gradients may come from elsewhere. Driven as any algorithm, in one process, it is A2C.

    Attributes:
        num_stale_dropped: gradients that were older than ``max_staleness``.
        staleness_max: the largest staleness of a gradient so far, of dropped ones too.
    """

    tag = "a3c"
    config_type = A3CConfig
    config: A3CConfig
    kept_counts = ("num_stale_dropped", "staleness_max")

    drawn_as = A2C.tag  # with one worker it is A2C to the bit

    def _build(self) -> None:
        super()._build()
        self.num_stale_dropped = 0
        self.staleness_max = 0
        self._only_looks = False
        """Whether a gradient is found and no step taken along it."""

    # A worker's part ---------------------------------------------------------------------------------------------

    def follow(self, parameters: F32, num_updates: int) -> None:
        """Goes on with ``parameters``, shape ``(num_parameters,)``, of a learner after ``num_updates``."""
        np.copyto(self.network.parameters, parameters)
        self.network.refresh()
        self.num_updates = num_updates

    def find_gradient(self) -> F32 | None:
        """Returns the gradient of what ``learn`` would learn from, and changes nothing but that room is made for more.

        Returns:
            The gradient before clipping, shape ``(num_parameters,)``, valid until the next call; None: there is not
            enough recorded, or nothing of it can be learned from.

        Raises:
            DivergedError: a reward, a value, the loss or the gradient is not finite.
        """
        num_updates, self._only_looks = self.num_updates, True
        try:
            found = self.learn()
        finally:
            self.num_updates, self._only_looks = num_updates, False
        return self.network.gradients if found else None

    def _move(
        self, network: Network, optimizer: Optimizer, norm: float, learning_rate: float, max_grad_norm: float | None
    ) -> None:
        if not self._only_looks:
            super()._move(network, optimizer, norm, learning_rate, max_grad_norm)

    # The learner's part ------------------------------------------------------------------------------------------

    def apply_gradient(self, gradient: F32, num_updates: int) -> bool:
        """Takes one step along ``gradient``, unless it is too old; returns whether it did.

        Args:
            gradient: before clipping, shape ``(num_parameters,)``.
            num_updates: how many updates the parameters had that it was found with.

        Raises:
            DivergedError: it is not finite, and nothing was changed; or the parameters are not after it.
            UsageError: it does not fit, or is of parameters that this algorithm never had.
        """
        network, config = self.network, self.config
        staleness = self.num_updates - num_updates
        if gradient.shape != network.gradients.shape or not 0 <= num_updates <= self.num_updates:
            raise UsageError(
                f"a gradient of shape {gradient.shape} after {num_updates} updates cannot be applied to parameters of "
                f"shape {network.gradients.shape} after {self.num_updates}"
            )
        self._note_staleness(staleness)
        if config.max_staleness is not None and staleness > config.max_staleness:
            self.num_stale_dropped += 1
            self.metrics.set("train/num_stale_dropped", self.num_stale_dropped)
            return False
        norm = self._checked_norm(gradient)
        np.copyto(network.gradients, gradient)
        learning_rate = value_at(config.learning_rate, self.progress)
        before = self._all_parameters()
        self._move(network, self.optimizer, norm, learning_rate, config.max_grad_norm)
        self.num_updates += 1
        self._note_step(before, norm, learning_rate)
        return True

    def _note_staleness(self, staleness: int) -> None:
        self.staleness_max = max(self.staleness_max, staleness)
        self.metrics.add("train/staleness_mean", staleness)
        self.metrics.set("train/staleness_max", self.staleness_max)
        self.metrics.set("train/num_stale_dropped", self.num_stale_dropped)

    def _note_step(self, before: list[F32], norm: float, learning_rate: float) -> None:
        if not math.isfinite(self._note_change(before)):
            raise DivergedError(f"after update {self.num_updates} the parameters are not finite")
        self.metrics.add("train/gradient_norm", norm)
        self.metrics.set("train/num_non_finite", 0)
        self.metrics.set("train/learning_rate", learning_rate)

    # Scales of observations and rewards, which all workers see to together -----------------------------------------

    def moments(self) -> F64:
        """Returns what the scales are made of: count, means and sums of squares of each; empty where nothing is scaled.

        Their shape is ``(num_moments,)``.
        """
        parts = [scaler.state()[name] for scaler in self._scalers().values() for name in ("count", "mean", "squares")]
        return np.concatenate([np.zeros(0), *parts])

    def put_moments(self, moments: F64) -> None:
        """Scales by ``moments``, which ``moments`` of such an algorithm returned."""
        start = 0
        for scaler in self._scalers().values():
            state = scaler.state()
            size = len(state["mean"])
            count, mean, squares = np.split(moments[start : start + 1 + 2 * size], [1, 1 + size])
            scaler.restore({**state, "count": count, "mean": mean, "squares": squares})
            start += 1 + 2 * size

    def merge_moments(self, before: F64, after: F64) -> None:
        """Takes in what a worker saw between ``before``, which it was given, and ``after``.

        Source: Chan, Golub & LeVeque 1983, equation 2.1b, once solved for the part that was added and once for the sum.
        """
        ours = self.moments()
        if np.array_equal(ours, before):  # nobody else saw anything meanwhile
            self.put_moments(after)
            return
        start = 0
        for scaler in self._scalers().values():
            part = slice(start, start + 1 + 2 * len(scaler.state()["mean"]))
            ours[part] = _joined(ours[part], _added(before[part], after[part]))
            start = part.stop
        self.put_moments(ours)


def _added(before: F64, after: F64) -> F64:
    """Returns the moments of the rows that turned the moments ``before`` into ``after``."""
    count = after[0] - before[0]
    if not count:
        return np.zeros_like(after)
    size = len(after) // 2
    old_mean, old_squares = before[1 : 1 + size], before[1 + size :]
    mean = (after[0] * after[1 : 1 + size] - before[0] * old_mean) / count
    delta = mean - old_mean
    squares = after[1 + size :] - old_squares - delta * delta * (before[0] * count / after[0])
    return np.concatenate([[count], mean, np.maximum(squares, 0.0)])  # rounding may take it below 0


def _joined(first: F64, second: F64) -> F64:
    """Returns the moments of the rows of both."""
    count = first[0] + second[0]
    if not second[0]:
        return first
    size = len(first) // 2
    delta = second[1 : 1 + size] - first[1 : 1 + size]
    mean = first[1 : 1 + size] + delta * (second[0] / count)
    squares = first[1 + size :] + second[1 + size :] + delta * delta * (first[0] * second[0] / count)
    return np.concatenate([[count], mean, squares])
