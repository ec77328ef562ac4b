"""Whether an attempt did what it set out to do, as the run recorded it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from learnloop.core.attempts import Attempt, Score
from learnloop.rewards.scoring.function import reward_function

_DONE = frozenset({"completed", "complete", "done", "succeeded", "success"})
_IGNORED = frozenset({"skipped", "cancelled"})


@reward_function("task_completion", is_outcome=False)
def task_completion(attempt: Attempt) -> Score:
    """Scores the share of an attempt's own tasks that are completed, or else whether the run came to its own end.

    The states are those of ``metadata["tasks"]``: a list of records with ``status``, or a mapping from each task to its
    status or record. What the answer claims is not looked at. A run that ended with an error completed nothing by
    itself.
    """
    tasks = attempt.metadata.get("tasks")
    if tasks:
        states = _states(tasks)
        if states is None:
            return Score.unknown("metadata['tasks'] is no list or mapping of records with a 'status'")
        counted = [state for state in states if state not in _IGNORED]
        if counted:
            return Score.of(sum(state in _DONE for state in counted) / len(counted), num_tasks=len(counted))
    if attempt.completed is None:
        return Score.not_applicable("neither tasks nor how the run ended are recorded")
    return Score.of(attempt.completed, attempt.error if not attempt.completed else None)


def _states(tasks: Any) -> list[str] | None:
    if isinstance(tasks, Mapping):
        tasks = list(tasks.values())
    if not isinstance(tasks, Sequence) or isinstance(tasks, str):
        return None
    states = [task.get("status") if isinstance(task, Mapping) else task for task in tasks]
    if not all(isinstance(state, str) for state in states):
        return None
    return [str(state).lower() for state in states]
