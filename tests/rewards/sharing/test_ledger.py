"""learnloop.rewards.sharing.ledger on every back end: whole or not at all, found again, audited (S4.4, B6)."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from learnloop.core.attempts import Attempt, AttemptStep
from learnloop.core.errors import LearnloopError, NotFoundError, RewardError, StoreError, UsageError
from learnloop.core.ids import new_id
from learnloop.core.records import Agent, Episode, EpisodeStatus, Event, Reward, RewardShare, Task, Transition
from learnloop.rewards.sharing.credit import UNASSIGNED, Credit, CreditShare, credit_method
from learnloop.rewards.sharing.ledger import RewardLedger, shares_of
from learnloop.store import Store, schema

T0 = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def ledger(store: Store) -> RewardLedger:
    return RewardLedger(store)


def run(episode: str | None = "e1", *owners: str | None, task: str | None = "t", agents: Any = ("a", "b")) -> Attempt:
    owners = owners or ("a", "b", "a")
    steps = [AttemptStep(agent_id=each, span_id=f"{episode}-{number}") for number, each in enumerate(owners)]
    return Attempt(episode_id=episode, task_id=task, agents=list(agents), steps=steps)


def episode(key: str) -> Episode:
    return Episode(
        episode_id=key, trace_id=key, agent_id="a", task_id="t", status=EpisodeStatus.COMPLETED, started_at=T0
    )


def uniform(attempt: Attempt, reward: float) -> Credit:
    return credit_method("uniform").assign(attempt, reward)


def test_what_is_booked_is_there(ledger: RewardLedger, store: Store) -> None:
    attempt = run("e1", "a", "b", "a", None, agents=("a", "b", "idle"))
    credit = credit_method("discounted", gamma=0.5).assign(attempt, 7.5)
    booked = ledger.book(attempt, 8.0, credit, metadata={"components": {"tests": 1.0}})
    assert [list(store.iterate(RewardShare)), ledger.newest("e1")] == [booked, booked]
    assert [(each.agent_id, each.step, each.span_id, each.credit_assigned) for each in booked] == [
        ("a", 0, "e1-0", 0.5), ("b", 1, "e1-1", 1.0), ("a", 2, "e1-2", 2.0), (UNASSIGNED, 3, "e1-3", 4.0),
        ("idle", None, None, 0.0),
    ]  # fmt: skip
    assert math.fsum(each.credit_assigned for each in booked) == 7.5
    assert {(each.raw_reward, each.shaped_reward, each.method) for each in booked} == {(8.0, 7.5, "discounted")}
    assert booked[0].metadata == {"components": {"tests": 1.0}, "credit": {"gamma": 0.5}}
    assert [agent.agent_id for agent in store.iterate(Agent)] == [UNASSIGNED, "a", "b", "idle"]
    assert [task.task_id for task in store.iterate(Task)] == ["t"]
    (event,) = [each for each in store.iterate(Event) if each.kind == "reward.shared"]
    assert event.subject == booked[0].completion_id
    assert event.payload == {
        "episode_id": "e1", "task_id": "t", "raw_reward": 8.0, "shaped_reward": 7.5, "method": "discounted",
        "num_shares": 5,
    }  # fmt: skip


def test_what_belongs_to_it_is_written_with_it(ledger: RewardLedger, store: Store) -> None:
    reward = Reward(reward_id="r", episode_id="e1", name="reward", value=1.0, created_at=T0)
    ledger.book(run(), 1.0, uniform(run(), 1.0), also=[reward])
    assert store.get(Reward, "r") == reward
    assert [each.kind for each in store.iterate(Event)] == ["reward.recorded", "reward.shared"]
    dangling = Transition(transition_id="x", agent_id="nobody", observation={}, action={}, reward=None,
                          next_observation={}, terminated=True, truncated=False, created_at=T0)  # fmt: skip
    with pytest.raises(NotFoundError):
        ledger.book(run(), 1.0, uniform(run(), 1.0), also=[dangling])
    assert (store.count(RewardShare), store.count(Event)) == (3, 2)


def test_agents_and_tasks_that_are_there_stay(ledger: RewardLedger, store: Store) -> None:
    store.write([Agent(agent_id="a", created_at=T0), Task(task_id="t", created_at=T0, metadata={"kind": "x"})])
    ledger.book(run(), 1.0, uniform(run(), 1.0))
    assert store.get(Agent, "a").created_at == T0
    assert store.get(Task, "t").metadata == {"kind": "x"}


def test_the_history_is_found_by_step_span_agent_task_and_run(ledger: RewardLedger) -> None:
    for number in range(3):
        attempt = run(f"e{number}", task=f"t{number % 2}")
        ledger.book(attempt, 1.0, uniform(attempt, 3.0))
    every = ledger.shares().rows
    assert len(every) == 9
    assert [each.reward_share_id for each in every] == sorted((each.reward_share_id for each in every), reverse=True)
    for found, wanted in (
        (ledger.shares(span="e1-2"), [("e1", 2)]),
        (ledger.shares(episode="e1", step=0), [("e1", 0)]),
        (ledger.shares(agent="b"), [("e2", 1), ("e1", 1), ("e0", 1)]),
        (ledger.shares(task="t0", agent="b"), [("e2", 1), ("e0", 1)]),
        (ledger.shares(completion=every[0].completion_id), [("e2", 2), ("e2", 1), ("e2", 0)]),
        (ledger.shares(agent="nobody"), []),
    ):
        assert [(each.episode_id, each.step) for each in found.rows] == wanted
        assert found.next_cursor is None


def test_pages_are_whole(ledger: RewardLedger) -> None:
    for number in range(4):
        attempt = run(f"e{number}")
        ledger.book(attempt, 1.0, uniform(attempt, 3.0))
    found: list[RewardShare] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = ledger.shares(agent="a", limit=3, after=cursor)
        found += page.rows
        cursor, pages = page.next_cursor, pages + 1
    assert pages == 3
    assert found == ledger.shares(agent="a").rows
    assert len(found) == 8
    for limit in (0, 1_001):
        with pytest.raises(UsageError, match="limit is"):
            ledger.shares(limit=limit)
        with pytest.raises(UsageError, match="limit is"):
            ledger.totals(limit=limit)


def test_sharing_again_keeps_both_and_the_newest_counts(ledger: RewardLedger) -> None:
    attempt = run()
    first = ledger.book(attempt, 1.0, uniform(attempt, 1.0))
    assert ledger.newest("e1") == first
    second = ledger.book(attempt, 0.5, credit_method("last").assign(attempt, 0.5))
    assert ledger.newest("e1") == second
    assert len(ledger.shares(episode="e1").rows) == len(first) + len(second) == 5
    assert [(each.agent_id, each.credit) for each in ledger.totals()] == [("a", 0.5), ("b", 0.0)]
    assert ledger.newest("e2") == []
    assert [each.kind for each in ledger.audit()] == ["no_run", "no_run"]  # the episode itself is not stored here


def test_totals(ledger: RewardLedger) -> None:
    for number, task in enumerate(("t", "u")):
        attempt = run(f"e{number}", task=task)
        ledger.book(attempt, 1.0, uniform(attempt, 3.0))
    of_task = run(None, task="t")
    for _ in range(2):  # two tries whose runs are not stored: both count
        ledger.book(of_task, 1.0, credit_method("last").assign(of_task, 10.0))
    totals = {each.agent_id: each for each in ledger.totals()}
    assert (totals["a"].credit, totals["a"].num_shares, totals["a"].num_completions) == (24.0, 6, 4)
    assert (totals["b"].credit, totals["b"].num_completions) == (2.0, 4)
    assert [each.credit for each in ledger.totals(task="u")] == [2.0, 1.0]
    assert [each.credit for each in ledger.totals(episode="e0", agent="b")] == [1.0]
    assert [each.agent_id for each in ledger.totals(limit=1)] == ["a"]
    assert [each.agent_id for each in ledger.totals(limit=1, after="a")] == ["b"]
    assert ledger.totals(after="b") == []


def credit(*shares: CreditShare, reward: float = 1.0) -> Credit:
    return Credit(method="mine", reward=reward, shares=list(shares), details={})


def line(value: Any, agent: str = "a", step: int | None = None, span: str | None = None) -> CreditShare:
    return CreditShare(agent_id=agent, step=step, span_id=span, value=value)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (credit(line(0.75)), RewardError, r"add up to 0\.75 and the reward is 1\.0"),
        (credit(line(1.0), line(0.75, "b")), RewardError, r"add up to 1\.75"),  # F4.8
        (credit(line(1 + 2e-9)), RewardError, "add up to"),
        (credit(), RewardError, "no shares"),
        (credit(line(math.nan)), RewardError, "share of 'a' is nan"),
        (credit(line(None)), RewardError, "share of 'a' is None"),
        (credit(line(1.0), reward=math.inf), RewardError, "shaped reward is inf"),
        (credit(line(1.0, "stranger")), UsageError, "'stranger', who took no part.*'a', 'b'"),
        (credit(line(0.5), line(0.5)), UsageError, "two shares are of 'a' and step None"),
        (credit(line(1.0, step=3)), UsageError, "step 3; the run has 3"),
        (credit(line(1.0, step=-1)), UsageError, "step -1"),
        (credit(line(1.0, step=1, span="e1-0")), UsageError, "span 'e1-0'; that is 'e1-1'"),
        (credit(line(1.0, span="e1-0")), UsageError, "step None"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    sqlite_url: str, given: Credit, error: type[LearnloopError], message: str
) -> None:
    with Store.open(sqlite_url) as store:
        with pytest.raises(error, match=message):
            RewardLedger(store).book(run(), 1.0, given)
        assert (store.count(RewardShare), store.count(Agent), store.count(Event)) == (0, 0, 0)


@pytest.mark.parametrize("raw", [math.nan, None, "1", -math.inf])
def test_a_raw_reward_that_is_no_number_is_refused(raw: Any) -> None:
    with pytest.raises(RewardError, match="raw reward is"):
        shares_of(run(), raw, uniform(run(), 1.0), completion_id="c")


def test_a_run_without_an_id_is_refused() -> None:
    with pytest.raises(UsageError, match="neither an episode_id nor a task_id"):
        shares_of(run(None, task=None), 1.0, uniform(run(None, task=None), 1.0), completion_id="c")


@pytest.mark.parametrize("reward", [0.0, -3.0, 1e12 / 7, -1e99, 1e-15])
def test_any_reward_adds_up_in_the_store_too(ledger: RewardLedger, reward: float) -> None:
    attempt = run("e1", *"ab" * 31)
    ledger.book(attempt, reward, uniform(attempt, reward))
    total = math.fsum(each.credit_assigned for each in ledger.newest("e1"))
    assert abs(total - reward) <= 1e-9 * max(1.0, abs(reward))


def test_a_failure_on_the_way_leaves_nothing(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        store.run(
            lambda connection: connection.exec_driver_sql(
                "CREATE TRIGGER full_disk BEFORE INSERT ON reward_history WHEN NEW.step = 2 "
                "BEGIN SELECT RAISE(ABORT, 'no more'); END"
            )
        )
        with pytest.raises((StoreError, UsageError), match="no more"):
            RewardLedger(store).book(run(), 1.0, uniform(run(), 1.0))
        assert (store.count(RewardShare), store.count(Agent), store.count(Event)) == (0, 0, 0)


# ---------------------------------------------------------------------- audit


def share(completion: str, value: float, **fields: Any) -> RewardShare:
    given: dict[str, Any] = {
        "episode_id": "e1",
        "agent_id": "a",
        "raw_reward": 1.0,
        "shaped_reward": 1.0,
        "method": "mine",
        **fields,
    }
    return RewardShare(
        reward_share_id=new_id(), completion_id=completion, credit_assigned=value, created_at=T0, **given
    )


def test_an_audit_finds_each_fault_and_nothing_else(ledger: RewardLedger, store: Store) -> None:
    """B6: written past the ledger, as a faulty program or a hand in the database would."""
    store.write([episode("e1")])
    for number in range(3):
        attempt = run("e1")
        ledger.book(attempt, 1.0, uniform(attempt, 10.0**number / 3))
    assert list(ledger.audit()) == []
    store.write(
        [
            share("c1", 1.75),
            share("c2", 0.5, step=0), share("c2", 0.5, step=0),
            share("c3", 0.5), share("c3", 0.5, step=0, raw_reward=2.0),
            share("c4", 1.0, episode_id="gone"),
            share("c5", 1.0, episode_id=None),
            share("c6", 0.5), share("c6", 0.5 + 5e-10, step=1),
            share("c7", 1e12 + 100, shaped_reward=1e12), share("c8", 1e12 + 10_000, shaped_reward=1e12),
            share("c9", 1.0, episode_id=None, task_id="t"),
        ]
    )  # fmt: skip
    found = list(ledger.audit())
    assert [(each.completion_id, each.kind) for each in found] == [
        ("c1", "sum"), ("c2", "duplicate"), ("c3", "mixed"), ("c4", "no_run"), ("c5", "no_run"), ("c8", "sum"),
    ]  # fmt: skip
    assert (found[0].shaped_reward, found[0].total, found[0].episode_id) == (1.0, 1.75, "e1")
    assert "add up to 1.75 and not to 1.0" in found[0].message
    assert "'gone'" in found[3].message
    assert msgspec.json.encode(found)


def test_an_audit_of_many_completions_goes_page_by_page(
    ledger: RewardLedger, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learnloop.rewards.sharing.ledger._COMPLETIONS", 7)
    store.write([episode("e1")])
    store.write(
        share(f"c{number:03}", 0.5 if number % 10 else 0.4, step=step) for number in range(100) for step in range(2)
    )
    assert [each.completion_id for each in ledger.audit()] == [f"c{number:03}" for number in range(0, 100, 10)]


def test_a_change_in_the_database_is_found(ledger: RewardLedger, store: Store) -> None:
    store.write([episode("e1")])
    booked = ledger.book(run(), 1.0, uniform(run(), 1.0))
    table = schema.reward_history
    store.run(
        lambda connection: connection.execute(
            table.delete().where(table.c.reward_share_id == booked[0].reward_share_id)
        )
    )
    (found,) = ledger.audit()
    assert (found.kind, found.completion_id) == ("sum", booked[0].completion_id)
