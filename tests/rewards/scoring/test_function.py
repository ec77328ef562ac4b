"""Reward functions: whatever they do, there is a score, and nothing is 0 because of the grader."""

from __future__ import annotations

import math
import os
import threading
from typing import Any

import pytest

from learnloop.core.attempts import Attempt, Score, TaskType
from learnloop.core.errors import MissingExtraError, UsageError
from learnloop.rewards import RewardEngine, RewardFunction, reward_function
from learnloop.rewards.scoring.function import MAX_HANGS, MAX_OUTPUT_CHARS
from tests.waiting import eventually

ATTEMPT = Attempt(output="x")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("never")


class Pretender(float):
    """Says of itself that it lies in every range."""

    def __ge__(self, other: object) -> bool:
        return True

    def __le__(self, other: object) -> bool:
        return True


def broken(error: BaseException) -> Any:
    def function(attempt: Attempt) -> float:
        raise error

    return function


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda attempt: math.nan, "nan"),
        (lambda attempt: math.inf, "inf"),
        (lambda attempt: 2.0, "2.0"),
        (lambda attempt: -0.1, "-0.1"),
        (lambda attempt: "good", "'good'"),
        (lambda attempt: Pretender(7.0), "7.0"),
        (lambda attempt: None, "Score.not_applicable"),
        (lambda attempt: Score.of(3.0), "3.0"),
        (lambda attempt: Score(value=None), "no reason"),
        (broken(ZeroDivisionError("zero")), "ZeroDivisionError: zero"),
        (broken(SystemExit(0)), "SystemExit"),
        (broken(KeyboardInterrupt()), "KeyboardInterrupt"),
        (broken(Unprintable()), "Unprintable"),
    ],
)
def test_a_fault_of_the_grader_is_no_reward(function: Any, reason: str) -> None:
    """The score is None with the function's name and what it did; the run goes on, and nothing is 0 by default."""
    found = RewardFunction(function, "odd")(ATTEMPT)
    assert found.value is None
    assert found.is_applicable
    assert "odd" in str(found.reason)
    assert reason in str(found.reason)
    scored = RewardEngine({"odd": 1.0, "fine": 1.0}, {"odd": function, "fine": lambda attempt: 1.0}).score(ATTEMPT)
    assert scored.total is None
    assert scored.scores["fine"].value == 1.0


def test_good_values() -> None:
    values: list[Any] = [1, 0.25, True, False, Score.of(0.5, "why")]
    functions = [RewardFunction(lambda attempt, value=value: value, "fine") for value in values]
    assert [function(ATTEMPT).value for function in functions] == [1.0, 0.25, 1.0, 0.0, 0.5]
    nothing = RewardFunction(lambda attempt: Score.not_applicable("no code"), "fine")(ATTEMPT)
    assert (nothing.is_applicable, nothing.reason) == (False, "no code")


def test_a_function_that_hangs_is_left_and_then_not_called_any_more() -> None:
    release = threading.Event()
    calls = []

    @reward_function("slow", timeout_seconds=0.05)
    def slow(attempt: Attempt) -> float:
        calls.append(1)
        release.wait()
        return 1.0

    found = [slow(ATTEMPT) for _ in range(MAX_HANGS + 3)]  # no call of it ends before this one does
    assert eventually(lambda: len(calls) == MAX_HANGS)
    release.set()
    assert "did not come back within 0.05 seconds" in str(found[0].reason)
    assert "not called any more" in str(found[-1].reason)
    assert all(each.value is None for each in found)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_function_that_forks() -> None:
    """The child never goes on in our code, and the parent's result does not count."""

    @reward_function("forks")
    def forks(attempt: Attempt) -> float:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        return 1.0

    process = os.getpid()
    found = forks(ATTEMPT)
    assert os.getpid() == process
    assert "forked" in str(found.reason)
    assert found.value is None


def test_an_interrupt_of_the_users_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: threading.Event, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    function = RewardFunction(lambda attempt: 1.0, "fine")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            function(ATTEMPT)


def test_what_is_needed() -> None:
    @reward_function("picky", needs=("output", "expected", "documents"), task_types=(TaskType.QA,))
    def picky(attempt: Attempt) -> float:
        """Looks closely.

        And says nothing.
        """
        return 1.0

    assert (picky.name, picky.description) == ("picky", "Looks closely.")
    qa = {"task_type": TaskType.QA, "expected": "y", "documents": ["d"]}
    assert picky(Attempt(output="", **qa)).value == 1.0  # an empty answer is an answer
    assert not picky(Attempt(output="x")).is_applicable
    assert "no ground truth" in str(picky(Attempt(output="x", **{**qa, "expected": None})).reason)
    assert "documents" in str(picky(Attempt(output="x", **{**qa, "documents": []})).reason)
    assert picky(Attempt(**qa)).value is None
    assert picky(Attempt(completed=False, **qa)).value == 0.0  # the run failed before it answered
    assert picky(Attempt(output="x" * (MAX_OUTPUT_CHARS + 1), **qa)).value == 0.0


def test_wrong_settings() -> None:
    with pytest.raises(UsageError, match="needs 'answer'"):
        reward_function("x", needs=("answer",))(lambda attempt: 1.0)
    with pytest.raises(UsageError, match="timeout_seconds is 0"):
        reward_function("x", timeout_seconds=0)(lambda attempt: 1.0)
    with pytest.raises(UsageError, match="cannot name a reward function"):
        reward_function("a b")(lambda attempt: 1.0)


def test_no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    function = RewardFunction(lambda attempt: 1.0, "fine")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", exhausted)
        found = function(ATTEMPT)
    assert "could not be called" in str(found.reason)


def test_a_missing_extra_is_told() -> None:
    def own(attempt: Attempt) -> float:
        raise MissingExtraError("This", "rewards")

    own.__module__ = "learnloop.rewards.own"
    with pytest.raises(MissingExtraError):
        RewardFunction(own, "own")(ATTEMPT)
