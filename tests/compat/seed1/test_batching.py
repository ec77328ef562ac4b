"""Choices that are asked for together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection

from learnloop.compat.seed1.batching import SelectionBatcher
from learnloop.compat.seed1.learner import AGENT, MAX_BATCH, MutationLearner, Selection
from learnloop.compat.seed1.settings import read_mutation_settings
from learnloop.core.clock import now
from learnloop.core.errors import ContextError, DivergedError
from learnloop.core.records import Agent, Decision
from learnloop.serve.durable_log import DurableLog
from learnloop.store import Store
from tests.waiting import PATIENCE_SECONDS

SIZE = 4


class Counting(MutationLearner):
    """Notes how many were chosen at once, and fails as it is told."""

    def __init__(self) -> None:
        super().__init__(read_mutation_settings({"input_dim": SIZE}), Path("/nonexistent"))
        self.sizes: list[int] = []
        self.failure: Exception | None = None

    def select_many(self, states: Sequence[Any], deterministic: Sequence[bool]) -> list[Selection | DivergedError]:
        self.sizes.append(len(states))
        if self.failure is not None:
            raise self.failure
        found = super().select_many(states, deterministic)
        return [DivergedError("seven") if state[0] == 7 else each for state, each in zip(states, found, strict=True)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/log.db") as store:
        store.write([Agent(agent_id=AGENT, created_at=now())])
        yield store


def vector(first: float) -> Any:
    return np.array([first, 0, 0, 0], np.float32)


def running(store: Store, learner: Counting, run: Callable[[SelectionBatcher, DurableLog], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        log = DurableLog(store)
        return await asyncio.wait_for(run(SelectionBatcher(learner, log), log), PATIENCE_SECONDS)

    return asyncio.run(main())


def ask(store: Store, learner: Counting, firsts: Sequence[float]) -> Any:
    async def run(selections: SelectionBatcher, log: DurableLog) -> list[Any]:
        asked = [selections.select(vector(first), deterministic=True) for first in firsts]
        return await asyncio.gather(*asked, return_exceptions=True)

    return running(store, learner, run)


def test_all_of_one_turn_are_chosen_at_once_and_as_alone(store: Store) -> None:
    learner = Counting()
    firsts = [0.5, -2.0, 3.0, 1.0]
    found = ask(store, learner, firsts)
    assert learner.sizes == [4]
    for first, selection in zip(firsts, found, strict=True):
        alone = learner.select(vector(first), deterministic=True)
        assert selection.action == alone.action
        assert selection.log_prob == pytest.approx(alone.log_prob, abs=1e-6)
        logged = store.find(Decision, selection.decision.decision_id)
        assert logged is not None
        assert logged.vector == vector(first).tobytes()


def test_during_a_commit_a_choice_waits_for_others_as_long_as_they_come(store: Store) -> None:
    learner = Counting()
    is_held, is_let_go = threading.Event(), threading.Event()

    def hold(connection: Connection) -> None:
        is_held.set()
        is_let_go.wait(PATIENCE_SECONDS)

    async def run(selections: SelectionBatcher, log: DurableLog) -> None:
        asked = [asyncio.create_task(selections.select(vector(1.0), deterministic=True))]
        while not log.is_busy:
            await asyncio.sleep(0)
        for number in range(5):  # each in a turn of its own
            asked.append(asyncio.create_task(selections.select(vector(number), deterministic=True)))
            await asyncio.sleep(0)
        while len(learner.sizes) == 1:
            await asyncio.sleep(0)
        assert learner.sizes == [1, 5]
        is_let_go.set()
        await asyncio.gather(*asked)

    holder = threading.Thread(target=store.run, args=(hold,))
    holder.start()
    assert is_held.wait(PATIENCE_SECONDS)
    running(store, learner, run)
    holder.join()
    assert learner.sizes == [1, 5]
    assert store.count(Decision) == 6


def test_a_choice_waits_for_others_as_long_as_they_come(store: Store) -> None:
    learner = Counting()

    async def run(selections: SelectionBatcher, log: DurableLog) -> None:
        asked = []
        for number in range(5):  # each in a turn of its own
            asked.append(asyncio.create_task(selections.select(vector(number), deterministic=True)))
            await asyncio.sleep(0)
        await asyncio.gather(*asked)

    running(store, learner, run)
    assert learner.sizes == [5]


def test_no_choice_waits_for_more_than_go_through_the_network_at_once(store: Store) -> None:
    learner = Counting()
    ask(store, learner, [1.0] * (MAX_BATCH + 3))  # all in one turn: they are there already
    assert learner.sizes == [MAX_BATCH + 3]
    learner.sizes.clear()

    async def run(selections: SelectionBatcher, log: DurableLog) -> None:
        asked = []
        for _ in range(3 * MAX_BATCH):
            asked.append(asyncio.create_task(selections.select(vector(1.0), deterministic=True)))
            await asyncio.sleep(0)
        assert learner.sizes  # though others came in every turn
        await asyncio.gather(*asked)

    running(store, learner, run)
    assert learner.sizes[0] in (MAX_BATCH, MAX_BATCH + 1)  # one comes in each turn
    assert sum(learner.sizes) == 3 * MAX_BATCH


def test_what_is_wrong_with_one_is_its_own(store: Store) -> None:
    found = ask(store, Counting(), [1.0, 7.0, float("nan"), 2.0])
    assert [type(each) for each in found] == [Selection, DivergedError, ContextError, Selection]
    assert store.count(Decision) == 2


def test_a_fault_of_ours_is_told_to_all_who_wait(store: Store) -> None:
    learner = Counting()
    learner.failure = ZeroDivisionError("a bug")
    assert [type(each) for each in ask(store, learner, [1.0, 2.0])] == [ZeroDivisionError] * 2
    learner.failure = None
    assert [type(each) for each in ask(store, learner, [1.0])] == [Selection]


def test_who_gives_up_takes_no_others_along(store: Store) -> None:
    async def run(selections: SelectionBatcher, log: DurableLog) -> None:
        gone = asyncio.ensure_future(selections.select(vector(1.0), deterministic=False))
        kept = asyncio.ensure_future(selections.select(vector(2.0), deterministic=False))
        await asyncio.sleep(0)
        gone.cancel()
        assert isinstance(await kept, Selection)

    running(store, Counting(), run)
    assert store.count(Decision) == 1  # nobody got the other one


def test_where_all_gave_up_nothing_is_chosen(store: Store) -> None:
    learner = Counting()

    async def run(selections: SelectionBatcher, log: DurableLog) -> None:
        gone = asyncio.ensure_future(selections.select(vector(1.0), deterministic=False))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0.01)
        assert isinstance(await selections.select(vector(2.0), deterministic=False), Selection)

    running(store, learner, run)
    assert learner.sizes == [1]
