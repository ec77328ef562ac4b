"""P13: who gets the credit where two agents share one reward and one of them is a bystander.

``learnloop/TeamReward-v0`` is the same as an environment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from learnloop.core.arrays import F64, I64
from learnloop.core.errors import UsageError
from learnloop.core.seeding import generator
from learnloop.testing.probes import ProbeError

NUM_ROUNDS = 4_000
CREDIT_TOLERANCE = 0.05
WORKER, BYSTANDER = 0, 1

Assigner = Callable[[I64, F64], Any]
"""From the actions of both agents in each round, shape ``(num_rounds, 2)``, and the reward that they share, shape
``(num_rounds,)``, to the credit of each agent in each round, shape ``(num_rounds, 2)``."""


def team_rounds(num_rounds: int = NUM_ROUNDS, *, seed: int = 0) -> tuple[I64, F64]:
    """Returns rounds in which both agents act by a coin, and the worker's action alone decides the reward."""
    actions: I64 = generator(seed, "team").integers(2, size=(num_rounds, 2))
    return actions, (actions[:, WORKER] == 1).astype(np.float64)


def check_credit(assign: Assigner, *, num_rounds: int = NUM_ROUNDS, seed: int = 0) -> None:
    """Returns if ``assign`` gives the reward to the worker and nothing to the bystander.

    The mean credit of the bystander must be 0, whichever action it took, and that of the worker must be higher by 1,
    the whole difference in reward, for its right action than for the wrong one; each within ``CREDIT_TOLERANCE``. What
    all get in common, such as a baseline, the worker may keep.

    Args:
        assign: what is judged.
        num_rounds: how many rounds it sees.
        seed: of the rounds.

    Raises:
        ProbeError: it does not.
        UsageError: it returns no number for each agent and round.
    """
    actions, rewards = team_rounds(num_rounds, seed=seed)
    credits = np.asarray(assign(actions.copy(), rewards.copy()), dtype=np.float64)
    if credits.shape != actions.shape:
        raise UsageError(f"the credits have the shape {credits.shape}; {actions.shape} is needed")
    wrong = []
    for action in (0, 1):
        mean = float(credits[actions[:, BYSTANDER] == action, BYSTANDER].mean())
        if not abs(mean) <= CREDIT_TOLERANCE:
            wrong.append(f"the bystander's credit for action {action} is {mean:.3f}, wanted 0")
    means = [float(credits[actions[:, WORKER] == action, WORKER].mean()) for action in (0, 1)]
    if not abs(means[1] - means[0] - 1.0) <= CREDIT_TOLERANCE:
        wrong.append(
            f"the worker's credit is {means[1]:.3f} for its right action and {means[0]:.3f} for the wrong one; wanted "
            "is a difference of 1"
        )
    if wrong:
        raise ProbeError(f"P13 (credit): {'; '.join(wrong)}")
