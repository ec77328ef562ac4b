"""The engine: weighted means over what applies, None where something is not known, totals that records add up to."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.attempts import Attempt, AttemptStep, Score, TaskType, ToolCall
from learnloop.core.errors import NotFoundError, UsageError
from learnloop.core.extensions import POINTS, ExtensionPoint
from learnloop.rewards import RewardEngine, RewardFunction, reward_function

ATTEMPT = Attempt(output="x")
TRIVIAL_CALL = [AttemptStep(tool_calls=[ToolCall(name="ls", arguments={}, result="a.txt")])]
values = st.one_of(st.none(), st.just("not applicable"), st.floats(0.0, 1.0))


def giving(value: Any, name: str = "f", **settings: Any) -> RewardFunction:
    score = Score.unknown("why") if value is None else value
    score = Score.not_applicable("nothing") if score == "not applicable" else score
    return RewardFunction(lambda attempt: score, name, **settings)


def engine_of(values: list[Any], weights: list[float]) -> RewardEngine:
    functions = [giving(value, f"f{number}") for number, value in enumerate(values)]
    return RewardEngine({f"f{number}": weight for number, weight in enumerate(weights)}, functions)


@given(st.lists(st.tuples(values, st.floats(1e-6, 1e6)), min_size=1, max_size=4))
def test_the_total_is_the_weighted_mean_of_what_applies(parts: list[tuple[Any, float]]) -> None:
    scored = engine_of([value for value, _ in parts], [weight for _, weight in parts]).score(ATTEMPT)
    applying = [(value, weight) for value, weight in parts if value != "not applicable"]
    rows = scored.rewards("e")
    assert [(row.name, row.value, row.weight) for row in rows[:1]] == [("total", scored.total, 1.0)]
    assert {row.weight for row in rows[1:]} <= {0.0}  # a sum of parts is never taken for the total
    if not applying or any(value is None for value, _ in applying):
        assert scored.total is None
        assert scored.reason
        return
    mean = sum(value * weight for value, weight in applying) / sum(weight for _, weight in applying)
    assert scored.total == pytest.approx(mean, abs=1e-9)
    assert 0.0 <= scored.total <= 1.0
    assert math.fsum(scored.shares.values()) == pytest.approx(1.0)


def test_an_unknown_part_makes_the_total_unknown() -> None:
    scored = engine_of([1.0, None, "not applicable"], [1, 1, 1]).score(ATTEMPT)
    assert (scored.total, scored.reason) == (None, "f1: why")
    rows = {row.name: (row.value, row.weight, row.reason) for row in scored.rewards("e")}
    assert rows == {"total": (None, 1.0, "f1: why"), "f0": (1.0, 0.0, None), "f1": (None, 0.0, "why")}


def test_how_alone_is_no_reward() -> None:
    """F3.1: a refusal with one trivial tool call that worked is not desirable, with and without a ground truth."""
    refusal = Attempt(output="I cannot help with that.", steps=TRIVIAL_CALL, completed=True)
    engine = RewardEngine()
    found = engine.score(refusal)
    assert found.total is None
    assert "nothing tells whether it is right" in str(found.reason)
    assert found.rewards("e")[0].value is None
    task = Attempt(
        output="I cannot help with that.",
        steps=TRIVIAL_CALL,
        completed=True,
        task_type=TaskType.QA,
        expected="Paris",
        metadata={"history": {"num_model_calls": [3, 3, 3]}},
        num_model_calls=1,
    )
    scored = engine.score(task)
    assert scored.total is not None
    assert scored.total < 0.3
    assert scored.scores["efficiency"].value == 0.0  # cheap and wrong is not efficient


def test_a_plain_right_answer_has_the_full_reward() -> None:
    """F3.1: without code, tools or tasks."""
    answer = "The capital of France is Paris."
    chat = Attempt(output=answer, task_type=TaskType.QA, expected="Paris", completed=True)
    assert RewardEngine({"correctness": 1.0}).score(chat).total == 1.0
    assert RewardEngine().score(chat).total == 1.0
    bare = Attempt(output=answer, task_type=TaskType.QA, expected="Paris")
    assert RewardEngine().score(bare).total == 1.0  # how the run ended is not recorded


def test_a_task_that_is_done_by_calls_needs_no_answer() -> None:
    steps = [AttemptStep(tool_calls=[ToolCall(name="ls", arguments={})])]
    done = Attempt(task_type=TaskType.TOOL_USE, expected=[{"name": "ls", "arguments": {}}], steps=steps)
    assert RewardEngine().score(done).total == 1.0


def test_process_functions_alone_are_the_callers_choice() -> None:
    assert RewardEngine({"tool_success": 2.0}).score(Attempt(steps=TRIVIAL_CALL)).total == 1.0


def test_wrong_settings() -> None:
    with pytest.raises(NotFoundError, match=r"'correctnes'.*did you mean 'correctness'"):
        RewardEngine({"correctnes": 1.0})
    for weight in (0, -1.0, math.nan, math.inf, "1", True, None):
        with pytest.raises(UsageError, match="the weight of correctness"):
            RewardEngine({"correctness": weight})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="weights is empty"):
        RewardEngine({})
    with pytest.raises(UsageError, match="two that are called 'f'"):
        RewardEngine({"f": 1.0}, [giving(1.0), giving(0.0)])
    with pytest.raises(UsageError, match="a function of an Attempt"):
        RewardEngine({"f": 1.0}, {"f": 3})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="timeout_seconds"):
        RewardEngine(timeout_seconds=math.nan)


def test_a_registered_function(monkeypatch: pytest.MonkeyPatch) -> None:
    point = ExtensionPoint("reward")
    point.register("half", lambda attempt: 0.5, ())
    monkeypatch.setitem(POINTS, "reward", point)  # type: ignore[arg-type]
    assert RewardEngine({"half": 1.0}).score(ATTEMPT).total == 0.5


def test_an_error_of_one_does_not_stop_the_others() -> None:
    @reward_function("odd")
    def odd(attempt: Attempt) -> float:
        return 1 / len(attempt.output or "")

    found = RewardEngine({"odd": 1.0}, [odd]).score_many([Attempt(output=text) for text in ("a", "", "ab")])
    assert [each.total for each in found] == [1.0, None, 0.5]
    assert "ZeroDivisionError" in str(found[1].reason)


def test_no_function_has_the_name_of_the_total() -> None:
    with pytest.raises(UsageError, match="'total'"):
        RewardEngine({"total": 1.0}, {"total": lambda attempt: 1.0})


def test_each_function_has_its_own_deadline() -> None:
    """An engine without a deadline of its own leaves those that functions were made with."""

    def waits(attempt: Attempt) -> float:
        time.sleep(0.2)
        return 1.0

    functions = [RewardFunction(waits, "hasty", timeout_seconds=0.02), RewardFunction(waits, "calm")]
    scores = RewardEngine({"hasty": 1.0, "calm": 1.0}, functions).score(ATTEMPT).scores
    assert "0.02 seconds" in str(scores["hasty"].reason)
    assert scores["calm"].value == 1.0


def test_values_are_plain_numbers() -> None:
    """What is stored is a float, whatever kind of number a function gave."""
    score = RewardEngine({"f": 1.0}, [giving(Score(value=np.float32(0.5)), "f")]).score(ATTEMPT).scores["f"]
    assert type(score.value) is float
