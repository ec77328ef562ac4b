"""learnloop's own reward functions, by name."""

from __future__ import annotations

from collections.abc import Mapping

from learnloop.rewards.code_execution import code_execution
from learnloop.rewards.correctness import correctness
from learnloop.rewards.efficiency import efficiency
from learnloop.rewards.format_compliance import format_compliance
from learnloop.rewards.function import RewardFunction
from learnloop.rewards.syntax_validation import syntax_validation
from learnloop.rewards.task_completion import task_completion
from learnloop.rewards.tool_success import tool_success

_FUNCTIONS = (
    correctness, code_execution, syntax_validation, tool_success, task_completion, efficiency, format_compliance,
)  # fmt: skip
BUILT_IN: Mapping[str, RewardFunction] = {each.name: each for each in _FUNCTIONS}
