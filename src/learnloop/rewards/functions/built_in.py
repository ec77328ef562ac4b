"""learnloop's own reward functions, by name."""

from __future__ import annotations

from collections.abc import Mapping

from learnloop.rewards.functions.correctness import code_execution, correctness
from learnloop.rewards.functions.efficiency import efficiency
from learnloop.rewards.functions.format_compliance import format_compliance
from learnloop.rewards.functions.syntax_validation import syntax_validation
from learnloop.rewards.functions.task_completion import task_completion
from learnloop.rewards.functions.tool_success import tool_success
from learnloop.rewards.scoring.function import RewardFunction

_FUNCTIONS = (
    correctness, code_execution, syntax_validation, tool_success, task_completion, efficiency, format_compliance,
)  # fmt: skip
BUILT_IN: Mapping[str, RewardFunction] = {each.name: each for each in _FUNCTIONS}
