"""What a store promises to all who write into it and read from it, on whatever database."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from learnloop.core.errors import ConflictError, LearnloopError, NotFoundError, StoreError, UsageError
from learnloop.core.records import (
    Agent,
    Episode,
    EpisodeStatus,
    Event,
    Memory,
    MemoryKind,
    PolicyVersion,
    Record,
    Reward,
    Span,
    Task,
)
from learnloop.store import Connection, Store, insert_events, insert_records
from learnloop.store.queries.records import change_records, count_records
from learnloop.testing.contracts.contract import expect, refuses, same
from learnloop.testing.contracts.store_examples import (
    BARE_RECORDS,
    EVERY_RECORD,
    T0,
    decision,
    episode,
    reward,
    span,
    version,
)
from learnloop.testing.contracts.store_reading import StoreReadingContract, kinds, says

LOST = "what was acknowledged would be lost, or would come back as something else"
EVENTS = [
    *("alias.moved", "checkpoint.saved", "decision.made", "episode.ended", "episode.started"),
    *("learning.updated", "policy.registered", "reward.recorded", "settings.changed"),
]
"""Of one record of each kind, the episode one that ended."""
NUM_THREADS = 4
NUM_EACH = 30


class StoreContract(StoreReadingContract):
    """Rules of stores.

    ::

    class TestMine(StoreContract):
        def open_store(self, **options):
            return Store.open("postgresql://...", **options)  # a new, empty database each time
    """

    # Writing -----------------------------------------------------------------------------------------------------

    def test_a_record_comes_back_as_it_was(self) -> None:
        """Each kind of record comes back equal, field by field."""
        with self.open_store() as store:
            for record in EVERY_RECORD + BARE_RECORDS:
                store.write([record])
                found = store.get(type(record), key_of(record))
                same(found, record, f"a {type(record).__name__} comes back as it was", LOST)

    def test_all_at_once_in_any_order_and_a_second_time_changes_nothing(self) -> None:
        """Records may come in any order and again; events tell of each once."""
        with self.open_store() as store:
            store.write(reversed(EVERY_RECORD))
            before = store.events()
            store.write(EVERY_RECORD)
            found = [store.get(type(record), key_of(record)) for record in EVERY_RECORD]
            same(found, EVERY_RECORD, "what is written a second time changes nothing", LOST)
            same(store.events(), before, "what is written a second time is no event", "it would be learned twice")
            why = "whoever waits for an event would wait for ever"
            same(sorted(event.kind for event in before), EVENTS, "events tell of what happened", why)

    def test_times_come_back_in_utc_to_the_microsecond(self) -> None:
        """A time of any zone comes back as the same moment, in UTC."""
        moment = datetime(2026, 7, 1, 12, 0, 0, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))
        with self.open_store() as store:
            store.write([Agent(agent_id="a", created_at=moment)])
            found = store.get(Agent, "a").created_at
        same(found, moment, "a time is the same moment", LOST)
        same(found.utcoffset(), timedelta(0), "times come back in UTC", "days and budgets are counted by them")

    def test_an_episode_brings_its_agent_and_task(self) -> None:
        """Agents and tasks that are named exist."""
        with self.open_store() as store:
            store.write([episode(), decision("d1", agent_id="other")])
            agents = [agent.agent_id for agent in store.select(Agent)]
            same(agents, ["other", "packer"], "an episode and a decision bring their agents", LOST)
            same(store.get(Task, "pack:readme").metadata, {}, "an episode brings its task", LOST)

    def test_a_running_episode_changes_and_a_final_one_does_not(self) -> None:
        """A running episode is brought up to date; one that ended stays as it ended."""
        with self.open_store() as store:
            store.write([episode(metadata={"n": 1})])
            store.write([episode(metadata={"n": 2}, trace_id="other")])
            running = store.get(Episode, "e1")
            same(running.metadata, {"n": 2}, "a running episode is brought up to date", LOST)
            same(running.trace_id, "t1", "an episode keeps what names it", LOST)
            done = episode(status=EpisodeStatus.COMPLETED, terminated=True, ended_at=T0, metadata={"n": 3})
            store.write([done])
            store.write([episode(metadata={"n": 4}), episode(status=EpisodeStatus.FAILED, error="late")])
            same(store.get(Episode, "e1"), done, "an episode that ended stays as it ended", LOST)
            same(kinds(store), ["episode.started", "episode.ended"], "it ends once", "it would be learned twice")

    def test_an_episode_that_starts_and_ends_in_one_batch(self) -> None:
        """Start, reward and end in one batch are events in this order."""
        with self.open_store() as store:
            store.write([episode(), reward("r1"), episode(status=EpisodeStatus.COMPLETED, trace_id="x", ended_at=T0)])
            wanted = ["episode.started", "reward.recorded", "episode.ended"]
            same(kinds(store), wanted, "events come in the order of the records", "an end would come before its reward")
            ended = episode(status=EpisodeStatus.COMPLETED, ended_at=T0)
            same(store.get(Episode, "e1"), ended, "the batch leaves the episode as it ended", LOST)

    def test_the_first_record_of_a_key_stays(self) -> None:
        """A second record under a key changes nothing, in the same batch or later."""
        with self.open_store() as store:
            store.write([reward("r1", value=1.0), reward("r1", value=2.0)])
            store.write([reward("r1", value=3.0), span("s1"), span("s1", name="other")])
            why = "a reward would change in silence"
            same(store.get(Reward, "r1").value, 1.0, "the first reward of a key stays", why)
            same(store.get(Span, "s1").name, "model", "the first span of a key stays", LOST)
            store.write([Task(task_id="t", created_at=T0), Task(task_id="t", created_at=T0, metadata={"n": 1})])
            same(store.get(Task, "t").metadata, {}, "the first task of a key stays", LOST)
            same(kinds(store), ["reward.recorded"], "only the first one is an event", "it would be learned twice")

    def test_a_version_number_is_unique_within_its_policy(self) -> None:
        """Two versions of a policy never have the same number."""
        with self.open_store() as store:
            store.write([version("v1", 1)])
            why = "a name would stand for two policies"
            refuses(ConflictError, "a number that is taken is refused", why, store.write, [version("v2", 1)])
            store.write([version("v3", 2), version("v4", 1, policy="packer.level")])
            same(store.count(PolicyVersion), 3, "other numbers, and other policies, are taken", LOST)

    def test_a_memory_of_an_unknown_agent_is_refused(self) -> None:
        """A memory belongs to an agent that exists."""
        memory = Memory(memory_id="m", agent_id="x", memory_type=MemoryKind.EPISODIC, content={}, created_at=T0)
        with self.open_store() as store:
            promise, why = "a memory of an unknown agent is refused", "nobody could find it again"
            refuses(NotFoundError, promise, why, store.write, [memory])

    def test_a_failed_write_leaves_nothing(self) -> None:
        """Of a batch that is refused nothing is kept, and the next one is taken."""
        with self.open_store() as store:
            why = "half of what belongs together would be there"
            bad = [span("s1"), reward("r1", value=float("nan"))]
            error = refuses(UsageError, "a reward of NaN is refused", why, store.write, bad)
            says(error, r"Reward\.value.*nan")
            same(store.find(Span, "s1"), None, "a batch that is refused leaves nothing", why)
            store.write([span("s1")])

    def test_what_cannot_be_stored_is_named(self) -> None:
        """The field that cannot be stored is named."""
        cases: list[tuple[Record, str]] = [
            (span("s", attributes={"loss": [float("inf")]}), r"Span\.attributes"),
            (span("s", attributes={"what": object()}), r"Span\.attributes"),
            (span("s", started_at=datetime(2026, 1, 1)), r"Span\.started_at"),
            (span("s", name=5), r"Span\.name"),
            (span("s", trace_id=None), "trace_id"),
            (decision("d", num_updates=2**70), r"Decision\.num_updates"),
            (decision("d", propensity=float("-inf")), r"Decision\.propensity"),
        ]
        with self.open_store() as store:
            for record, field in cases:
                why = "whoever wrote it could not find it"
                error = refuses(UsageError, f"{field} is refused", why, store.write, [record])
                says(error, field)

    def test_a_poisoned_record_does_not_take_others_down(self) -> None:
        """Of what is offered, only what cannot be stored is lost, counted and told."""
        with self.open_store() as store:
            for number in range(200):
                store.offer(span(f"s{number:03}", name=7 if number in (5, 77) else "model"))
            bad = store.submit([reward("r1"), reward("r2", value=float("inf"))])
            good = store.submit([reward("r3")])
            why = "one bad record would take those of all agents with it"
            expect(isinstance(bad.exception(30), UsageError), "who submits a bad one is told", bad.exception(0), why)
            same(good.result(30), None, "others are kept", why)
            error = refuses(StoreError, "flush tells of what was lost", why, store.flush)
            says(error, r"2 of the offered records")
            store.flush()
            same(store.count(Span), 198, "what can be stored is stored", why)
            same([found.reward_id for found in store.select(Reward)], ["r3"], "a submission is kept as a whole", why)
            counters = store.counters()
            found = (counters.num_offered, counters.num_dropped, counters.num_failed, counters.num_written)
            same(found, (200, 0, 2, 199), "what was offered, dropped, failed and written is counted", why)
            expect("Span.name" in str(counters.last_error), "the last failure is kept", counters.last_error, why)

    def test_an_unknown_kind_is_refused(self) -> None:
        """What is no record, and events, are refused."""
        with self.open_store() as store:
            why = "nobody could read it again"
            says(refuses(UsageError, "a text is refused", why, store.write, ["text"]), "no kind of record")
            event = Event(sequence=1, kind="a", subject="b", created_at=T0)
            says(refuses(UsageError, "an event is refused", why, store.write, [event]), "written by the store itself")

    def test_text_that_postgresql_cannot_hold_becomes_a_replacement_character(self) -> None:
        r"""\0 and lone surrogates become U+FFFD, in texts, keys and lists."""
        with self.open_store() as store:
            attributes = {"k\0": ["\0", "\udfff", "\\u0000"], "none": None}
            store.write([span("s1", name="a\0b\ud800c", attributes=attributes)])
            found = store.get(Span, "s1")
        why = "a trace would be stored on one database and refused by the other"
        same(found.name, "a\ufffdb\ufffdc", "text that cannot be held is replaced", why)
        wanted = {"k\ufffd": ["\ufffd", "\ufffd", "\\u0000"], "none": None}
        same(found.attributes, wanted, "text that cannot be held is replaced", why)

    def test_embeddings_keep_half_precision_and_their_dimension(self) -> None:
        """F4.10: the dimension is checked by the database."""
        import numpy as np

        def memory(key: str, embedding: list[float]) -> Memory:
            fields: dict[str, Any] = {"agent_id": "packer", "memory_type": MemoryKind.EPISODIC, "content": {}}
            return Memory(memory_id=key, embedding=embedding, created_at=T0, **fields)

        given = [float(number) for number in np.random.default_rng(0).standard_normal(384)]
        with self.open_store() as store:
            store.write([Agent(agent_id="packer", created_at=T0), memory("m", given)])
            wanted = [float(number) for number in np.array(given, dtype=np.float16)]
            same(store.get(Memory, "m").embedding, wanted, "embeddings are kept with 16 bits", LOST)
            same(store.count(Memory, where={"embedding_dimension": 384}), 1, "their dimension is kept", LOST)
            why = "vectors of several models would be compared"
            promise = "a dimension that is not the embedding's is refused"
            changes = {"embedding_dimension": 3}
            refuses(UsageError, promise, why, store.run, change_records, Memory, {"memory_id": "m"}, changes)
            promise = "a number beyond 16 bits is refused"
            says(refuses(UsageError, promise, LOST, store.write, [memory("n", [1e9])]), r"Memory\.embedding")

    # Transactions and threads ------------------------------------------------------------------------------------

    def test_run_is_one_transaction(self) -> None:
        """What run does is kept as a whole or not at all, and its errors come through."""
        with self.open_store() as store:
            why = "a registration would be there in part"
            same([store.run(_register) for _ in range(3)], [1, 2, 3], "run returns what its function returns", why)
            wanted = ["policy.registered", "custom.kind"] * 3
            same(kinds(store), wanted, "events of a transaction are kept with it", why)
            says(refuses(ValueError, "an error comes through", why, store.run, _register_and_fail), "changed my mind")
            says(refuses(TimeoutError, "an error comes through", why, store.run, _time_out), "mine")
            same(store.count(PolicyVersion), 3, "what failed leaves nothing", why)
            store.write([version("v4", 4)])

    def test_a_reader_cannot_write(self) -> None:
        """A reading transaction cannot write."""
        with self.open_store() as store:
            promise, why = "a reader cannot write", "two would write at once"
            refuses(LearnloopError, promise, why, store.read, lambda it: insert_records(it, [span("s1")]))
            same(store.count(Span), 0, promise, why)
            store.write([span("s1")])

    def test_threads_write_and_read_at_once(self) -> None:
        """Any number of threads may offer, write and read."""
        errors: list[LearnloopError] = []
        with self.open_store() as store:
            threads = [threading.Thread(target=_work, args=(store, number, errors)) for number in range(NUM_THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            store.flush()
            same(errors, [], "threads may write and read at once", "agents would lose what they did")
            same(store.count(Span), 2 * NUM_THREADS * NUM_EACH, "nothing is lost", LOST)

    def test_closing_writes_what_was_offered_and_takes_nothing_more(self) -> None:
        """``close`` writes what waits; after it nothing is taken, and calls are refused in words."""
        store = self.open_store()
        store.offer(span("s1"))
        store.close()
        store.close()
        same(store.offer(span("s2")), False, "a closed store takes nothing", "it would be lost in silence")
        counters = store.counters()
        found = (counters.num_offered, counters.num_dropped, counters.num_written)
        same(found, (2, 1, 1), "what was offered, dropped and written is counted", "a loss must be seen")
        for call in (lambda: store.write([span("s3")]), lambda: store.get(Span, "s1")):
            says(refuses(ConflictError, "a closed store refuses", "it would wait for ever", call), "closed")
        again = self.open_again()
        if again is not None:
            with again:
                spans = [each.span_id for each in again.select(Span)]
            same(spans, ["s1"], "what was offered before the close is there", LOST)

    def test_a_full_queue_drops_and_counts(self) -> None:
        """Where the queue is full, what is offered is dropped and counted, and nobody waits."""
        with self.open_store(queue_size=10) as store:
            store.run(lambda connection: [store.offer(span(f"s{number}")) for number in range(25)])
            store.flush()
            counters = store.counters()
            found = (counters.num_offered, counters.num_dropped, counters.num_written)
            same(found, (25, 15, 10), "a full queue drops and counts", "agents would wait, or memory would fill")
            same(store.count(Span), 10, "what was taken is written", LOST)

    def test_changes_take_the_same_values_as_records(self) -> None:
        """A change of some fields keeps what a record with these values would."""
        with self.open_store() as store:
            store.write([episode(metadata={"a": 1})])
            changes = {"metadata": {"b": [1, None]}, "ended_at": T0, "truncated": True}
            store.run(change_records, Episode, {"episode_id": "e1"}, changes)
            found = store.get(Episode, "e1")
        wanted = ({"b": [1, None]}, datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), True)
        same((found.metadata, found.ended_at, found.truncated), wanted, "changes take the values of records", LOST)


def key_of(record: Record) -> str:
    """Returns the key of a record: its first field."""
    key: str = getattr(record, record.__struct_fields__[0])
    return key


def _register(connection: Connection) -> int:
    count = count_records(connection, PolicyVersion, {})
    insert_records(connection, [version(f"v{count + 1}", count + 1)])
    insert_events(connection, [("custom.kind", "x", {"n": 1})])
    return count + 1


def _register_and_fail(connection: Connection) -> None:
    insert_records(connection, [version("v9", 9)])
    raise ValueError("changed my mind")


def _time_out(connection: Connection) -> None:
    raise TimeoutError("mine")


def _work(store: Store, thread: int, errors: list[LearnloopError]) -> None:
    try:
        for number in range(NUM_EACH):
            store.offer(span(f"o{thread}-{number}"))
            store.write([span(f"w{thread}-{number}")])
            store.get(Span, f"w{thread}-{number}")
    except LearnloopError as error:
        errors.append(error)
