"""What every back end of the store does alike: SQLite in a file, SQLite in memory, PostgreSQL with pgvector."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Connection, text, update

from learnloop.core.errors import ConflictError, LearnloopError, NotFoundError, StoreError, UsageError
from learnloop.core.records import (
    Agent,
    AliasMove,
    Certificate,
    Decision,
    Episode,
    EpisodeStatus,
    Event,
    Memory,
    MemoryKind,
    ModelCheckpoint,
    PolicyVersion,
    Record,
    Reward,
    RewardShare,
    Span,
    SpanStatus,
    Task,
    Transition,
    Verdict,
)
from learnloop.store import Store, insert_events, insert_records, schema

T0 = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def episode(episode_id: str = "e1", status: EpisodeStatus = EpisodeStatus.RUNNING, **fields: Any) -> Episode:
    given = {"trace_id": "t1", "agent_id": "packer", "task_id": "pack:readme", "started_at": T0, **fields}
    return Episode(episode_id=episode_id, status=status, **given)


def span(span_id: str, **fields: Any) -> Span:
    given: dict[str, Any] = {
        "trace_id": "t1",
        "episode_id": "e1",
        "parent_id": None,
        "operation": "chat",
        "name": "model",
        "status": SpanStatus.OK,
        "started_at": T0,
        "ended_at": T0 + timedelta(milliseconds=3),
        **fields,
    }
    return Span(span_id=span_id, **given)


def decision(decision_id: str, **fields: Any) -> Decision:
    given: dict[str, Any] = {
        "episode_id": "e1",
        "agent_id": "packer",
        "policy": "codec",
        "algorithm": "squarecb",
        "context": {"size": 5120, "kind": "text", "ratio": 0.25, "new": True},
        "actions": ["store", "gzip"],
        "action": "gzip",
        "propensity": 0.75,
        "created_at": T0,
        **fields,
    }
    return Decision(decision_id=decision_id, **given)


def reward(reward_id: str, **fields: Any) -> Reward:
    return Reward(
        reward_id=reward_id, **{"episode_id": "e1", "name": "saved", "value": 0.5, "created_at": T0, **fields}
    )


def version(policy_version_id: str, number: int, **fields: Any) -> PolicyVersion:
    given: dict[str, Any] = {"policy": "packer.codec", "content_hash": "ab" * 32, "algorithm": "linucb", **fields}
    return PolicyVersion(policy_version_id=policy_version_id, version=number, created_at=T0, **given)


EVERY_RECORD: list[Record] = [
    Agent(agent_id="packer", created_at=T0),
    Task(task_id="pack:readme", created_at=T0, metadata={"path": "README.md"}),
    episode(status=EpisodeStatus.FAILED, attempt=2, truncated=True, error="time", ended_at=T0, metadata={"a": [1, {}]}),
    span(
        "s1", error="no", status=SpanStatus.ERROR, parent_id="s0", attributes={"input": "é\U0001f600", "n": [1.5, None]}
    ),
    decision("d1", mask=[True, False], probabilities=[0.25, 0.75], num_updates=7, span_id="s1", policy_version_id="p"),
    reward("r1", decision_id="d1", value=None, reason="no file", weight=2.0, source="scorer"),
    version("v1", 1, parent_id="v0", metrics={"reward": 0.5}, lineage={"episodes": ["e1"]}),
    AliasMove(
        alias_move_id="m1",
        policy="packer.codec",
        alias="champion",
        policy_version_id="v1",
        actor="ann",
        reason="better",
        created_at=T0,
    ),
    Certificate(
        certificate_id="c1",
        content_hash="ab" * 32,
        verdict=Verdict.NO_SIGNAL,
        reasons=["p = 0.5"],
        statistics={"p": 0.5},
        created_at=T0,
    ),
    Memory(
        memory_id="me1",
        agent_id="packer",
        memory_type=MemoryKind.SEMANTIC,
        content={"text": "gzip suits text"},
        embedding=[0.5, -1.0, 65504.0],
        last_accessed=T0,
        created_at=T0,
    ),
    Transition(
        transition_id="tr1",
        agent_id="packer",
        observation={"x": [0.5]},
        action={"index": 1},
        reward=None,
        next_observation={"x": [1.5]},
        terminated=True,
        truncated=False,
        batch_id="b",
        created_at=T0,
    ),
    RewardShare(
        reward_share_id="rs1",
        task_id="pack:readme",
        agent_id="packer",
        raw_reward=1.0,
        shaped_reward=0.5,
        credit_assigned=0.25,
        created_at=T0,
    ),
    ModelCheckpoint(
        checkpoint_id="ch1",
        agent_id="packer",
        policy="packer.codec",
        checkpoint_path="cd" * 32,
        performance_metrics={"reward": 0.5},
        training_iteration=100,
        created_at=T0,
    ),
]


def key_of(record: Record) -> str:
    key: str = getattr(record, record.__struct_fields__[0])
    return key


def kinds(store: Store) -> list[str]:
    return [event.kind for event in store.events()]


@pytest.mark.parametrize("record", EVERY_RECORD, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was(store: Store, record: Record) -> None:
    store.write([Agent(agent_id="packer", created_at=T0), Task(task_id="pack:readme", created_at=T0)])
    store.write([version("v1", 1, parent_id="v0", metrics={"reward": 0.5}, lineage={"episodes": ["e1"]})])
    store.write([record])
    if type(record) is Task:
        record = Task(task_id="pack:readme", created_at=T0)  # the first one stays
    assert store.get(type(record), key_of(record)) == record


def test_all_at_once_in_any_order_and_a_second_time_changes_nothing(store: Store) -> None:
    store.write(reversed(EVERY_RECORD))
    before = store.events()
    store.write(EVERY_RECORD)
    assert [store.get(type(record), key_of(record)) for record in EVERY_RECORD] == EVERY_RECORD
    assert store.events() == before
    assert sorted(event.kind for event in before) == [
        "alias.moved",
        "checkpoint.saved",
        "decision.made",
        "episode.ended",
        "episode.started",
        "policy.registered",
        "reward.recorded",
    ]


def test_times_come_back_in_utc_to_the_microsecond(store: Store) -> None:
    moment = datetime(2026, 7, 1, 12, 0, 0, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    store.write([Agent(agent_id="a", created_at=moment)])
    found = store.get(Agent, "a").created_at
    assert found == moment
    assert found.utcoffset() == timedelta(0)


def test_an_episode_brings_its_agent_and_task(store: Store) -> None:
    store.write([episode(), decision("d1", agent_id="other")])
    assert [agent.agent_id for agent in store.select(Agent)] == ["other", "packer"]
    assert store.get(Task, "pack:readme").metadata == {}


def test_a_running_episode_changes_and_a_final_one_does_not(store: Store) -> None:
    store.write([episode(metadata={"n": 1})])
    store.write([episode(metadata={"n": 2}, trace_id="other")])
    assert store.get(Episode, "e1").metadata == {"n": 2}
    assert store.get(Episode, "e1").trace_id == "t1"
    done = episode(status=EpisodeStatus.COMPLETED, terminated=True, ended_at=T0, metadata={"n": 3})
    store.write([done])
    store.write([episode(metadata={"n": 4}), episode(status=EpisodeStatus.FAILED, error="late")])
    assert store.get(Episode, "e1") == done
    assert kinds(store) == ["episode.started", "episode.ended"]


def test_an_episode_that_starts_and_ends_in_one_batch(store: Store) -> None:
    store.write([episode(), reward("r1"), episode(status=EpisodeStatus.COMPLETED, trace_id="x", ended_at=T0)])
    assert kinds(store) == ["episode.started", "reward.recorded", "episode.ended"]
    assert store.get(Episode, "e1") == episode(status=EpisodeStatus.COMPLETED, ended_at=T0)


def test_the_first_record_of_a_key_stays(store: Store) -> None:
    store.write([reward("r1", value=1.0), reward("r1", value=2.0)])
    store.write([reward("r1", value=3.0), span("s1"), span("s1", name="other")])
    assert store.get(Reward, "r1").value == 1.0
    assert store.get(Span, "s1").name == "model"
    assert kinds(store) == ["reward.recorded"]


def test_a_version_number_is_unique_within_its_policy(store: Store) -> None:
    store.write([version("v1", 1)])
    with pytest.raises(ConflictError):
        store.write([version("v2", 1)])
    store.write([version("v3", 2), version("v4", 1, policy="packer.level")])
    assert store.count(PolicyVersion) == 3


def test_a_memory_of_an_unknown_agent_is_refused(store: Store) -> None:
    with pytest.raises(NotFoundError):
        store.write([Memory(memory_id="m", agent_id="x", memory_type=MemoryKind.EPISODIC, content={}, created_at=T0)])


def test_a_failed_write_leaves_nothing(store: Store) -> None:
    with pytest.raises(UsageError, match=r"Reward\.value.*nan"):
        store.write([span("s1"), reward("r1", value=float("nan"))])
    assert store.find(Span, "s1") is None
    store.write([span("s1")])


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (span("s", attributes={"loss": [float("inf")]}), r"Span\.attributes"),
        (span("s", attributes={"what": object()}), r"Span\.attributes"),
        (span("s", started_at=datetime(2026, 1, 1)), r"Span\.started_at"),
        (span("s", name=5), r"Span\.name"),
        (span("s", trace_id=None), "trace_id"),
        (decision("d", num_updates=2**70), r"Decision\.num_updates"),
        (decision("d", propensity=float("-inf")), r"Decision\.propensity"),
    ],
)
def test_what_cannot_be_stored_is_named(store: Store, record: Record, field: str) -> None:
    with pytest.raises(UsageError, match=field):
        store.write([record])


def test_a_poisoned_record_does_not_take_others_down(store: Store) -> None:
    for number in range(200):
        store.offer(span(f"s{number:03}", name=7 if number in (5, 77) else "model"))
    bad = store.submit([reward("r1"), reward("r2", value=float("inf"))])
    good = store.submit([reward("r3")])
    assert isinstance(bad.exception(30), UsageError)
    assert good.result(30) is None
    with pytest.raises(StoreError, match=r"2 of the offered records"):
        store.flush()
    store.flush()
    assert store.count(Span) == 198
    assert [found.reward_id for found in store.select(Reward)] == ["r3"]
    counters = store.counters()
    assert (counters.num_offered, counters.num_dropped, counters.num_failed) == (200, 0, 2)
    assert counters.num_written == 199
    assert counters.last_error is not None
    assert "Span.name" in counters.last_error


def test_an_unknown_kind_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="no kind of record"):
        store.write(["text"])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="written by the store itself"):
        store.write([Event(sequence=1, kind="a", subject="b", created_at=T0)])


def test_text_that_postgresql_cannot_hold_becomes_a_replacement_character(store: Store) -> None:
    store.write([span("s1", name="a\0b\ud800c", attributes={"k\0": ["\0", "\udfff", "\\u0000"], "none": None})])
    found = store.get(Span, "s1")
    assert found.name == "a\ufffdb\ufffdc"
    assert found.attributes == {"k\ufffd": ["\ufffd", "\ufffd", "\\u0000"], "none": None}


def test_get_names_what_is_missing(store: Store) -> None:
    with pytest.raises(NotFoundError, match=r"Episode.*episode_id.*'nope'"):
        store.get(Episode, "nope")
    assert store.find(Episode, "nope") is None


def test_pages_by_key(store: Store) -> None:
    store.write(span(f"s{number:02}", episode_id=f"e{number % 3}") for number in range(25))
    first = store.select(Span, limit=10)
    second = store.select(Span, limit=10, after=first[-1].span_id)
    assert [found.span_id for found in first + second] == [f"s{number:02}" for number in range(20)]
    assert store.select(Span, limit=2, descending=True, after="s20")[0].span_id == "s19"
    assert len(list(store.iterate(Span, where={"episode_id": "e0"}, page=4))) == 9
    assert store.count(Span, where={"episode_id": "e1"}) == 8


def test_keys_are_ordered_by_code_point(store: Store) -> None:
    names = ["a", "B", "é", "_", "Z", "0", "\U0001f600", "\uffee"]
    store.write(Agent(agent_id=name, created_at=T0) for name in names)
    assert [agent.agent_id for agent in store.iterate(Agent, page=2)] == sorted(names)


def test_conditions(store: Store) -> None:
    store.write([span("s1", episode_id=None), span("s2"), span("s3", episode_id="e3")])
    store.write([reward("r1", value=0.25), reward("r2", created_at=T0 + timedelta(seconds=1))])

    def ids(**where: object) -> list[str]:
        return [found.span_id for found in store.select(Span, where=where)]

    assert ids(episode_id=None) == ["s1"]
    assert ids(episode_id=["e1", "e3"]) == ["s2", "s3"]
    assert ids(episode_id=("e3", None)) == ["s1", "s3"]
    assert ids(episode_id=[]) == []
    assert ids(episode_id="e1", name="other") == []
    assert ids(status=SpanStatus.OK, started_at=T0) == ["s1", "s2", "s3"]
    assert store.count(Reward, where={"value": {0.25}}) == 1
    assert store.count(Reward, where={"created_at": [T0]}) == 1
    with pytest.raises(UsageError, match=r"'colour'; allowed: .*'operation'"):
        ids(colour="red")
    with pytest.raises(UsageError, match="limit"):
        store.select(Span, limit=0)


def test_a_condition_of_many_values(store: Store) -> None:
    store.write(span(f"s{number}", started_at=T0 + timedelta(seconds=number)) for number in range(10))
    assert store.count(Span, where={"span_id": [f"s{number}" for number in range(70_000)]}) == 10
    assert store.count(Span, where={"started_at": [T0 + timedelta(seconds=number) for number in range(600)]}) == 10


def test_events_in_order_with_what_they_report(store: Store) -> None:
    store.write([episode(), decision("d1"), reward("r1", decision_id="d1")])
    started, made, recorded = store.events()
    assert [started.sequence, made.sequence, recorded.sequence] == sorted(
        {started.sequence, made.sequence, recorded.sequence}
    )
    assert (started.kind, started.subject) == ("episode.started", "e1")
    assert (made.kind, made.subject, made.payload["action"]) == ("decision.made", "d1", "gzip")
    assert (recorded.kind, recorded.subject, recorded.payload["value"]) == ("reward.recorded", "r1", 0.5)
    assert store.events(after=made.sequence) == [recorded]
    assert store.events(limit=1) == [started]


def test_waiting_for_events(store: Store) -> None:
    assert store.wait_for_events(0, 0.05) is False
    timer = threading.Timer(0.2, lambda: store.write([reward("r1")]))
    timer.start()
    assert store.wait_for_events(0, 10) is True
    timer.join()
    assert store.wait_for_events(0, 0) is True
    assert store.wait_for_events(store.events()[-1].sequence, 0.05) is False


def test_rewards_in_the_order_of_their_commit(store: Store) -> None:
    assert store.last_reward_sequence() == 0
    store.write([reward("z"), reward("y")])
    store.write([reward("a"), reward("z", value=9.0)])
    (first, one), (second, two), (third, three) = store.rewards_after(0)
    assert [one.reward_id, two.reward_id, three.reward_id] == ["z", "y", "a"]
    assert 0 < first < second < third == store.last_reward_sequence()
    assert store.rewards_after(second) == [(third, reward("a"))]
    assert store.rewards_after(0, limit=1) == [(first, reward("z"))]


def test_run_is_one_transaction(store: Store) -> None:
    def register(connection: Connection) -> int:
        count = connection.execute(text("SELECT count(*) FROM policy_versions")).scalar_one()
        insert_records(connection, [version(f"v{count + 1}", count + 1)])
        insert_events(connection, [("custom.kind", "x", {"n": 1})])
        return int(count) + 1

    assert [store.run(register) for _ in range(3)] == [1, 2, 3]
    assert kinds(store) == ["policy.registered", "custom.kind"] * 3

    def fail(connection: Connection) -> None:
        insert_records(connection, [version("v9", 9)])
        raise ValueError("changed my mind")

    with pytest.raises(ValueError, match="changed my mind"):
        store.run(fail)
    with pytest.raises(TimeoutError, match="mine"):
        store.run(lambda connection: _raise(TimeoutError("mine")))
    assert store.count(PolicyVersion) == 3
    store.write([version("v4", 4)])


def _raise(error: Exception) -> None:
    raise error


def test_a_reader_cannot_write(store: Store) -> None:
    with pytest.raises(LearnloopError):
        store.read(lambda connection: insert_records(connection, [span("s1")]))
    assert store.count(Span) == 0
    store.write([span("s1")])


def test_threads_write_and_read_at_once(store: Store) -> None:
    errors: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for number in range(30):
                store.offer(span(f"o{thread}-{number}"))
                store.write([span(f"w{thread}-{number}")])
                store.get(Span, f"w{thread}-{number}")
        except LearnloopError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.flush()
    assert errors == []
    assert store.count(Span) == 240


def test_closing_writes_what_was_offered_and_takes_nothing_more(store_url: str) -> None:
    store = Store.open(store_url)
    store.offer(span("s1"))
    store.close()
    store.close()
    assert store.offer(span("s2")) is False
    assert (store.counters().num_offered, store.counters().num_dropped, store.counters().num_written) == (2, 1, 1)
    with pytest.raises(ConflictError, match="closed"):
        store.write([span("s3")])
    with pytest.raises(ConflictError, match="closed"):
        store.get(Span, "s1")
    if ":memory:" not in store_url:
        with Store.open(store_url, upgrade=False) as again:
            assert [found.span_id for found in again.select(Span)] == ["s1"]


def test_a_full_queue_drops_and_counts(store_url: str) -> None:
    with Store.open(store_url, queue_size=10) as store:
        store.run(lambda connection: [store.offer(span(f"s{number}")) for number in range(25)])
        store.flush()
        counters = store.counters()
        assert (counters.num_offered, counters.num_dropped, counters.num_written) == (25, 15, 10)
        assert store.count(Span) == 10


def test_embeddings_keep_half_precision_and_their_dimension(store: Store) -> None:
    """F4.10: the dimension is checked by the database."""
    import numpy as np

    store.write([Agent(agent_id="packer", created_at=T0)])
    given = [float(number) for number in np.random.default_rng(0).standard_normal(384)]
    memory = Memory(
        memory_id="m", agent_id="packer", memory_type=MemoryKind.EPISODIC, content={}, embedding=given, created_at=T0
    )
    store.write([memory])
    assert store.get(Memory, "m").embedding == [float(number) for number in np.array(given, dtype=np.float16)]
    assert store.count(Memory, where={"embedding_dimension": 384}) == 1
    with pytest.raises(UsageError):
        store.run(lambda connection: connection.execute(text("UPDATE agent_memories SET embedding_dimension = 3")))
    with pytest.raises(UsageError, match=r"Memory\.embedding"):
        store.write(
            [
                Memory(
                    memory_id="n",
                    agent_id="packer",
                    memory_type=MemoryKind.EPISODIC,
                    content={},
                    embedding=[1e9],
                    created_at=T0,
                )
            ]
        )


def test_statements_of_ones_own_take_the_same_values(store: Store) -> None:
    """Rooms above write with the tables of the schema where records alone do not do."""
    store.write([episode(metadata={"a": 1})])
    change = update(schema.episodes).values(metadata={"b": [1, None]}, ended_at=T0, truncated=True)
    store.run(lambda connection: connection.execute(change.where(schema.episodes.c.episode_id == "e1")))
    found = store.get(Episode, "e1")
    assert (found.metadata, found.ended_at, found.truncated) == ({"b": [1, None]}, T0, True)
