"""Whether an attempt is right, by the ground truth of its task."""

from __future__ import annotations

from learnloop.core.attempts import Attempt, Score, TaskType
from learnloop.core.errors import FormatError, one_of
from learnloop.rewards.grading.tasks.registry import NO_OUTPUT, SCORERS, result_type
from learnloop.rewards.scoring.function import MAX_OUTPUT_CHARS, reward_function, without_output


@reward_function("correctness")
def correctness(attempt: Attempt) -> Score:
    """Scores the answer against the ground truth, as the type of the task says.

    Without a type and a ground truth there is nothing to compare.
    """
    if attempt.task_type is None:
        if attempt.expected is None:
            return Score.not_applicable("the task has neither a type nor a ground truth")
        return Score.unknown(f"the task has a ground truth and no type; types are {one_of(map(str, TaskType))}")
    if attempt.expected is None:
        return Score.unknown(f"no ground truth: a task of type {attempt.task_type} needs an expected result")
    if result_type(attempt) not in NO_OUTPUT:
        if attempt.output is None:
            return without_output("correctness", attempt)
        if len(attempt.output) > MAX_OUTPUT_CHARS:
            return Score.of(0.0, f"the answer has {len(attempt.output)} characters, more than {MAX_OUTPUT_CHARS}")
    try:
        return SCORERS[attempt.task_type](attempt)
    except FormatError as error:  # of the ground truth
        return Score.unknown(str(error))


@reward_function("code_execution", task_types=(TaskType.CODE,))
def code_execution(attempt: Attempt) -> Score:
    """Scores code by running the task's tests against it, in the sandbox: 1 where all pass, else 0.

    It is what ``correctness`` says of tasks of the type ``code``, to be weighed by itself.
    """
    return correctness(attempt)
