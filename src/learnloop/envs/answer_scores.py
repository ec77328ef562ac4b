"""Scores of a model's answer to a task: the built-in ones, and a function of the caller's by its address."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Mapping
from typing import Any

from learnloop.core.errors import RewardError, UsageError, one_of
from learnloop.core.extensions import POINTS
from learnloop.core.importing import import_named

Task = Mapping[str, Any]
Score = Callable[[str, Task], Any]
"""``score(answer, task)`` returns a finite number."""

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?|-?\.\d+")
_TOLERANCE = 1e-6


def exact_match(answer: str, task: Task) -> float:
    """Returns 1 if the answer is the task's ``target``, but for white space around it; else 0."""
    return float(answer.strip() == str(task["target"]).strip())


def contains(answer: str, task: Task) -> float:
    """Returns 1 if the task's ``target`` stands in the answer, in upper or lower case; else 0."""
    return float(str(task["target"]).strip().casefold() in answer.casefold())


def numeric(answer: str, task: Task) -> float:
    """Returns 1 if the last number of the answer is the task's ``target``, within a millionth of it; else 0."""
    found = _NUMBER.findall(answer)
    return float(bool(found) and math.isclose(_value(found[-1]), _value(str(task["target"])), rel_tol=_TOLERANCE))


BUILT_IN: Mapping[str, Score] = {"exact_match": exact_match, "contains": contains, "numeric": numeric}


def find_score(name: str) -> Score:
    """Returns the score called ``name``: a built-in one, one that was added by name, or ``module:function``.

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


def check_score(name: str, value: object) -> Score:
    """Returns what was found, or is to be added, as the score ``name``.

    Raises:
        UsageError: it cannot be called, or is a class, whose call makes an object and no number.
    """
    if not callable(value) or isinstance(value, type):
        raise UsageError(
            f"the reward {name!r} is no function: it is {value!r}; a callable is needed, as score(answer, task)"
        )
    score: Score = value
    return score


def check_target(name: str, task: Task, number: int) -> None:
    """Returns if a task has what the score ``name`` looks at.

    Raises:
        UsageError: it has not.
    """
    if name not in BUILT_IN:
        return
    target = task.get("target")
    if not isinstance(target, str | int | float) or isinstance(target, bool) or not str(target).strip():
        raise UsageError(f"task {number} has the target {target!r}; {name} needs a text or a number to compare with")
    if name == "numeric" and not _is_number(str(target)):
        raise UsageError(f"task {number} has the target {target!r}, which is no number; numeric needs one")


def scored(name: str, score: Score, answer: str, task: Task) -> float:
    """Returns what ``answer`` is worth.

    Raises:
        RewardError: the score is not a finite number, None included: an unknown reward is not 0.
        UsageError: the score raised something.
    """
    try:
        value = score(answer, task)
    except Exception as error:  # whatever a function of the caller's raises
        raise UsageError(f"the reward {name!r} raised {type(error).__name__}: {error}") from error
    if not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise RewardError(f"the reward {name!r} is {value!r} for the answer {answer[:80]!r}; a finite number is needed")
    return float(value)


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text.strip()) is not None


def _value(text: str) -> float:
    return float(text.replace(",", ""))
