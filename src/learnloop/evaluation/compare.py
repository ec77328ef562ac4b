"""One policy against another on the same held-out tasks."""

from __future__ import annotations

import msgspec
import numpy as np

from learnloop.core.arrays import F64, Bools
from learnloop.core.errors import UsageError, one_of
from learnloop.core.protocols import HeldOut, Policy
from learnloop.evaluation.held_out import OutcomeTable
from learnloop.evaluation.intervals import Interval, paired_interval
from learnloop.evaluation.logged import LoggedDecisions
from learnloop.evaluation.permutation import sign_flip_p_value
from learnloop.evaluation.policies import FixedPolicy, UniformPolicy
from learnloop.evaluation.splitting import is_held_out
from learnloop.evaluation.tables import ends_of, html_table

BEST_FIXED = "best-fixed"
BASELINES = ("random", BEST_FIXED, "optimum")
CHOICE_SALT = "learnloop.best-fixed/v1"
"""Draws the half of the units of a log that the best fixed action is chosen on; it is judged on the other half."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How much more a policy earns than its baseline, over held-out units."""

    baseline: str
    """``random``, ``best-fixed (ACTION)``, ``optimum`` or the name that the caller gave."""
    mean: float
    baseline_mean: float
    difference: float
    interval: Interval | None
    """Of the difference; None below 20 units."""
    p_value: float
    """One-sided sign-flip test: small when the policy earns more. It knows no losses but those of these units."""
    num_units: int

    def _repr_html_(self) -> str:
        """Returns it as a table, which notebooks show."""
        means = {"mean": self.mean, "baseline": self.baseline, "baseline_mean": self.baseline_mean}
        sure = {"difference": self.difference, **ends_of(self.interval), "p_value": self.p_value}
        return html_table([{**means, **sure, "num_units": self.num_units}])


def compare(
    policy: Policy,
    baseline: Policy | str,
    held_out: HeldOut,
    *,
    baseline_name: str = "baseline",
    level: float = 0.95,
    seed: int = 0,
    num_permutations: int = 10_000,
) -> Comparison:
    """Returns how ``policy`` fares against ``baseline`` on ``held_out``.

    Args:
        policy: what is judged.
        baseline: a policy, or the name of one: ``random`` (uniform over allowed actions), ``best-fixed`` (the single
            action that is best on these very tasks, in hindsight; of a log the one that is best on one half of the
            units, and both are judged on the other half), ``optimum`` (the best action of each task, where every
            action was tried).
        held_out: the tasks.
        baseline_name: what to call a baseline that is given as a policy.
        level: of the interval.
        seed: of the sign flips.
        num_permutations: of the sign-flip test.

    Raises:
        UsageError: an unknown baseline, or one that ``held_out`` cannot give; no units.
    """
    if not held_out.units:
        raise UsageError("there are no held-out units to compare on")
    judged = np.ones(len(held_out.units), dtype=bool)
    if not isinstance(baseline, str):
        other = held_out.rewards(baseline)
    elif baseline == BEST_FIXED and isinstance(held_out, LoggedDecisions):
        baseline_name, other, judged = _best_fixed_of_log(held_out)
    else:
        baseline_name, other = _named_baseline(baseline, held_out)
    own, other = held_out.rewards(policy)[judged], other[judged]
    return Comparison(
        baseline=baseline_name,
        mean=float(own.mean()),
        baseline_mean=float(other.mean()),
        difference=float((own - other).mean()),
        interval=paired_interval(own - other, level),
        p_value=sign_flip_p_value(own - other, seed=seed, num_permutations=num_permutations),
        num_units=own.size,
    )


def _best_fixed_of_log(held_out: LoggedDecisions) -> tuple[str, F64, Bools]:
    """Returns the name of the baseline, what it earns on each unit, and which units it was not chosen on.

    The best of K estimates is too high on what it was chosen on: with 20 equal actions a 95 % interval covers .66.

    Raises:
        UsageError: there are too few units to choose on some and judge on others.
    """
    chosen_on = np.array([is_held_out(unit, 0.5, CHOICE_SALT) for unit in held_out.units], dtype=bool)
    if chosen_on.all() or not chosen_on.any():
        raise UsageError(f"{len(held_out.units)} held-out units are too few to choose a fixed action on some of them")
    tried = {action: held_out.rewards(FixedPolicy(action)) for action in held_out.actions}
    action = max(tried, key=lambda candidate: float(tried[candidate][chosen_on].mean()))
    return f"{BEST_FIXED} ({action})", tried[action], ~chosen_on


def _named_baseline(name: str, held_out: HeldOut) -> tuple[str, F64]:
    if name == "random":
        return name, held_out.rewards(UniformPolicy())
    if name == BEST_FIXED and isinstance(held_out, OutcomeTable):
        best = held_out.best_fixed()
        return f"best-fixed ({best.action})", best.rewards
    if name == "optimum" and isinstance(held_out, OutcomeTable):
        return name, held_out.optimum()
    if name in BASELINES:
        raise UsageError(f"{name} needs held-out tasks on which every action was tried, not {type(held_out).__name__}")
    raise UsageError(f"{name!r} is not a baseline; allowed are {one_of(BASELINES)} or a registered policy")
