"""Whether the fenced blocks of an answer are valid in the language that they name."""

from __future__ import annotations

import time

from learnloop.core.attempts import Attempt, Score
from learnloop.rewards.functions.parsers import LANGUAGES, find_fault
from learnloop.rewards.grading.tasks.code_answer import fenced_blocks
from learnloop.rewards.scoring.function import MAX_OUTPUT_CHARS, reward_function

MAX_BLOCKS = 100
MAX_BLOCK_CHARS = 200_000
"""Of all blocks of an answer."""
_SECONDS = 2.0
"""For all blocks of an answer; an honest one takes some milliseconds."""
_MAX_TOLD = 3


@reward_function("syntax_validation", is_outcome=False)
def syntax_validation(attempt: Attempt) -> Score:
    """Scores the share of fenced blocks that parse: Python, JSON, YAML, SQL, shell, JavaScript. Nothing is run.

    A fence without a language, or with another one, is not checked, so it is never valid: it counts neither way.
    """
    output = attempt.output or ""
    if len(output) > MAX_OUTPUT_CHARS:
        return Score.of(0.0, f"the answer has {len(output)} characters, more than {MAX_OUTPUT_CHARS}")
    blocks = fenced_blocks(output)
    known = [(LANGUAGES[language], content) for language, content in blocks if language in LANGUAGES]
    if not known:
        return Score.not_applicable(f"none of {len(blocks)} fenced blocks names a language that is checked")
    if len(known) > MAX_BLOCKS:
        return Score.of(0.0, f"it has {len(known)} fenced blocks, more than the {MAX_BLOCKS} that are checked")
    if sum(len(content) for _, content in known) > MAX_BLOCK_CHARS:
        return Score.of(0.0, f"its fenced blocks have more than the {MAX_BLOCK_CHARS} characters that are checked")
    deadline = time.thread_time() + _SECONDS  # of this thread's own: a busy machine changes no score
    faults = []
    for number, (language, content) in enumerate(known, 1):
        late = time.thread_time() > deadline
        fault = f"not reached within {_SECONDS:g} seconds" if late else find_fault(content, language)
        if fault is not None:
            faults.append(f"{language} block {number}: {fault}")
    return Score.of(
        1.0 - len(faults) / len(known),
        "; ".join(faults[:_MAX_TOLD]) or None,
        num_checked=len(known),
        num_not_checked=len(blocks) - len(known),
    )
