"""An attempt at a task as those who score it see it, and the score that they give it.

A scorer looks at nothing else: what was asked, what came out, what would have been right, which tools were called and
what it cost. What is not known is None, and None is never read as 0.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from learnloop.core.records import Json, Record


class TaskType(StrEnum):
    """What kind of problem a task is; it says how an answer is compared with the ground truth."""

    MATH = "math"
    CODE = "code"
    TEXT = "text"
    QA = "qa"
    RAG = "rag"
    TOOL_USE = "tool_use"
    MULTI_AGENT = "multi_agent"
    SQL = "sql"


class ToolCall(Record, frozen=True, kw_only=True):
    """A call of a tool that a model asked for, or that a program made."""

    call_id: str | None = None
    name: str
    arguments: Any = None
    result: Any = None
    """None: it is not recorded, or the tool gave nothing back."""
    error: str | None = None
    """What went wrong, as whoever ran the tool recorded it; never read out of ``result``."""
    duration_ms: float | None = None
    """None: the call has no span of its own."""
    span_id: str | None = None


class AttemptStep(Record, frozen=True, kw_only=True):
    """One call of a model within an attempt, or one call of a tool where no model was called."""

    span_id: str | None = None
    agent_id: str | None = None
    """Whose step it is; None: not known."""
    output: str | None = None
    """The text that the model answered; None: none is recorded."""
    tool_calls: list[ToolCall] = msgspec.field(default_factory=list)
    error: str | None = None


class Attempt(Record, frozen=True, kw_only=True):
    """One try at a task, complete: what reward functions and judges are given."""

    episode_id: str | None = None
    task_id: str | None = None
    task_type: TaskType | None = None
    prompt: str | None = None
    """What was asked."""
    output: str | None = None
    """The final answer; None: it is not recorded. An empty text is an answer: an empty one."""
    expected: Any = None
    """The ground truth, in the form that the task type says; None: there is none."""
    documents: list[str] = msgspec.field(default_factory=list)
    """What was retrieved, for ``rag``."""
    steps: list[AttemptStep] = msgspec.field(default_factory=list)
    """In time order."""
    agents: list[str] = msgspec.field(default_factory=list)
    """Who took part, each once."""
    completed: bool | None = None
    """Whether the run came to its own end without an error; None: not known. No claim of the agent's own."""
    error: str | None = None
    """What ended a failed run."""
    num_input_tokens: int | None = None
    num_output_tokens: int | None = None
    num_model_calls: int | None = None
    duration_seconds: float | None = None
    metadata: Json = msgspec.field(default_factory=dict)
    """What the task and the run brought along."""

    @property
    def tool_calls(self) -> list[ToolCall]:
        """All calls of tools, in time order."""
        return [call for step in self.steps for call in step.tool_calls]


class Score(Record, frozen=True, kw_only=True):
    """What a scorer found: a number from 0 to 1, or None with the reason."""

    value: float | None
    """0 is the worst, 1 the best; None: nothing was found out."""
    is_applicable: bool = True
    """False: the scorer has nothing to say of such attempts (no code in it, no tool was called). True with a value of
    None: it should have had a score and could not get one (no ground truth, the judge did not answer)."""
    reason: str | None = None
    """Why ``value`` is None, or what the scorer has to say."""
    details: Json = msgspec.field(default_factory=dict)
    """Figures behind the value."""

    @classmethod
    def of(cls, value: float, reason: str | None = None, **details: Any) -> Score:
        """Returns a score of a number from 0 to 1."""
        return cls(value=float(value), reason=reason, details=details)

    @classmethod
    def unknown(cls, reason: str, **details: Any) -> Score:
        """Returns that an attempt should have been scored and could not be."""
        return cls(value=None, reason=reason, details=details)

    @classmethod
    def not_applicable(cls, reason: str) -> Score:
        """Returns that there is nothing to score."""
        return cls(value=None, is_applicable=False, reason=reason)


Scorer = Callable[[Attempt], Score]
"""What scores attempts: it returns a score, and raises nothing because of the attempt."""
