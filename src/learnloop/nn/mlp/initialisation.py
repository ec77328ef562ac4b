"""How weights and biases start. Weights have the shape ``(num_outputs, num_inputs)``."""

from __future__ import annotations

import math

import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.errors import UsageError, one_of

HIDDEN_GAIN = math.sqrt(2)
"""The gain of hidden layers in ``orthogonal``, as in Stable-Baselines3, and in ``he``."""


def orthogonal(rng: np.random.Generator, num_outputs: int, num_inputs: int, gain: float) -> F64:
    """Returns ``gain`` times a random matrix whose rows, or columns if they are fewer, are orthonormal.

    Source: Saxe et al. 2013, Exact solutions to the nonlinear dynamics of learning in deep linear neural networks,
    section 3; uniform over such matrices by the signs of R, as Mezzadri 2007, section 5.
    """
    tall = rng.standard_normal((max(num_outputs, num_inputs), min(num_outputs, num_inputs)))
    q, r = np.linalg.qr(tall)
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    result: F64 = gain * (q if num_outputs >= num_inputs else q.T)
    return result


def xavier(rng: np.random.Generator, num_outputs: int, num_inputs: int, gain: float) -> F64:
    """Returns uniform draws of variance ``gain² · 2 / (num_inputs + num_outputs)``.

    Source: Glorot and Bengio 2010, Understanding the difficulty of training deep feedforward neural networks,
    equation 16.
    """
    bound = gain * math.sqrt(6 / (num_inputs + num_outputs))
    return rng.uniform(-bound, bound, (num_outputs, num_inputs))


def he(rng: np.random.Generator, num_outputs: int, num_inputs: int, gain: float) -> F64:
    """Returns normal draws of variance ``gain² / num_inputs``.

    Source: He et al. 2015, Delving Deep into Rectifiers, equation 10 (its factor 2 is the gain of hidden layers).
    """
    return rng.normal(0, gain / math.sqrt(num_inputs), (num_outputs, num_inputs))


def uniform(rng: np.random.Generator, num_outputs: int, num_inputs: int) -> F64:
    """Returns uniform draws within ``1 / √num_inputs``: what ``torch.nn.Linear`` starts with."""
    bound = 1 / math.sqrt(num_inputs)
    return rng.uniform(-bound, bound, (num_outputs, num_inputs))


def uniform_biases(rng: np.random.Generator, num_outputs: int, num_inputs: int) -> F64:
    """Returns the biases that go with ``uniform``, shape ``(num_outputs,)``."""
    bound = 1 / math.sqrt(num_inputs)
    return rng.uniform(-bound, bound, num_outputs)


def weights(
    init: str, rng: np.random.Generator, num_outputs: int, num_inputs: int, *, gain: float | None = None
) -> F64:
    """Returns the weights that a layer starts with, shape ``(num_outputs, num_inputs)``.

    Args:
        init: ``orthogonal``, ``xavier``, ``he`` or ``uniform``.
        rng: draws them.
        num_outputs: of the layer.
        num_inputs: of the layer.
        gain: of a head; None: a hidden layer, whose gain is √2, in ``xavier`` 1. ``uniform`` has none.
    """
    if init == "orthogonal":
        return orthogonal(rng, num_outputs, num_inputs, HIDDEN_GAIN if gain is None else gain)
    if init == "xavier":
        return xavier(rng, num_outputs, num_inputs, 1.0 if gain is None else gain)
    if init == "he":
        return he(rng, num_outputs, num_inputs, HIDDEN_GAIN if gain is None else gain)
    if init == "uniform":
        return uniform(rng, num_outputs, num_inputs)
    raise UsageError(f"init is {init!r}; allowed is {one_of(['orthogonal', 'xavier', 'he', 'uniform'])}")
