"""The duelling form of action values.

Source: Wang et al. 2016, Dueling Network Architectures for Deep Reinforcement Learning, equation 9:
Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a').
"""

from __future__ import annotations

import numpy as np

from learnloop.core.arrays import F32


def duelling_values(outputs: F32) -> F32:
    """Returns the value of each action, shape ``(batch, n)``, from V and the advantages, shape ``(batch, 1 + n)``."""
    advantages = outputs[:, 1:]
    values: F32 = outputs[:, :1] + advantages - advantages.mean(axis=1, keepdims=True)
    return values


def duelling_gradient(gradient: F32) -> F32:
    """Returns the gradient with respect to V and the advantages, shape ``(batch, 1 + n)``, from that of the values."""
    total = gradient.sum(axis=1, keepdims=True)
    return np.concatenate([total, gradient - total / np.float32(gradient.shape[1])], axis=1)
