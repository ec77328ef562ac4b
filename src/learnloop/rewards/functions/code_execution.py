"""Whether code does what its task's tests ask for."""

from __future__ import annotations

from learnloop.core.attempts import Attempt, Score, TaskType
from learnloop.rewards.functions.correctness import correctness
from learnloop.rewards.scoring.function import reward_function


@reward_function("code_execution", task_types=(TaskType.CODE,))
def code_execution(attempt: Attempt) -> Score:
    """Scores code by running the task's tests against it, in the sandbox: 1 where all pass, else 0.

    It is what ``correctness`` says of tasks of the type ``code``, to be weighed by itself.
    """
    return correctness(attempt)
