"""Rewards of a model's answer to a task: the built-in ones, and a reward function of the caller's by its address."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from learnloop.core.answers import COMPARISONS, is_number
from learnloop.core.attempts import Attempt, Score
from learnloop.core.errors import RewardError, UsageError, one_of
from learnloop.core.extensions import POINTS
from learnloop.core.importing import import_named

Task = Mapping[str, Any]
Function = Callable[[Attempt], Any]
"""``function(attempt)`` returns a finite number or a ``Score``."""


def _compared(name: str, attempt: Attempt) -> float:
    return float(COMPARISONS[name](attempt.output or "", attempt.expected))


BUILT_IN: Mapping[str, Function] = {name: partial(_compared, name) for name in ("exact_match", "contains", "numeric")}
"""1 or 0: the answer is the task's ``target``, but for white space around it; the ``target`` stands in the answer, in
upper or lower case; the last number of the answer is the ``target``, within a millionth of it."""


def find_score(name: str) -> Function:
    """Returns the reward function called ``name``: a built-in one, one that was added by name, or ``module:function``.

    Raises:
        UsageError: there is none; what can be given is said.
        NotFoundError: its module cannot be found.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    added = POINTS["reward"].find(name)
    if added is not None:
        return check_score(name, added)
    module, colon, function = name.partition(":")
    if not colon or not function:
        known = [*BUILT_IN, *POINTS["reward"].names()]
        raise UsageError(f"reward is {name!r}; give {one_of(known)}, or 'module:function' for one of your own")
    return check_score(name, getattr(import_named(module, f"the reward {name!r}", "my_rewards:score"), function, None))


def check_score(name: str, value: object) -> Function:
    """Returns what was found, or is to be added, as the reward function ``name``.

    Raises:
        UsageError: it cannot be called, or is a class, whose call makes an object and no number.
    """
    if not callable(value) or isinstance(value, type):
        raise UsageError(
            f"the reward {name!r} is no function: it is {value!r}; a callable is needed, as score(attempt)"
        )
    function: Function = value
    return function


def check_target(name: str, task: Task, number: int) -> None:
    """Returns if a task has what the reward function ``name`` looks at.

    Raises:
        UsageError: it has not.
    """
    if name not in BUILT_IN:
        return
    target = task.get("target")
    if not isinstance(target, str | int | float) or isinstance(target, bool) or not str(target).strip():
        raise UsageError(f"task {number} has the target {target!r}; {name} needs a text or a number to compare with")
    if name == "numeric" and not is_number(str(target)):
        raise UsageError(f"task {number} has the target {target!r}, which is no number; numeric needs one")


def to_attempt(prompt: str, answer: str, task: Task) -> Attempt:
    """Returns what a reward function is given: the answer, the task's ``target`` as ``expected``, the task itself."""
    return Attempt(prompt=prompt, output=answer, expected=task.get("target"), metadata=dict(task))


def scored(name: str, function: Function, attempt: Attempt) -> float:
    """Returns what an attempt is worth.

    Raises:
        RewardError: it is not a finite number, None included: an unknown reward is not 0.
        UsageError: the reward function raised something.
    """
    try:
        found = function(attempt)
    except Exception as error:  # whatever a function of the caller's raises
        raise UsageError(f"the reward {name!r} raised {type(error).__name__}: {error}") from error
    value, why = (found.value, f" ({found.reason})") if isinstance(found, Score) else (found, "")
    if not isinstance(value, numbers.Real) or not math.isfinite(value):
        answer = (attempt.output or "")[:80]
        raise RewardError(f"the reward {name!r} is {value!r} for the answer {answer!r}{why}; a finite number is needed")
    return float(value)
