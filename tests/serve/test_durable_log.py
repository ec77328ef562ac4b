"""The log that many coroutines wait for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from learnloop.core.errors import ConflictError, UsageError
from learnloop.core.records import Agent, Decision
from learnloop.serve.durable_log import DurableLog
from learnloop.store import Store

T0 = datetime(2026, 1, 2, tzinfo=UTC)


def decision(decision_id: str, propensity: float = 0.5) -> Decision:
    return Decision(decision_id=decision_id, episode_id=None, agent_id="a", policy="p", algorithm=None, context={},
                    actions=["x"], action="x", propensity=propensity, created_at=T0)  # fmt: skip


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/log.db"


def test_what_is_kept_is_durable_and_shares_commits(url: str) -> None:
    async def run(store: Store) -> None:
        log = DurableLog(store)
        await log.keep([decision("first")])
        before = store.counters().num_commits
        await asyncio.gather(*(log.keep([decision(f"d{number}")]) for number in range(200)))
        assert store.counters().num_commits - before <= 3
        assert store.count(Decision) == 201

    with Store.open(url) as store:
        asyncio.run(run(store))


def test_a_record_that_cannot_be_stored_is_the_fault_of_its_own_request(url: str) -> None:
    async def run(store: Store) -> None:
        log = DurableLog(store)
        bad = decision("bad", propensity=float("nan"))
        found = await asyncio.gather(
            log.keep([decision("one")]), log.keep([decision("two"), bad]), log.keep([decision("three")]),
            return_exceptions=True,
        )  # fmt: skip
        assert [type(each) for each in found] == [type(None), UsageError, type(None)]
        assert {each.decision_id for each in store.iterate(Decision)} == {"one", "three"}
        await log.keep([decision("four")])

    with Store.open(url) as store:
        asyncio.run(run(store))


def test_who_gives_up_waiting_does_not_take_others_along(url: str) -> None:
    async def run(store: Store) -> None:
        log = DurableLog(store)
        gone = asyncio.ensure_future(log.keep([decision("gone")]))
        kept = asyncio.ensure_future(log.keep([decision("kept")]))
        await asyncio.sleep(0)
        gone.cancel()
        await kept
        assert store.count(Decision) == 2

    with Store.open(url) as store:
        asyncio.run(run(store))


def test_a_closed_store_is_told(url: str) -> None:
    async def run(store: Store) -> None:
        log = DurableLog(store)
        store.close()
        for _ in range(2):
            with pytest.raises(ConflictError):
                await log.keep([Agent(agent_id="a", created_at=T0)])

    asyncio.run(run(Store.open(url)))
