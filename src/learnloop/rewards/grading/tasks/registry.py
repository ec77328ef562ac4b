"""Which scorer compares the answers of each task type with the ground truth."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from learnloop.core.attempts import Attempt, Score, Scorer, TaskType
from learnloop.rewards.grading.tasks.math import score_math
from learnloop.rewards.grading.tasks.multi_agent import multi_agent_scorer
from learnloop.rewards.grading.tasks.rag import score_rag
from learnloop.rewards.grading.tasks.sql import score_sql
from learnloop.rewards.grading.tasks.text import score_qa, score_text
from learnloop.rewards.grading.tasks.tool_use import score_tool_use


def result_type(attempt: Attempt) -> TaskType | None:
    """Returns of which type the result of an attempt is: of several agents' work the one that the ground truth says."""
    truth = attempt.expected
    if attempt.task_type is not TaskType.MULTI_AGENT or not isinstance(truth, Mapping):
        return attempt.task_type
    inner = truth.get("task_type")
    return TaskType.TOOL_USE if inner == TaskType.TOOL_USE else attempt.task_type


def score_code(attempt: Attempt) -> Score:
    """Returns what the task's tests say of the code, run in the sandbox."""
    return _code_scorer()(attempt)


@cache
def _code_scorer() -> Scorer:
    from learnloop.rewards.grading.tasks.code import CodeExecution  # the sandbox is looked at when code is first scored

    return CodeExecution()


SCORERS: Mapping[TaskType, Scorer] = {
    TaskType.MATH: score_math,
    TaskType.CODE: score_code,
    TaskType.TEXT: score_text,
    TaskType.QA: score_qa,
    TaskType.RAG: score_rag,
    TaskType.TOOL_USE: score_tool_use,
    TaskType.MULTI_AGENT: multi_agent_scorer(lambda: SCORERS),
    TaskType.SQL: score_sql,
}
NO_OUTPUT = frozenset({TaskType.TOOL_USE})
"""Types whose tasks are solved by what is done, not by what is said."""
