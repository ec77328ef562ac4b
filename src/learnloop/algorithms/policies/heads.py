"""From the outputs of a policy's network to actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32, F64
from learnloop.core.errors import UsageError
from learnloop.core.spaces import ActionSpace, Box, Discrete
from learnloop.core.stepping import Actions, Masks
from learnloop.nn.distributions import Categorical, make_distribution
from learnloop.nn.squashed_gaussian import SquashedGaussian


class Head(Protocol):
    """Reads a batch of outputs."""

    def choose(self, outputs: F32, masks: Masks | None, rng: np.random.Generator | None) -> Actions:
        """Returns an action for each row: drawn with ``rng``, or the most likely or most valued one without."""
        ...

    def probabilities(self, outputs: F32, masks: Masks | None) -> F64:
        """Returns the probability of each discrete action, shape ``(batch, n)``."""
        ...


class DistributionHead:
    """The outputs are the parameters of a distribution, whatever comes after them is not the policy's."""

    def __init__(self, space: ActionSpace) -> None:
        self._distribution = make_distribution(space)

    def choose(self, outputs: F32, masks: Masks | None, rng: np.random.Generator | None) -> Actions:
        """Returns an action for each row."""
        parameters = outputs[:, : self._distribution.num_parameters]
        if rng is None:
            return self._distribution.mode(parameters, masks)
        return self._distribution.sample(parameters, rng, masks)[0]

    def probabilities(self, outputs: F32, masks: Masks | None) -> F64:
        """Returns the probability of each discrete action, shape ``(batch, n)``."""
        if not isinstance(self._distribution, Categorical):
            raise UsageError("only a policy over discrete actions has a probability for each; use act")
        parameters = outputs[:, : self._distribution.num_parameters]
        return _as_probabilities(self._distribution.probabilities(parameters, masks))


class ValuesHead:
    """The outputs are, or give, the value of each action; the best one is taken."""

    def __init__(self, values: Callable[[F32], F32]) -> None:
        self._values = values

    def choose(self, outputs: F32, masks: Masks | None, rng: np.random.Generator | None) -> Actions:
        """Returns the allowed action of the highest value in each row; there is nothing to draw."""
        values = self._values(outputs)
        best: Actions = np.argmax(values if masks is None else np.where(masks, values, -np.inf), axis=1)
        return best

    def probabilities(self, outputs: F32, masks: Masks | None) -> F64:
        """Returns 1 for the best action of each row, shared by ties, shape ``(batch, n)``."""
        values = self._values(outputs)
        allowed = values if masks is None else np.where(masks, values, -np.inf)
        return _as_probabilities((allowed == allowed.max(axis=1, keepdims=True)).astype(np.float64))


class SquashedHead:
    """The outputs are a Gaussian's; its draws, squashed by tanh, are scaled to the bounds of a box."""

    def __init__(self, space: Box) -> None:
        self._distribution = SquashedGaussian(space.size)
        low, high = np.array(space.low, dtype=np.float32), np.array(space.high, dtype=np.float32)
        self._half = (high - low) / np.float32(2)
        self._middle = (high + low) / np.float32(2)

    def choose(self, outputs: F32, masks: Masks | None, rng: np.random.Generator | None) -> Actions:
        """Returns an action for each row, in the units of the box."""
        squashed = self._distribution.mode(outputs) if rng is None else self._distribution.sample(outputs, rng).actions
        actions: F32 = squashed * self._half
        actions += self._middle
        return actions

    def probabilities(self, outputs: F32, masks: Masks | None) -> F64:
        """Raises UsageError: continuous actions have densities."""
        raise UsageError("only a policy over discrete actions has a probability for each; use act")


class UniformHead:
    """Any allowed action is as likely; for a box with a bound missing, a standard normal draw."""

    def __init__(self, space: ActionSpace) -> None:
        self._space = space
        if isinstance(space, Box):
            self._bounds = None
            if space.is_bounded:
                self._bounds = np.array(space.low, dtype=np.float32), np.array(space.high, dtype=np.float32)
        else:
            self._distribution = make_distribution(space)

    def choose(self, outputs: F32, masks: Masks | None, rng: np.random.Generator | None) -> Actions:
        """Returns a draw for each row."""
        if rng is None:
            raise UsageError("a uniform policy draws its actions; it needs a random number generator")
        batch = len(outputs)
        if isinstance(self._space, Box):
            shape = (batch, self._space.size)
            if self._bounds is None:
                return rng.standard_normal(shape, dtype=np.float32)
            return rng.uniform(*self._bounds, size=shape).astype(np.float32)
        equal = np.zeros((batch, self._distribution.num_parameters), dtype=np.float32)
        return self._distribution.sample(equal, rng, masks)[0]

    def probabilities(self, outputs: F32, masks: Masks | None) -> F64:
        """Returns the same probability for each allowed action, shape ``(batch, n)``."""
        if not isinstance(self._space, Discrete):
            raise UsageError("only a policy over discrete actions has a probability for each; use act")
        allowed = np.ones((len(outputs), self._space.n)) if masks is None else masks.astype(np.float64)
        return _as_probabilities(allowed)


def _as_probabilities(weights: NDArray[np.floating]) -> F64:
    wide = weights.astype(np.float64)
    result: F64 = wide / np.add.reduce(wide, axis=1, keepdims=True)
    return result
