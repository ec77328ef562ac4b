"""Work of several agents: the common result, and whether those who were needed took part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from learnloop.core.attempts import Attempt, AttemptStep, Score, Scorer, TaskType
from learnloop.core.errors import one_of

_INNER = tuple(each for each in TaskType if each is not TaskType.MULTI_AGENT)


def multi_agent_scorer(scorers: Callable[[], Mapping[TaskType, Scorer]]) -> Scorer:
    """Returns the scorer of ``multi_agent``.

    Args:
        scorers: of the other task types, one of which judges the common result.
    """

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
        result = scorers()[inner](msgspec.structs.replace(attempt, task_type=inner, expected=truth["expected"]))
        if result.value is None:
            return result
        parts = {
            agent: any(_takes_part(step) for step in attempt.steps if step.agent_id == agent) for agent in required
        }
        share = sum(parts.values()) / len(parts) if parts else 1.0
        absent = [agent for agent, took_part in parts.items() if not took_part]
        reason = f"{one_of(absent)} took no part" if absent else result.reason
        return Score.of(result.value * share, reason, correctness=result.value, participation=parts)

    return score_multi_agent


def _is_truth(expected: Any) -> bool:
    return isinstance(expected, Mapping) and ("expected" in expected or "agents" in expected)


def _takes_part(step: AttemptStep) -> bool:
    has_called = any(call.error is None for call in step.tool_calls)
    return step.error is None and (bool(step.output and step.output.strip()) or has_called)
