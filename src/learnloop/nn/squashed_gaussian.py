"""SAC's distribution over bounded actions: a Gaussian, squashed by tanh."""

from __future__ import annotations

import math

import numpy as np

from learnloop.core.arrays import F32
from learnloop.nn.distributions import Weights

MIN_LOG_STD = np.float32(-20)
MAX_LOG_STD = np.float32(2)
"""The logarithm of the standard deviation is kept between these, as in Stable-Baselines3."""
_LOG_FOUR = np.float32(math.log(4))
_HALF_LOG_TAU = np.float32(0.5 * math.log(2 * math.pi))


class Squashed:
    """Actions that were drawn, and how they depend on the parameters."""

    def __init__(self, parameters: F32, noise: F32) -> None:
        """Computes them; ``noise`` has the shape ``(batch, size)`` and is standard normal.

        With e = exp(-2|u|), tanh|u| = (1 - e) / (1 + e) and 1 - tanh² u = 4 e / (1 + e)²: neither overflows, and the
        logarithm of the latter is exact where tanh itself has become 1.

        Source: Haarnoja et al. 2018, Soft Actor-Critic, appendix C, equation 21.
        """
        size = noise.shape[1]
        transposed = parameters.T
        self._raw_log_std = transposed[size:]
        log_std = np.clip(self._raw_log_std, MIN_LOG_STD, MAX_LOG_STD)
        self._noise = np.ascontiguousarray(noise.T)
        self._deviation = np.exp(log_std)
        self._deviation *= self._noise
        unsquashed = transposed[:size] + self._deviation
        distance = np.abs(unsquashed)
        decay = np.exp(distance * np.float32(-2))
        denominator = decay + np.float32(1)
        squashed = (np.float32(1) - decay) / denominator
        np.copysign(squashed, unsquashed, squashed)
        self._squashed = squashed
        self._slope = decay * np.float32(4) / (denominator * denominator)
        log_slope = _LOG_FOUR - np.float32(2) * (distance + np.log(denominator))
        terms = self._noise * self._noise * np.float32(-0.5) - log_std - log_slope
        self.actions: F32 = squashed.T
        """Shape ``(batch, size)``, from -1 to 1 (the ends only where float32 has nothing between)."""
        self.log_probs: F32 = np.add.reduce(terms, axis=0) - size * _HALF_LOG_TAU
        """The logarithms of the densities of the actions, shape ``(batch,)``."""

    def gradient(self, action_gradient: F32, log_prob_weights: Weights) -> F32:
        """Returns the gradient with respect to the parameters, shape ``(batch, num_parameters)``.

        By the reparameterisation trick: the noise is held, u = mean + std · noise.

        Args:
            action_gradient: of the loss with respect to ``actions``, shape ``(batch, size)``.
            log_prob_weights: of the loss with respect to ``log_probs``, shape ``(batch,)`` or one number.
        """
        size, batch = self._squashed.shape
        weights = np.asarray(log_prob_weights, dtype=np.float32)
        result = np.empty((2 * size, batch), dtype=np.float32)
        mean, log_std = result[:size], result[size:]
        np.multiply(action_gradient.T, self._slope, mean)
        mean += self._squashed * (np.float32(2) * weights)
        np.multiply(mean, self._deviation, log_std)
        log_std -= weights
        raw = self._raw_log_std
        log_std *= (raw >= MIN_LOG_STD) & (raw <= MAX_LOG_STD)
        return result.T


class SquashedGaussian:
    """``size`` independent Gaussians squashed by tanh; parameters are means, then logarithms of standard deviations.

    Parameters that are not finite raise nothing here: actions and log-probabilities are then not finite either.
    """

    def __init__(self, size: int) -> None:
        self.num_parameters = 2 * size
        self._size = size

    def sample(self, parameters: F32, rng: np.random.Generator) -> Squashed:
        """Returns actions that were drawn for ``parameters``, shape ``(batch, num_parameters)``."""
        return Squashed(parameters, rng.standard_normal((len(parameters), self._size), dtype=np.float32))

    def mode(self, parameters: F32) -> F32:
        """Returns the squashed means, shape ``(batch, size)``."""
        result: F32 = np.tanh(parameters[:, : self._size])
        return result
