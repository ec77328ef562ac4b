"""One correction of PPO and A2C for steps that another policy than the one that learns may have chosen.

mu chose a step, pi learns from it, V are pi's values, and r = pi(a | s) / mu(a | s). A step is pi's own where the two
are one policy: then r is 1, and what was noted when it was chosen holds. Any other is foreign. With

    rho_t = min(1, r_t)
    v_t = V_t + rho_t (R_t + gamma V_{t+1} - V_t) + gamma lambda rho_t (v_{t+1} - V_{t+1})
    A_t = R_t + gamma ((1 - lambda) V_{t+1} + lambda v_{t+1}) - V_t

the value is to become v, and the advantage A counts by rho: nothing is learned as if pi had chosen it. The ratio that
PPO clips is taken to pi as it was before the update, not to mu, so that it starts at 1 for each step. Where all steps
are pi's own, A is the generalised advantage and v = V + A: PPO and A2C as they are.

Source: Espeholt et al. 2018, IMPALA, equation 1 with remark 2, and section 4.2; Hilton et al. 2022, Batch
size-invariance for policy optimization, equation 4 (the ratio to the policy that chose, apart from the ratio that is
clipped).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learnloop.algorithms.on_policy.advantages import gae, vtrace
from learnloop.algorithms.on_policy.rollout import Batch, Steps
from learnloop.core.arrays import F32, Bools


class JudgedSteps(NamedTuple):
    """What the policy that learns says of steps, each of shape ``(num_steps,)``."""

    log_probs: F32
    values: F32


def corrected(
    steps: Steps, is_own: Bools, judged: JudgedSteps | None, bootstraps: F32, *, gamma: float, gae_lambda: float
) -> Batch:
    """Returns ``steps`` with what they were worth, as the module says.

    Args:
        steps: of whole segments.
        is_own: which of them the policy that learns chose itself, shape ``(num_steps,)``.
        judged: what that policy says of them; None where all are its own and their values are known.
        bootstraps: its values of ``steps.next_observations``, shape ``(len(steps.cut),)``.
        gamma: the discount.
        gae_lambda: between bias (0) and variance (1).
    """
    log_probs, values, log_ratios = steps.log_probs, steps.values, np.zeros_like(steps.log_probs)
    if judged is not None:
        log_ratios = np.where(is_own, np.float32(0), judged.log_probs - log_probs)
        log_probs = np.where(is_own, log_probs, judged.log_probs)
        values = judged.values if values is None else np.where(is_own, values, judged.values)
    if values is None:
        raise TypeError("the values of the steps are not known; judge them")
    ahead = np.zeros_like(values)
    ahead[:-1] = values[1:]
    ahead[steps.ended] = 0
    ahead[steps.cut] = bootstraps
    columns = (steps.rewards[:, None], values[:, None], ahead[:, None], steps.ended[:, None])
    weights: F32 | None = None
    if is_own.all():  # the same numbers, in a third of the work
        advantages = gae(*columns, gamma=gamma, gae_lambda=gae_lambda)[:, 0]
        returns = advantages + values
    else:
        found = vtrace(*columns, log_ratios[:, None], gamma=gamma, gae_lambda=gae_lambda)
        advantages, returns, weights = (each[:, 0] for each in (found.advantages, found.targets, found.weights))
    return Batch(
        observations=steps.observations,
        actions=steps.actions,
        log_probs=log_probs,
        values=values,
        advantages=advantages,
        returns=returns,
        masks=steps.masks,
        dropout=steps.dropout,
        weights=weights,
    )
