"""A reward: right answers that are short."""

from __future__ import annotations

from learnloop.core.attempts import Attempt


def brevity(attempt: Attempt) -> float:
    """Returns 1 for the target alone, less the longer the answer around it is; 0 where it does not hold the target."""
    target, answer = str(attempt.expected), attempt.output or ""
    return len(target) / max(len(answer), 1) if target in answer else 0.0
