"""From tests to a verdict, with the reasons in plain English."""

from __future__ import annotations

from collections.abc import Sequence

from learnloop.core.records import Verdict
from learnloop.evaluation.assumptions.assumption import Assumption
from learnloop.evaluation.controls import CONTROLS
from learnloop.evaluation.proof import ArmTest, VerificationOptions

PAIRED = "paired_sign_flip"
"""The name of the tests over held-out units."""
RANK = "control_rank"
"""The name of the test among shuffled controls."""


def judge(tests: Sequence[ArmTest], options: VerificationOptions) -> tuple[Verdict, list[str]]:
    """Returns the verdict that the tests come to, and why; ``verify_learning`` says what each verdict means."""
    alpha = options.alpha
    failed = [test for test in tests if test.p_value > alpha]
    if not failed:
        unsafe = [test for test in tests if test.p_value_rare_loss is not None and test.p_value_rare_loss > alpha]
        if unsafe:
            return Verdict.INCONCLUSIVE, [_rare_loss_reason(test) for test in unsafe]
        return Verdict.LEARNED, [f"better than {test.against} by {_figures(test)}" for test in tests]
    worse = [test for test in failed if test.p_value_worse <= alpha and test.against not in options.hindsight]
    set_apart = all(min(test.p_value, test.p_value_worse) <= alpha for test in tests if test.against == CONTROLS)
    reasons = [
        f"worse than {test.against} by {-test.difference:.4g} (p = {test.p_value_worse:.3g}, {test.name})"
        if test in worse
        else f"not better than {test.against}{_note_hindsight(test, options)}: {_figures(test)} > {alpha:g}"
        + _more_units(test)
        for test in failed
    ]
    regressed = set_apart and any(test.name == PAIRED for test in worse)
    return (Verdict.REGRESSED if regressed else Verdict.NO_SIGNAL), reasons


def _rare_loss_reason(test: ArmTest) -> str:
    return (
        f"better than {test.against} by {_figures(test)}, but losses of {test.worst_loss:.3g} that are too rare to be "
        f"seen could undo that (p = {test.p_value_rare_loss:.3g}): about {test.units_needed} held-out units are "
        "needed, or a least_reward if no unit can earn as little"
    )


def _more_units(test: ArmTest) -> str:
    if test.units_needed is None or test.name != PAIRED:
        return ""
    return f"; if the gain is what it seems, about {test.units_needed:,} held-out units would show it"


def _note_hindsight(test: ArmTest, options: VerificationOptions) -> str:
    return ", which is known only in hindsight" if test.against in options.hindsight else ""


def _figures(test: ArmTest) -> str:
    return f"{round(test.difference, 12):.4g} ({test.name}, p = {test.p_value:.3g})"


def judge_missing(
    verdict: Verdict, reasons: list[str], tests: Sequence[ArmTest], lacking: Assumption, options: VerificationOptions
) -> tuple[Verdict, list[str]]:
    """Returns the verdict where more rewards are missing than may be: ``learned`` only if they cannot undo it."""
    if verdict is not Verdict.LEARNED:
        return Verdict.INCONCLUSIVE, [lacking.detail, *reasons]
    known = [test.p_value_missing for test in tests if test.name == PAIRED]
    worst = max((1.0 if p_value is None else p_value for p_value in known), default=1.0)
    if worst <= options.alpha:
        note = f"{lacking.detail}; better even if each of them was as bad for it as rewards can be (p = {worst:.3g})"
        return verdict, [*reasons, note]
    advice = "wait for them, give a default reward, or log failures too"
    return Verdict.INCONCLUSIVE, [
        f"{lacking.detail}; if they were as bad for what was learned as rewards can be, it would not be better "
        f"(p = {worst:.3g}): {advice}"
    ]
