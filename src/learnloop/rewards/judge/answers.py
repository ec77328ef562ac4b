"""What a judge answered, read strictly: one JSON object in the form that was asked for, or nothing."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from learnloop.core.errors import FormatError
from learnloop.rewards.judge.rubric import Rubric

MAX_ANSWER_CHARACTERS = 20_000
"""Longer answers are not read."""
WINNERS = ("first", "second", "tie")
_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*)\n```\Z", re.DOTALL)
_SHOWN = 100


def read_scores(text: str, rubric: Rubric) -> dict[str, int]:
    """Returns the number for each criterion.

    Raises:
        FormatError: the answer is no JSON object, lacks a criterion, has an unknown one, or leaves a scale.
    """
    scores = _object(text).get("scores")
    if not isinstance(scores, dict):
        raise FormatError(f"the judge's answer has no object 'scores': {_short(text)}")
    names = [criterion.name for criterion in rubric.criteria]
    if scores.keys() != set(names):
        raise FormatError(f"the judge scored {_short(' '.join(sorted(scores)))}, the criteria are {names}")
    found = {}
    for criterion in rubric.criteria:
        number = _whole(scores[criterion.name])
        if number is None or not criterion.lowest <= number <= criterion.highest:
            raise FormatError(
                f"the judge gave {criterion.name} {_short(scores[criterion.name])}; "
                f"its scale is whole numbers from {criterion.lowest} to {criterion.highest}"
            )
        found[criterion.name] = number
    return found


def read_winner(text: str) -> str:
    """Returns ``first``, ``second`` or ``tie``.

    Raises:
        FormatError: the answer is no JSON object, or its ``winner`` is something else.
    """
    winner = _object(text).get("winner")
    if winner not in WINNERS or not isinstance(winner, str):
        raise FormatError(f"the judge's winner is {_short(winner)}; it can be {', '.join(WINNERS)}")
    return winner


def _object(text: str) -> dict[str, Any]:
    """Returns the one JSON object that the whole text is; a fence around it is taken off."""
    if len(text) > MAX_ANSWER_CHARACTERS:
        raise FormatError(f"the judge's answer is longer than {MAX_ANSWER_CHARACTERS} characters: {_short(text)}")
    stripped = text.strip()
    fenced = _FENCE.match(stripped)
    try:
        found = json.loads(
            fenced.group(1) if fenced else stripped, object_pairs_hook=_unique, parse_constant=_no_number
        )
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the judge's answer is no JSON object ({error}): {_short(text)}") from error
    if not isinstance(found, dict):
        raise FormatError(f"the judge's answer is no JSON object: {_short(text)}")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands in it twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _whole(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _short(value: object) -> str:
    if isinstance(value, dict | list):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
