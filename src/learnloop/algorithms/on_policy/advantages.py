"""What actions were worth: generalised advantage estimates and V-trace, over envs side by side.

All arrays have shape ``(num_steps, num_envs)``. ``next_values`` is the value of what each action led to: 0 where the
episode terminated, the value of the last observation where it was truncated. ``ended`` says that the row after it
belongs to another episode, so nothing is carried over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F32, Bools


def gae(rewards: F32, values: F32, next_values: F32, ended: Bools, *, gamma: float, gae_lambda: float) -> F32:
    """Returns the advantage of each action, shape ``(num_steps, num_envs)``.

    With ``gae_lambda`` 1 it is the n-step return minus the value.

    Source: Schulman et al. 2016, High-Dimensional Continuous Control Using Generalized Advantage Estimation,
    equation 16, as the recursion A_t = delta_t + gamma lambda A_{t+1} with delta_t = r_t + gamma V_{t+1} - V_t.
    """
    advantages: F32 = rewards + np.float32(gamma) * next_values - values
    carry = np.where(ended, np.float32(0), np.float32(gamma * gae_lambda))
    for step in range(len(advantages) - 2, -1, -1):
        advantages[step] += carry[step] * advantages[step + 1]
    return advantages


class VTrace(NamedTuple):
    """What V-trace says of historical transitions."""

    targets: F32
    """v_s: what the value is to become, shape ``(num_steps, num_envs)``."""
    advantages: F32
    """Not yet weighted by rho, shape ``(num_steps, num_envs)``."""
    weights: F32
    """rho: the truncated importance weight of each action, shape ``(num_steps, num_envs)``."""


def vtrace(
    rewards: F32,
    values: F32,
    next_values: F32,
    ended: Bools,
    log_ratios: F32,
    *,
    gamma: float,
    gae_lambda: float = 1.0,
    max_rho: float = 1.0,
) -> VTrace:
    """Returns V-trace's targets for transitions that another policy chose.

    With rho = min(max_rho, pi / mu) and c = lambda min(1, pi / mu):

        v_t = V_t + rho_t (r_t + gamma V_{t+1} - V_t) + gamma c_t (v_{t+1} - V_{t+1})
        A_t = r_t + gamma ((1 - lambda) V_{t+1} + lambda v_{t+1}) - V_t

    Where pi is mu, A is the generalised advantage of ``gae``, and v is V + A.

    Source: Espeholt et al. 2018, IMPALA, equation 1 as the recursion of remark 1, remark 2 for lambda, and section 4.2
    for the advantages.

    Args:
        rewards: of the actions.
        values: of the observations, under the policy that learns.
        next_values: of what the actions led to, under the policy that learns.
        ended: whether the next row is another episode's.
        log_ratios: log probability of each action under the policy that learns, minus that under the one that chose it.
        gamma: the discount.
        gae_lambda: how much of what comes after the next step counts, in place of the next step's value.
        max_rho: the bound of the weights; it decides which policy's value is learned.
    """
    ratios: F32 = np.exp(np.minimum(log_ratios, np.float32(80)), dtype=np.float32)
    weights: F32 = np.minimum(ratios, np.float32(max_rho))
    corrections: F32 = rewards + np.float32(gamma) * next_values - values
    corrections *= weights
    carry = np.where(ended, np.float32(0), np.float32(gamma * gae_lambda) * np.minimum(ratios, np.float32(1)))
    for step in range(len(corrections) - 2, -1, -1):
        corrections[step] += carry[step] * corrections[step + 1]
    targets: F32 = values + corrections
    ahead = next_values.copy()
    following = np.float32(gae_lambda) * targets[1:] + np.float32(1 - gae_lambda) * next_values[:-1]
    ahead[:-1] = np.where(ended[:-1], next_values[:-1], following)
    return VTrace(targets, rewards + np.float32(gamma) * ahead - values, weights)


def explained_variance(values: F32, returns: F32) -> float:
    """Returns the share of the variance of ``returns`` that ``values`` explain; NaN where they do not vary."""
    variance = float(np.var(returns))
    return float("nan") if variance == 0 else 1 - float(np.var(returns - values)) / variance


def standardised(rows: F32) -> F32:
    """Returns ``rows``, shape ``(n, batch)``, each with mean 0 and sample standard deviation 1, or all 0."""
    size = rows.shape[1]
    means = rows.mean(axis=1, dtype=np.float64, keepdims=True)  # in float32 equal numbers would keep some spread
    centred: F32 = rows - means.astype(np.float32)
    deviations = np.sqrt(np.vecdot(centred, centred) / np.float32(size - 1))
    centred /= (deviations + np.float32(1e-8))[:, None]
    return centred
