"""Comparisons of an answer in text with what would have been right: pure, in time that is linear in the answer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|-?\.\d+")
_ONLY_BETWEEN_CHOICES = re.compile(r"[\s,;/|]*(?:\b(?:or|and)\b[\s,;/|]*)?")
_TOLERANCE = 1e-6
_MAX_DIGITS = 400
"""A longer number is none that anybody meant; reading it would cost time."""

Target = str | int | float


def exact_match(answer: str, target: Target) -> bool:
    """Returns whether the answer is the target, but for white space around it."""
    return answer.strip() == str(target).strip()


def contains(answer: str, target: Target) -> bool:
    """Returns whether the target stands in the answer, in upper or lower case."""
    return str(target).strip().casefold() in answer.casefold()


def numeric(answer: str, target: Target) -> bool:
    """Returns whether the last number of the answer is the target, within a millionth of it.

    A number at the end of a list of numbers ("3, 4 or 5") is one of several answers, which is not an answer.
    """
    last = before = None
    for found in _NUMBER.finditer(answer):
        before, last = last, found
    if last is None:
        return False
    if before is not None and _ONLY_BETWEEN_CHOICES.fullmatch(answer, before.end(), last.start()):
        return False
    value, wanted = to_number(last.group()), to_number(str(target))
    return value is not None and wanted is not None and math.isclose(value, wanted, rel_tol=_TOLERANCE)


def is_number(text: str) -> bool:
    """Returns whether a text is a number and nothing else."""
    return to_number(text) is not None


def to_number(text: str) -> float | None:
    """Returns the number that a text is; None: it is not a number, or too large."""
    text = text.strip()
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        return None
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) else None


COMPARISONS: Mapping[str, Callable[[str, Target], bool]] = {
    "exact_match": exact_match,
    "contains": contains,
    "numeric": numeric,
}
"""By the names that callers give."""
