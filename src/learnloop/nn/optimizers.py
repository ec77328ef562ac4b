"""Optimisers on the flat vectors of a network.

They pass over the vectors in blocks that fit the cache, so that memory is read once, and keep moments in units of their
own, which saves passes: that of the newest gradient as it was before clipping, and divided by what a new gradient
counts in them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32
from learnloop.core.checks import check_number, check_range
from learnloop.core.errors import UsageError
from learnloop.nn.network import Network

LARGEST_JUMP = 1e3
"""If gradients must be made so many times smaller than those before, they are, and not the moments larger: those could
leave what float32 holds."""
SMALLEST_UNIT = 1e-12
"""So small a scale is made true at once: gradients of the size that it belongs to have squares that are infinite."""
BLOCK = 32768
"""How many parameters are updated at a time: five arrays of so many float32 stay in a cache of 1 MB."""


class Optimizer(Protocol):
    """Moves the parameters of a network against their gradients."""

    def step(self, learning_rate: float, gradient_scale: float = 1.0) -> None:
        """Reads the network's ``gradients`` and changes its ``parameters``.

        Args:
            learning_rate: of this step.
            gradient_scale: gradients count as if they were multiplied with it: what ``clip_coefficient`` returns.
        """
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns all that it remembers, by name; the arrays are its own, copy what must last."""
        ...

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Goes on from ``state``, bit for bit.

        Raises:
            ValueError: it is not the state of such an optimiser.
        """
        ...


class _FlatOptimizer:
    """What all have in common: the vectors, cut into blocks, and a count of steps."""

    def __init__(self, network: Network, moments: tuple[str, ...]) -> None:
        self._network = network
        self.num_steps = 0
        self._unit = 1.0
        parameters, gradients = network.parameters, network.gradients
        self._moments = {name: np.zeros_like(parameters) for name in moments}
        scratch = np.empty(min(BLOCK, parameters.size), dtype=np.float32)
        self._blocks = []
        for begin in range(0, parameters.size, BLOCK):
            part = slice(begin, begin + BLOCK)
            moment_parts = [moment[part] for moment in self._moments.values()]
            block = (parameters[part], gradients[part], scratch[: parameters[part].size], *moment_parts)
            self._blocks.append(block)

    def _enter(self, gradient_scale: float) -> tuple[float, F32 | None]:
        """Returns what moments and gradients (None: nothing) are multiplied with to be of one unit.

        That is the scale of the gradients, which are then left as they are.
        """
        if gradient_scale * LARGEST_JUMP < self._unit or gradient_scale < SMALLEST_UNIT:
            return 1.0, np.array(gradient_scale / self._unit, dtype=np.float32)
        ratio = self._unit / gradient_scale
        self._unit = gradient_scale
        return ratio, None

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns the moments, shape ``(num_parameters,)``, their unit, and ``num_steps``; the moments are its own."""
        figures = {"unit": np.array(self._unit), "num_steps": np.array(self.num_steps, dtype=np.int64)}
        return {**self._moments, **figures}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Goes on from ``state``, bit for bit.

        Raises:
            ValueError: it is not the state of such an optimiser.
        """
        state = {"unit": np.array(1.0), **state}  # states of before there were units have that of 1
        wanted = {**{name: moment.shape for name, moment in self._moments.items()}, "unit": (), "num_steps": ()}
        found = {name: value.shape for name, value in state.items()}
        if found != wanted:
            raise ValueError(f"the optimiser's state has the arrays {found}, not {wanted}")
        if not 0 < float(state["unit"]) < math.inf:
            raise ValueError(f"the optimiser's state has the unit {state['unit']}, not a finite number above 0")
        for name, moment in self._moments.items():
            moment[:] = state[name]
        self._unit = float(state["unit"])
        self.num_steps = int(state["num_steps"])


class Adam(_FlatOptimizer):
    """Adam: steps of about the learning rate, whatever the scale of the gradient.

    Source: Kingma and Ba 2015, Adam: A Method for Stochastic Optimization, algorithm 1. The moments are kept divided
    by 1 - beta1 and 1 - beta2.
    """

    def __init__(self, network: Network, *, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> None:
        """Builds it with moments of 0.

        Args:
            network: whose vectors it reads and writes.
            betas: how much of each moment is kept in a step, from 0 to below 1.
            eps: keeps it from dividing by 0.
        """
        if not all(0 <= beta < 1 for beta in betas):
            raise UsageError(f"betas are {betas}; allowed is from 0 to below 1")
        check_number("eps", eps, above=0)
        super().__init__(network, ("first_moment", "second_moment"))
        self.betas = betas
        self.eps = eps

    def step(self, learning_rate: float, gradient_scale: float = 1.0) -> None:
        """Reads the network's ``gradients`` and changes its ``parameters``.

        With m and v the kept moments, the paper's step lr · m̂ / (√v̂ + eps) is a · m / (√v + e).
        """
        self.num_steps += 1
        first_beta, second_beta = self.betas
        ratio, factor = self._enter(gradient_scale)
        scale = math.sqrt((1 - second_beta) / (1 - second_beta**self.num_steps))
        correction = (1 - first_beta) / (1 - first_beta**self.num_steps)
        self._move(
            np.array(learning_rate * correction / scale, dtype=np.float32),
            np.array(self.eps / (scale * self._unit), dtype=np.float32),
            (np.array(first_beta * ratio, dtype=np.float32), np.array(second_beta * ratio**2, dtype=np.float32)),
            self._shrink(learning_rate),
            factor,
        )
        self._network.refresh()

    def _shrink(self, learning_rate: float) -> F32 | None:
        """Returns what parameters are multiplied with before the step."""
        return None

    def _move(self, size: F32, eps: F32, decays: tuple[F32, F32], shrink: F32 | None, factor: F32 | None) -> None:
        add, multiply = np.add, np.multiply
        first_decay, second_decay = decays
        for parameters, gradients, scratch, first, second in self._blocks:
            if factor is not None:
                multiply(gradients, factor, gradients)
            multiply(first, first_decay, first)
            add(first, gradients, first)
            multiply(gradients, gradients, scratch)
            multiply(second, second_decay, second)
            add(second, scratch, second)
            np.sqrt(second, scratch)
            add(scratch, eps, scratch)
            np.divide(first, scratch, scratch)
            multiply(scratch, size, scratch)
            if shrink is not None:
                multiply(parameters, shrink, parameters)
            np.subtract(parameters, scratch, parameters)


class AdamW(Adam):
    """Adam, with parameters that shrink by ``learning_rate * weight_decay`` of themselves in each step.

    Source: Loshchilov and Hutter 2019, Decoupled Weight Decay Regularization, algorithm 2.
    """

    def __init__(
        self,
        network: Network,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(network, betas=betas, eps=eps)
        check_number("weight_decay", weight_decay, 0)
        self.weight_decay = weight_decay

    def _shrink(self, learning_rate: float) -> F32 | None:
        if not self.weight_decay:
            return None
        return np.array(1 - learning_rate * self.weight_decay, dtype=np.float32)


class RMSprop(_FlatOptimizer):
    """RMSprop: the gradient divided by the root of its recent mean square.

    Source: Tieleman and Hinton 2012, Neural Networks for Machine Learning, lecture 6.5. The mean square is kept divided
    by 1 - alpha.
    """

    def __init__(self, network: Network, *, alpha: float = 0.99, eps: float = 1e-8) -> None:
        """Builds it, as torch: the mean square starts at 0, and ``eps`` is added after the root.

        Args:
            network: whose vectors it reads and writes.
            alpha: how much of the mean square is kept in a step, from 0 to below 1.
            eps: keeps it from dividing by 0.
        """
        check_range("alpha", alpha, 0, below=1)
        check_number("eps", eps, above=0)
        super().__init__(network, ("mean_square",))
        self.alpha = alpha
        self.eps = eps

    def step(self, learning_rate: float, gradient_scale: float = 1.0) -> None:
        """Reads the network's ``gradients`` and changes its ``parameters``."""
        self.num_steps += 1
        add, multiply, sqrt = np.add, np.multiply, np.sqrt
        ratio, factor = self._enter(gradient_scale)
        decay = np.array(self.alpha * ratio**2, dtype=np.float32)
        scale = math.sqrt(1 - self.alpha)
        eps = np.array(self.eps / (scale * self._unit), dtype=np.float32)
        size = np.array(learning_rate / scale, dtype=np.float32)
        for parameters, gradients, scratch, square in self._blocks:
            if factor is not None:
                multiply(gradients, factor, gradients)
            multiply(gradients, gradients, scratch)
            multiply(square, decay, square)
            add(square, scratch, square)
            sqrt(square, scratch)
            add(scratch, eps, scratch)
            np.divide(gradients, scratch, scratch)
            multiply(scratch, size, scratch)
            np.subtract(parameters, scratch, parameters)
        self._network.refresh()


def gradient_norm(gradients: F32) -> float:
    """Returns the L2 norm of ``gradients``; not finite where a gradient is not."""
    return math.sqrt(float(np.dot(gradients, gradients)))


def clip_coefficient(norm: float, max_norm: float | None) -> float:
    """Returns what gradients of L2 norm ``norm`` are multiplied with so that it is at most ``max_norm``.

    Source: Pascanu et al. 2013, On the difficulty of training recurrent neural networks, algorithm 1, with torch's
    coefficient ``max_norm / (norm + 1e-6)``.
    """
    return 1.0 if max_norm is None else min(1.0, max_norm / (norm + 1e-6))
