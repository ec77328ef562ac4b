"""A reward: right answers that are short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def brevity(answer: str, task: Mapping[str, Any]) -> float:
    """Returns 1 for the target alone, less the longer the answer around it is; 0 where it does not hold the target."""
    target = str(task["target"])
    return len(target) / max(len(answer), 1) if target in answer else 0.0
