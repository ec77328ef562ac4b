"""Faults of the described originals that no other file of tests has by name."""

from __future__ import annotations

import pytest

from learnloop.core.attempts import Attempt, AttemptStep, TaskType
from learnloop.core.errors import UsageError
from learnloop.rewards import RewardEngine, normalize_group
from learnloop.rewards.sharing.shaping import shaping_terms


def test_a_group_of_one_is_refused_and_gets_no_made_up_rival() -> None:
    """F3.6: the described original invents a worse answer to compare with."""
    with pytest.raises(UsageError, match="group"):
        normalize_group([1.0])


@pytest.mark.parametrize("answer", ["Rome", "Rome, " + "and this is why, at length, " * 200])
def test_no_text_is_paid_for_its_length(answer: str) -> None:
    """F4.9: the described original's reward is a heuristic of the length of the agent's own text."""
    attempt = Attempt(task_type=TaskType.QA, expected="Paris", output=answer, completed=True)
    assert RewardEngine({"correctness": 1.0}).score(attempt).total == 0.0
    steps = [AttemptStep(output=answer)]
    assert RewardEngine({"correctness": 1.0}).score(Attempt(**{**fields(attempt), "steps": steps})).total == 0.0


def fields(attempt: Attempt) -> dict[str, object]:
    return {name: getattr(attempt, name) for name in attempt.__struct_fields__}


def test_an_episode_ends() -> None:
    """F4.9: its episodes are never terminal, so a value is always bootstrapped; here an end has none."""
    ended, cut = (shaping_terms([1.0, 2.0, 3.0], 1.0, terminated).tolist() for terminated in (True, False))
    assert ended == [1.0, -2.0]
    assert cut == [1.0, 1.0]
