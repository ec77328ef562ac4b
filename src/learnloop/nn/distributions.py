"""Distributions over actions: from a network's outputs to actions, and from a loss back to the outputs.

Parameters that are not finite raise nothing here: they give log-probabilities that are not finite, which the caller
must look at before it uses the actions. ``sample`` and ``evaluate`` compute log-probabilities in the same way: for the
same parameters they are equal to the bit.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32, I64
from learnloop.core.errors import ActionError, UsageError
from learnloop.core.spaces import ActionSpace, Box, Discrete, MultiDiscrete

if TYPE_CHECKING:
    from learnloop.core.stepping import Actions, Masks

Weights = F32 | float
"""One for each row, shape ``(batch,)``, or one for all."""

_HALF_LOG_TAU = np.float32(0.5 * math.log(2 * math.pi))
_NEVER = np.float32(-np.inf)


class Evaluation(Protocol):
    """What a distribution says of a batch of actions."""

    @property
    def log_probs(self) -> F32:
        """The logarithms of the probabilities or densities of the actions, shape ``(batch,)``."""
        ...

    @property
    def entropies(self) -> F32:
        """The entropies of the distributions, in nats, shape ``(batch,)``."""
        ...

    def gradient(self, log_prob_weights: Weights, entropy_weights: Weights) -> F32:
        """Returns the gradient of the weighted sum of all of these with respect to the parameters.

        Its shape is ``(batch, num_parameters)``; weights have the shape ``(batch,)`` or are one number.
        """
        ...


# A family of distributions over one action space is immutable, and has in ``num_parameters`` how many numbers describe
# one distribution. Parameters have the shape ``(batch, num_parameters)``. Masks say what is allowed, None: everything;
# an action that is not has probability 0. ``ActionError`` is raised where a row allows nothing.


def make_distribution(space: ActionSpace) -> Categorical | MultiCategorical | DiagonalGaussian:
    """Returns the family that goes with an action space."""
    if isinstance(space, Discrete):
        return Categorical(space.n)
    if isinstance(space, MultiDiscrete):
        return MultiCategorical(space.nvec)
    if isinstance(space, Box):
        return DiagonalGaussian(space.size)
    raise UsageError(f"there is no distribution over {space!r}; actions are Discrete, MultiDiscrete or Box")


class _Softmax:
    """The softmax of logits, computed once; arrays are ``(n, batch)``: sums over few choices are then sums of rows."""

    def __init__(self, parameters: F32, masks: Masks | None, offset: int = 0) -> None:
        logits = parameters.T
        self.masks = None
        if masks is not None:
            self.masks = masks.T
            _check_masks(masks, offset)
            logits = np.where(self.masks, logits, _NEVER)
        self.shifted: F32 = np.subtract(logits, np.maximum.reduce(logits, axis=0), order="C")
        """The logits less the largest one of their row; -inf where not allowed."""
        self.weights: F32 = np.exp(self.shifted)
        self.total: F32 = np.add.reduce(self.weights, axis=0)
        self.log_total: F32 = np.log(self.total)

    def log_probs_of(self, actions: I64) -> F32:
        """Returns the log-probability of one action in each row."""
        chosen: F32 = self.shifted[actions, _rows(len(actions))]
        return np.subtract(chosen, self.log_total, chosen)

    def draw(self, rng: np.random.Generator) -> I64:
        """Returns an action for each row, by inversion of the cumulated weights."""
        cumulated = np.add.accumulate(np.ascontiguousarray(self.weights.T), axis=1)
        # The largest number drawn is 1 - 2^-24; times the total, which is at least 1, it rounds to below the total. So
        # a choice of weight 0 is never drawn, be it the last one.
        thresholds = rng.random(len(self.total), dtype=np.float32)
        thresholds *= cumulated[:, -1]
        result: I64 = np.add.reduce(cumulated[:, :-1] <= thresholds[:, None], axis=1, dtype=np.int64)
        return result

    def mode(self) -> I64:
        result: I64 = np.argmax(self.shifted, axis=0)
        return result

    def probabilities(self) -> F32:
        result: F32 = np.divide(self.weights, self.total)
        return result


class _CategoricalEvaluation:
    def __init__(self, softmax: _Softmax, actions: I64) -> None:
        self._softmax = softmax
        self._actions = actions
        self.log_probs = softmax.log_probs_of(actions)
        self._probabilities = softmax.probabilities()
        # H = log total - sum of p times shifted logit; a choice that is not allowed adds nothing.
        self._finite = softmax.shifted if softmax.masks is None else np.where(softmax.masks, softmax.shifted, 0)
        self._mean = np.add.reduce(self._probabilities * self._finite, axis=0)
        self.entropies: F32 = softmax.log_total - self._mean

    def gradient(self, log_prob_weights: Weights, entropy_weights: Weights) -> F32:
        """The log-probability of action a gives (i = a) - p_i, the entropy -p_i (log p_i + H)."""
        result: F32
        scale = np.asarray(log_prob_weights, dtype=np.float32)
        if isinstance(entropy_weights, (int, float)) and entropy_weights == 0:
            result = self._probabilities * -scale
        else:
            # log p_i + H is the shifted logit less its mean.
            result = self._finite - self._mean
            result *= np.asarray(entropy_weights, dtype=np.float32)
            result += scale
            result *= self._probabilities
            np.negative(result, result)
        result[self._actions, _rows(len(self._actions))] += scale
        return result.T


class Categorical:
    """One of ``n`` actions; parameters are logits. Actions are int64, shape ``(batch,)``, from 0."""

    def __init__(self, n: int) -> None:
        self.num_parameters = n

    def sample(self, parameters: F32, rng: np.random.Generator, masks: Masks | None = None) -> tuple[I64, F32]:
        """Returns actions that were drawn and their log-probabilities; ``rng`` draws them."""
        softmax = _Softmax(parameters, masks)
        actions = softmax.draw(rng)
        return actions, softmax.log_probs_of(actions)

    def mode(self, parameters: F32, masks: Masks | None = None) -> I64:
        """Returns the most likely actions, the first one of equals."""
        if masks is None:
            result: I64 = np.argmax(parameters, axis=1)
            return result
        _check_masks(masks)
        result = np.argmax(np.where(masks, parameters, _NEVER), axis=1)
        return result

    def evaluate(self, parameters: F32, actions: Actions, masks: Masks | None = None) -> Evaluation:
        """Returns what the distributions say of ``actions``; one that is not allowed has log-probability -inf."""
        return _CategoricalEvaluation(_Softmax(parameters, masks), actions)

    def probabilities(self, parameters: F32, masks: Masks | None = None) -> F32:
        """Returns the probability of each action, shape ``(batch, n)``; exactly 0 where not allowed."""
        return _Softmax(parameters, masks).probabilities().T


class _JointEvaluation:
    def __init__(self, parts: list[_CategoricalEvaluation]) -> None:
        self._parts = parts
        self.log_probs: F32 = parts[0].log_probs.copy()
        self.entropies: F32 = parts[0].entropies.copy()
        for part in parts[1:]:
            self.log_probs += part.log_probs
            self.entropies += part.entropies

    def gradient(self, log_prob_weights: Weights, entropy_weights: Weights) -> F32:
        parts = [part.gradient(log_prob_weights, entropy_weights).T for part in self._parts]
        return np.concatenate(parts).T


class MultiCategorical:
    """Several independent choices; parameters are the logits of the first one, then of the next.

    Actions are int64, shape ``(batch, num_choices)``, each from 0.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.num_parameters = sum(sizes)
        ends = np.cumsum(sizes).tolist()
        self._parts = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]

    def _softmaxes(self, parameters: F32, masks: Masks | None) -> list[_Softmax]:
        return [
            _Softmax(parameters[:, part], None if masks is None else masks[:, part], index)
            for index, part in enumerate(self._parts)
        ]

    def sample(self, parameters: F32, rng: np.random.Generator, masks: Masks | None = None) -> tuple[I64, F32]:
        """Returns actions that were drawn and their log-probabilities; ``rng`` draws them."""
        softmaxes = self._softmaxes(parameters, masks)
        actions = [softmax.draw(rng) for softmax in softmaxes]
        log_probs = softmaxes[0].log_probs_of(actions[0])
        for softmax, chosen in zip(softmaxes[1:], actions[1:], strict=True):
            log_probs += softmax.log_probs_of(chosen)
        return np.stack(actions, axis=1), log_probs

    def mode(self, parameters: F32, masks: Masks | None = None) -> I64:
        """Returns the most likely actions, the first ones of equals."""
        return np.stack([softmax.mode() for softmax in self._softmaxes(parameters, masks)], axis=1)

    def evaluate(self, parameters: F32, actions: Actions, masks: Masks | None = None) -> Evaluation:
        """Returns what the distributions say of ``actions``; one that is not allowed has log-probability -inf."""
        softmaxes = self._softmaxes(parameters, masks)
        parts = [_CategoricalEvaluation(softmax, actions[:, index]) for index, softmax in enumerate(softmaxes)]
        return _JointEvaluation(parts)


