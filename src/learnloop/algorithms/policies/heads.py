"""From the outputs of a policy's network to actions."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32, F64
from learnloop.core.errors import UsageError
from learnloop.core.spaces import ActionSpace, Box, Discrete, num_choices
from learnloop.core.stepping import Actions, Masks
from learnloop.nn.distributions import Categorical, make_distribution
from learnloop.nn.encoders.action_codec import bounds_of
from learnloop.nn.mlp.config import Head
from learnloop.nn.squashed_gaussian import SquashedGaussian


class PolicyHead(ABC):
    """Reads a batch of outputs.

    Attributes:
        num_outputs: how many outputs a stored network has; None: there is no network.
        scores: which of them the best discrete action has the highest of; None: it is not that simple.
    """

    num_outputs: int | None = None
    scores: slice | None = None

    @abstractmethod
    def choose(self, outputs: F32, masks: Masks | None, rng: np.random.Generator | None) -> Actions:
        """Returns an action for each row: drawn with ``rng``, or the most likely or most valued one without."""

    def probabilities(self, outputs: F32, masks: Masks | None) -> F64:
        """Returns the probability of each discrete action, shape ``(batch, n)``.

        Raises:
            UsageError: the actions are not discrete.
        """
        raise UsageError("only a policy over discrete actions has a probability for each; use act")


class DistributionHead(PolicyHead):
    """The outputs are the parameters of a distribution, whatever comes after them is not the policy's."""

    def __init__(self, space: ActionSpace) -> None:
        self._distribution = make_distribution(space)
        self.num_outputs = self._distribution.num_parameters
        self.scores = slice(0, space.n) if isinstance(space, Discrete) else None

    def choose(self, outputs: F32, masks: Masks | None, rng: np.random.Generator | None) -> Actions:
        """Returns an action for each row."""
        parameters = outputs[:, : self.num_outputs]
        if rng is None:
            return self._distribution.mode(parameters, masks)
        return self._distribution.sample(parameters, rng, masks)[0]

    def probabilities(self, outputs: F32, masks: Masks | None) -> F64:
        """Returns the probability of each discrete action, shape ``(batch, n)``."""
        if not isinstance(self._distribution, Categorical):
            return super().probabilities(outputs, masks)
        return _as_probabilities(self._distribution.probabilities(outputs[:, : self.num_outputs], masks))


class ValuesHead(PolicyHead):
    """The outputs are, or give, the value of each action; the best one is taken."""

    def __init__(self, space: Discrete, *, is_duelling: bool = False) -> None:
        """Takes the actions, and whether the first output is the state's value, the others the actions' advantages."""
        self.num_outputs = space.n + is_duelling
        self.scores = slice(int(is_duelling), self.num_outputs)  # the state's value is the same for each action
        self._is_duelling = is_duelling

    def _values(self, outputs: F32, masks: Masks | None) -> F32:
        """Returns the value of each action, shape ``(batch, n)``; minus infinity where not allowed."""
        values = duelling_values(outputs) if self._is_duelling else outputs[:, self.scores]
        return values if masks is None else np.where(masks, values, np.float32(-np.inf))

    def choose(self, outputs: F32, masks: Masks | None, rng: np.random.Generator | None) -> Actions:
        """Returns the allowed action of the highest value in each row; there is nothing to draw."""
        best: Actions = np.argmax(self._values(outputs, masks), axis=1)
        return best

    def probabilities(self, outputs: F32, masks: Masks | None) -> F64:
        """Returns 1 for the best action of each row, shared by ties, shape ``(batch, n)``."""
        allowed = self._values(outputs, masks)
        return _as_probabilities((allowed == allowed.max(axis=1, keepdims=True)).astype(np.float64))


class SquashedHead(PolicyHead):
    """The outputs are a Gaussian's; its draws, squashed by tanh, are scaled to the bounds of a box."""

    def __init__(self, space: Box) -> None:
        self._distribution = SquashedGaussian(space.size)
        self.num_outputs = self._distribution.num_parameters
        low, high = bounds_of(space)
        self._half = (high - low) / np.float32(2)
        self._middle = (high + low) / np.float32(2)

    def choose(self, outputs: F32, masks: Masks | None, rng: np.random.Generator | None) -> Actions:
        """Returns an action for each row, in the units of the box."""
        squashed = self._distribution.mode(outputs) if rng is None else self._distribution.sample(outputs, rng).actions
        actions: F32 = squashed * self._half
        actions += self._middle
        return actions


class UniformHead(PolicyHead):
    """Any allowed action is as likely; for a box with a bound missing, a standard normal draw."""

    def __init__(self, space: ActionSpace) -> None:
        self._space = space
        if isinstance(space, Box):
            self._bounds = bounds_of(space) if space.is_bounded else None
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
            return super().probabilities(outputs, masks)
        allowed = np.ones((len(outputs), self._space.n)) if masks is None else masks.astype(np.float64)
        return _as_probabilities(allowed)


def _as_probabilities(weights: NDArray[np.floating]) -> F64:
    wide = weights.astype(np.float64)
    result: F64 = wide / np.add.reduce(wide, axis=1, keepdims=True)
    return result


def policy_heads(space: ActionSpace, *, gain: float = 1.0, log_std: float = 0.0) -> list[Head]:
    """Returns the heads of a network for the parameters of ``make_distribution(space)``.

    Args:
        space: of the actions.
        gain: of what depends on the observation.
        log_std: where the logarithms of the standard deviations of a box start, which do not depend on it.
    """
    if isinstance(space, Box):
        spread = Head(name="log_std", size=space.size, constant=True, initial=log_std)
        return [Head(name="policy", size=space.size, gain=gain), spread]
    return [Head(name="policy", size=num_choices(space), gain=gain)]


def duelling_values(outputs: F32) -> F32:
    """Returns the value of each action, shape ``(batch, n)``, from V and the advantages, shape ``(batch, 1 + n)``.

    Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a').

    Source: Wang et al. 2016, Dueling Network Architectures for Deep Reinforcement Learning, equation 9.
    """
    advantages = outputs[:, 1:]
    values: F32 = outputs[:, :1] + advantages - advantages.mean(axis=1, keepdims=True)
    return values


def duelling_gradient(gradient: F32) -> F32:
    """Returns the gradient with respect to V and the advantages, shape ``(batch, 1 + n)``, from that of the values."""
    total = gradient.sum(axis=1, keepdims=True)
    return np.concatenate([total, gradient - total / np.float32(gradient.shape[1])], axis=1)
