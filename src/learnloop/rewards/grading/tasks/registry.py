"""Which scorer compares the answers of each task type with the ground truth; work of several agents uses them all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from learnloop.core.attempts import Attempt, AttemptStep, Score, Scorer, TaskType
from learnloop.core.errors import one_of
from learnloop.rewards.grading.tasks.math import score_math
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


def score_multi_agent(attempt: Attempt) -> Score:
    """Returns correctness of the common result x the share of the required agents that took part.

    The ground truth is a mapping: ``expected`` and ``task_type`` (``qa`` where it is not named) of the result, and
    ``agents``: those that must take part. Who has a step of their own with an output or a tool call that did not
    fail takes part. Any other ground truth is that of ``qa``.
    """
    truth = attempt.expected if _is_truth(attempt.expected) else {"expected": attempt.expected}
    inner, required = truth.get("task_type", TaskType.QA), truth.get("agents", [])
    if inner not in _INNER:
        return Score.unknown(f"the ground truth's task_type is {inner!r}; allowed are {one_of(map(str, _INNER))}")
    if not isinstance(required, list) or not all(isinstance(agent, str) for agent in required):
        return Score.unknown(f"the ground truth's agents are {str(required)[:80]!r}; a list of names is needed")
    if truth.get("expected") is None:
        return Score.unknown("no ground truth: the mapping has no 'expected'")
    inner = TaskType(inner)
    result = SCORERS[inner](msgspec.structs.replace(attempt, task_type=inner, expected=truth["expected"]))
    if result.value is None:
        return result
    parts = {agent: any(_takes_part(step) for step in attempt.steps if step.agent_id == agent) for agent in required}
    share = sum(parts.values()) / len(parts) if parts else 1.0
    absent = [agent for agent, took_part in parts.items() if not took_part]
    reason = f"{one_of(absent)} took no part" if absent else result.reason
    return Score.of(result.value * share, reason, correctness=result.value, participation=parts)


def _is_truth(expected: Any) -> bool:
    return isinstance(expected, Mapping) and ("expected" in expected or "agents" in expected)


def _takes_part(step: AttemptStep) -> bool:
    has_called = any(call.error is None for call in step.tool_calls)
    return step.error is None and (bool(step.output and step.output.strip()) or has_called)


SCORERS: Mapping[TaskType, Scorer] = {
    TaskType.MATH: score_math,
    TaskType.CODE: score_code,
    TaskType.TEXT: score_text,
    TaskType.QA: score_qa,
    TaskType.RAG: score_rag,
    TaskType.TOOL_USE: score_tool_use,
    TaskType.MULTI_AGENT: score_multi_agent,
    TaskType.SQL: score_sql,
}
"""They raise ``FormatError`` where the ground truth is not one of their type."""
_INNER = tuple(each for each in TaskType if each is not TaskType.MULTI_AGENT)
NO_OUTPUT = frozenset({TaskType.TOOL_USE})
"""Types whose tasks are solved by what is done, not by what is said."""
