"""All that can be asked of a log before anything is learned from it."""

from __future__ import annotations

from collections.abc import Sequence

from learnloop.core.protocols import Sample
from learnloop.evaluation.assumptions.assumption import Assumption, AssumptionState
from learnloop.evaluation.assumptions.independence import check_independence
from learnloop.evaluation.assumptions.log_table import LogTable
from learnloop.evaluation.assumptions.missing import check_missing
from learnloop.evaluation.assumptions.propensities import check_propensities


def check_log(
    samples: Sequence[Sample], missing: Sequence[Sample] = (), learned_from: Sequence[Sample] = ()
) -> list[Assumption]:
    """Returns what a log says of its propensities, of its units' independence and of rewards that are missing.

    Args:
        samples: decisions with known rewards, which something is judged on; those without a valid propensity are not
            looked at.
        missing: those whose reward is missing, of all that it would be judged on; their own is NaN.
        learned_from: other decisions of the same log with known rewards. What is missing among them is not known here
            and makes no verdict wrong.
    """
    judged = LogTable([*samples, *missing])
    table = LogTable([*learned_from, *samples, *missing]) if learned_from else judged
    return [
        check_propensities(table),
        check_independence(table),
        check_missing(len(samples), len(missing), judged),
        _one_reward_each([*learned_from, *samples]),
    ]


def broken(assumptions: Sequence[Assumption], *names: str) -> list[Assumption]:
    """Returns those of ``names`` that do not hold."""
    return [each for each in assumptions if each.name in names and each.finding is AssumptionState.BROKEN]


def _one_reward_each(samples: Sequence[Sample]) -> Assumption:
    """Returns what a decision's reward is taken to depend on."""
    sharing: dict[str, int] = {}
    for each in samples:
        if each.shared is not None:
            sharing[each.shared] = sharing.get(each.shared, 0) + 1
    num_shared = sum(number for number in sharing.values() if number > 1)
    if num_shared:
        detail = (
            f"{num_shared:,} decisions share a reward with others of their episode: they are weighed together, as what "
            "a policy earns that makes all of them"
        )
    else:
        detail = "each reward is taken to depend on its own decision and on no other; that cannot be seen from a log"
    return Assumption(name="rewards_of_decisions", finding=AssumptionState.UNKNOWN, detail=detail)