class _GaussianEvaluation:
    def __init__(self, mean: F32, log_std: F32, actions: F32) -> None:
        self._inverse_std = np.exp(-log_std)
        self._normal = (actions - mean) * self._inverse_std
        self._squares = self._normal * self._normal
        sum_of_logs = np.add.reduce(log_std, axis=0)
        size = len(log_std)
        constant = size * _HALF_LOG_TAU
        self.log_probs: F32 = np.add.reduce(self._squares, axis=0) * np.float32(-0.5) - sum_of_logs - constant
        self.entropies: F32 = sum_of_logs + (constant + np.float32(0.5 * size))

    def gradient(self, log_prob_weights: Weights, entropy_weights: Weights) -> F32:
        """With z = (a - mean) / std, the log-probability gives z / std and z² - 1, the entropy 0 and 1."""
        size, batch = self._normal.shape
        scale = np.asarray(log_prob_weights, dtype=np.float32)
        result = np.empty((2 * size, batch), dtype=np.float32)
        np.multiply(self._normal, self._inverse_std, result[:size])
        result[:size] *= scale
        np.subtract(self._squares, np.float32(1), result[size:])
        result[size:] *= scale
        result[size:] += np.asarray(entropy_weights, dtype=np.float32)
        return result.T


class DiagonalGaussian:
    """``size`` independent normal distributions; parameters are the means, then the logarithms of standard deviations.

    Actions are float32, shape ``(batch, size)``, and not bounded: clipping them to a space is the caller's.
    """

    def __init__(self, size: int) -> None:
        self.num_parameters = 2 * size
        self._size = size

    def sample(self, parameters: F32, rng: np.random.Generator, masks: Masks | None = None) -> tuple[F32, F32]:
        """Returns actions that were drawn and the logarithms of their densities, shape ``(batch,)``."""
        _refuse_masks(masks)
        mean, log_std = self._split(parameters)
        actions = rng.standard_normal((len(parameters), self._size), dtype=np.float32)
        drawn = actions.T
        drawn *= np.exp(log_std)
        drawn += mean
        return actions, _GaussianEvaluation(mean, log_std, drawn).log_probs

    def mode(self, parameters: F32, masks: Masks | None = None) -> F32:
        """Returns the means."""
        _refuse_masks(masks)
        return parameters[:, : self._size].copy()

    def evaluate(self, parameters: F32, actions: Actions, masks: Masks | None = None) -> Evaluation:
        """Returns what the distributions say of ``actions``."""
        _refuse_masks(masks)
        mean, log_std = self._split(parameters)
        return _GaussianEvaluation(mean, log_std, actions.T)

    def _split(self, parameters: F32) -> tuple[F32, F32]:
        transposed = parameters.T
        return transposed[: self._size], transposed[self._size :]


@lru_cache(maxsize=64)
def _rows(batch: int) -> I64:
    """Returns 0 to ``batch`` - 1, read-only: an index is needed in each call and takes long to make."""
    rows = np.arange(batch)
    rows.flags.writeable = False
    return rows


def _check_masks(masks: NDArray[Any], choice: int = 0) -> None:
    allowed = masks.any(axis=1)
    if not allowed.all():
        row = int(np.argmin(allowed))
        raise ActionError(f"the mask of row {row} allows no action (choice {choice}); at least one must be allowed")


def _refuse_masks(masks: Masks | None) -> None:
    if masks is not None:
        raise ActionError("action masks were given for continuous actions, which have none; leave them out")
