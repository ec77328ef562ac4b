"""What an attempt cost, relative to what the same task cost before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from statistics import median

import msgspec

from learnloop.core.attempts import Attempt, Score
from learnloop.core.records import Record
from learnloop.rewards.scoring.function import RewardFunction, reward_function

MIN_HISTORY = 3
"""With fewer earlier attempts a median says nothing."""
NAME = "efficiency"


class History(Record, frozen=True, kw_only=True):
    """What earlier attempts at one task that succeeded have cost; a figure that is not known is left out."""

    num_tokens: list[float] = msgspec.field(default_factory=list)
    """Of input and output together."""
    num_model_calls: list[float] = msgspec.field(default_factory=list)
    duration_seconds: list[float] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, attempts: Iterable[Attempt]) -> History:
        """Returns the history that these attempts make; they are those that succeeded, by the caller's judgement."""
        costs = [costs_of(attempt) for attempt in attempts]
        return cls(**{name: [cost[name] for cost in costs if name in cost] for name in cls.__struct_fields__})


def efficiency_from(histories: Mapping[str, History] | Callable[[Attempt], History | None]) -> RewardFunction:
    """Returns the reward function ``efficiency`` with the history of each task.

    Args:
        histories: by the task's id; or what returns the history that an attempt is held against, None: there is none.
    """

    def by_task(attempt: Attempt) -> History | None:
        return None if attempt.task_id is None or callable(histories) else histories.get(attempt.task_id)

    find = histories if callable(histories) else by_task

    def efficiency(attempt: Attempt) -> Score:
        return score_efficiency(attempt, find(attempt))

    efficiency.__doc__ = score_efficiency.__doc__
    return RewardFunction(efficiency, NAME, is_outcome=False, needs_success=True)


@reward_function(NAME, is_outcome=False, needs_success=True)
def efficiency(attempt: Attempt) -> Score:
    """Scores what an attempt cost relative to the median of its task's history, ``metadata["history"]``."""
    given = attempt.metadata.get("history")
    if given is None:
        return score_efficiency(attempt, None)
    try:
        history = msgspec.convert(given, History)
    except msgspec.ValidationError as error:
        return Score.unknown(f"metadata['history'] is no history: {error}")
    return score_efficiency(attempt, history)


def score_efficiency(attempt: Attempt, history: History | None) -> Score:
    """Scores what an attempt cost, relative to the task's own history.

    For each of tokens, model calls and seconds that is known: min(1, median of the history / cost of the attempt). The
    score is the mean of these. So 1 is "no dearer than usual", half is "twice as dear", there is no number of tokens
    that is too many for all tasks, and there is nothing to gain from being shorter than usual. A failed attempt is 0.

    Not applicable without a history of at least ``MIN_HISTORY`` attempts.
    """
    usable = {} if history is None else _usable(history)
    if not usable:
        return Score.not_applicable(f"the task has no history of at least {MIN_HISTORY} attempts that succeeded")
    if attempt.completed is False or attempt.error is not None:
        return Score.of(0.0, "the attempt failed: it gave nothing for its cost")
    costs = costs_of(attempt)
    parts = {
        name: min(1.0, usual / costs[name]) if costs[name] > 0 else 1.0
        for name, usual in usable.items()
        if name in costs
    }
    if not parts:
        return Score.unknown(f"what the attempt cost is not known: none of {', '.join(usable)}")
    return Score(value=math.fsum(parts.values()) / len(parts), details=parts)


def _usable(history: History) -> dict[str, float]:
    """Returns the median of each figure that enough attempts have."""
    found = {}
    for name in history.__struct_fields__:
        values = [value for value in getattr(history, name) if math.isfinite(value) and value >= 0]
        if len(values) >= MIN_HISTORY:
            found[name] = float(median(values))
    return found


def costs_of(attempt: Attempt) -> dict[str, float]:
    """Returns what an attempt cost: the fields of ``History`` that are known."""
    tokens = [each for each in (attempt.num_input_tokens, attempt.num_output_tokens) if each is not None]
    costs = {
        "num_tokens": sum(tokens) if len(tokens) == 2 else None,
        "num_model_calls": attempt.num_model_calls,
        "duration_seconds": attempt.duration_seconds,
    }
    return {name: float(value) for name, value in costs.items() if value is not None and math.isfinite(value)}
