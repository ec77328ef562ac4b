"""Choices that are asked for together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from learnloop.core.errors import ContextError, DivergedError
from learnloop.decisions.mutation_learner import MutationLearner, Selection
from learnloop.decisions.mutation_settings import read_mutation_settings
from learnloop.serve.selections import Selections

SIZE = 4


class Counting(MutationLearner):
    """Notes how many were chosen at once, and fails as it is told."""

    def __init__(self) -> None:
        super().__init__(read_mutation_settings({"input_dim": SIZE}))
        self.sizes: list[int] = []
        self.failure: Exception | None = None

    def select_many(self, states: Sequence[Any], deterministic: Sequence[bool]) -> list[Selection]:
        self.sizes.append(len(states))
        if self.failure is not None:
            raise self.failure
        if any(state[0] == 7 for state in states):
            raise DivergedError("seven")
        return super().select_many(states, deterministic)


def vector(first: float) -> Any:
    return np.array([first, 0, 0, 0], np.float32)


def ask(learner: Counting, firsts: Sequence[float]) -> list[Any]:
    async def run() -> list[Any]:
        selections = Selections(learner)
        asked = [selections.select(vector(first), deterministic=True) for first in firsts]
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5)

    return asyncio.run(run())


def test_all_of_one_turn_are_chosen_at_once_and_as_alone() -> None:
    learner = Counting()
    firsts = [0.5, -2.0, 3.0, 1.0]
    found = ask(learner, firsts)
    assert learner.sizes == [4]
    for first, selection in zip(firsts, found, strict=True):
        alone = learner.select(vector(first), deterministic=True)
        assert selection.action == alone.action
        assert selection.log_prob == pytest.approx(alone.log_prob, abs=1e-6)
        assert selection.decision.vector == vector(first).tobytes()


def test_what_is_wrong_with_one_is_its_own() -> None:
    found = ask(Counting(), [1.0, 7.0, float("nan"), 2.0])
    assert [type(each) for each in found] == [Selection, DivergedError, ContextError, Selection]


def test_a_fault_of_ours_is_told_to_all_who_wait() -> None:
    learner = Counting()
    learner.failure = ZeroDivisionError("a bug")
    assert [type(each) for each in ask(learner, [1.0, 2.0])] == [ZeroDivisionError] * 2


def test_who_gives_up_takes_no_others_along() -> None:
    async def run() -> None:
        selections = Selections(Counting())
        gone = asyncio.ensure_future(selections.select(vector(1.0), deterministic=False))
        kept = asyncio.ensure_future(selections.select(vector(2.0), deterministic=False))
        await asyncio.sleep(0)
        gone.cancel()
        assert isinstance(await kept, Selection)

    asyncio.run(run())
