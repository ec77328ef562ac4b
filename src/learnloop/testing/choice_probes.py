"""P11 and P12: whether masks are kept, and whether what has changed is learned again.

The environments are ``learnloop/MaskedReward-v0`` and ``learnloop/ChangingReward-v0``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from learnloop.core.arrays import F32, I64, Bools
from learnloop.core.errors import UsageError
from learnloop.envs.probes import MASKED_REWARDS, legal_actions
from learnloop.testing.probes import BEST_PROBABILITY, ProbeError

NUM_DRAWS = 10_000
RECOVERED = 0.9
"""After the arms of P12 have changed places the best one must have at least this probability again."""


def check_masked(
    choose: Callable[[F32, Bools], Any],
    *,
    best_share: float = BEST_PROBABILITY,
    num_draws: int = NUM_DRAWS,
    batch_size: int = 100,
) -> None:
    """Returns if ``choose`` never picks an illegal action of P11, and mostly picks the best legal one.

    Args:
        choose: returns an action for each of a batch: of observations, float32 of shape ``(batch_size, 1)``, under
            masks of shape ``(batch_size, 3)``. It draws, if the policy does.
        best_share: at least this share of its picks must be the best legal action, in each of the two states; 0: any
            legal one will do, as of a policy that explores.
        num_draws: how many picks, half of them in each state.
        batch_size: how many are asked for at once.

    Raises:
        ProbeError: it does not.
        UsageError: it returns no action for each observation.
    """
    for shown in (-1.0, 1.0):
        mask = legal_actions(shown)
        observations = np.full((batch_size, 1), shown, dtype=np.float32)
        masks = np.tile(mask, (batch_size, 1))
        picks = np.concatenate(
            [_picks(choose(observations, masks), batch_size) for _ in range(-(-num_draws // (2 * batch_size)))]
        )
        if num_illegal := int(np.count_nonzero(~mask[picks])):
            raise ProbeError(f"P11 (masks): {num_illegal} of {len(picks)} picks where {shown:g} is shown were illegal")
        best = int(np.argmax(np.where(mask, MASKED_REWARDS, -np.inf)))
        if (share := float(np.mean(picks == best))) < best_share:
            raise ProbeError(
                f"P11 (masks): {share:.3f} of the picks where {shown:g} is shown were the best legal action, {best}; "
                f"wanted {best_share:g}"
            )


def _picks(actions: Any, batch_size: int) -> I64:
    picks = np.asarray(actions)
    if picks.shape != (batch_size,) or picks.dtype.kind not in "iu":
        raise UsageError(
            f"choose returned {picks.dtype} numbers of shape {picks.shape}; {batch_size} actions, one for each "
            "observation, are needed"
        )
    return picks.astype(np.int64)


def check_recovery(before: Any, after: Any, *, share: float = RECOVERED) -> None:
    """Returns if an algorithm learned the best arm of P12 (0), and after the flip the other one (1).

    Args:
        before: the probability of each arm where the arms were about to change places, shape ``(2,)``.
        after: that at the end of as many steps more.
        share: what the best arm must have at each time.

    Raises:
        ProbeError: it did not.
    """
    for when, probabilities, best in (("before the flip", before, 0), ("after it", after, 1)):
        found = float(np.asarray(probabilities, dtype=np.float64).reshape(-1)[best])
        if not found >= share:  # NaN is not
            raise ProbeError(f"P12 (what has changed): {when} the best arm has {found:.3f}, wanted {share:g}")
