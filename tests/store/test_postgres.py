"""PostgreSQL: events without gaps under many writers, lost connections, restarts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from learnloop.core.errors import AuthError, NotFoundError, UnreachableError
from learnloop.core.records import Reward, Span, SpanStatus
from learnloop.store import Patience, Store
from learnloop.store.migrate import upgrade
from tests.waiting import PATIENCE_SECONDS

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def reward(key: str) -> Reward:
    return Reward(reward_id=key, episode_id=None, name="r", value=1.0, created_at=T0)


def test_a_reader_misses_no_event_of_two_writing_stores(postgres_url: str) -> None:
    """A serial number alone is not in the order of commits; readers would skip what commits late."""
    num_writes = 150
    seen: list[str] = []
    with Store.open(postgres_url) as one, Store.open(postgres_url) as two, Store.open(postgres_url) as reader:

        def write(store: Store, name: str) -> None:
            for number in range(num_writes):
                store.write([reward(f"{name}-{number}-{part}") for part in range(1 + number % 4)])

        threads = [threading.Thread(target=write, args=pair) for pair in ((one, "one"), (two, "two"))]
        for thread in threads:
            thread.start()
        last = 0
        while any(thread.is_alive() for thread in threads) or reader.wait_for_events(last, 0):
            for event in reader.events(after=last, limit=50):
                assert event.sequence > last
                last = event.sequence
                seen.append(event.subject)
        for thread in threads:
            thread.join()
        rewards = [found.reward_id for _, found in reader.rewards_after(0, limit=10_000)]
    assert len(seen) == len(set(seen)) == 2 * sum(1 + number % 4 for number in range(num_writes))
    assert rewards == seen


def test_two_stores_that_write_the_same_report_it_once(postgres_url: str) -> None:
    with Store.open(postgres_url) as one, Store.open(postgres_url) as two:
        futures = [store.submit([reward(f"r{number}")]) for number in range(200) for store in (one, two)]
        for future in futures:
            future.result(PATIENCE_SECONDS)
        assert sorted(event.subject for event in one.events(limit=1000)) == sorted(
            f"r{number}" for number in range(200)
        )


def test_the_words_of_another_process_are_heard_at_once(postgres_url: str) -> None:
    with Store.open(postgres_url) as reader, Store.open(postgres_url) as writer:
        heard: list[float] = []
        waiter = threading.Thread(target=lambda: reader.wait_for_events(0, 20) and heard.append(time.monotonic()))
        waiter.start()
        time.sleep(0.3)
        before = time.monotonic()
        writer.write([reward("r")])
        waiter.join()
        assert heard[0] - before < 1.0


def test_connections_that_are_cut_lose_nothing(postgres_url: str, postgres_server: Any) -> None:
    with Store.open(postgres_url) as store:
        futures = []
        for number in range(600):
            futures.append(store.submit([reward(f"r{number}")]))
            store.offer(_span(f"s{number}"))
            if number % 100 == 50:
                postgres_server.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname LIKE 'test_%' AND pid <> pg_backend_pid()"
                )
        for future in futures:
            future.result(PATIENCE_SECONDS)
        store.flush()
        assert store.count(Reward) == 600
        assert store.count(Span) == 600
        assert len(store.events(limit=1000)) == 600
        assert store.counters().num_failed == 0


def _span(key: str) -> Span:
    return Span(
        span_id=key,
        trace_id="t",
        episode_id=None,
        parent_id=None,
        operation="chat",
        name="n",
        status=SpanStatus.OK,
        started_at=T0,
        ended_at=T0,
    )


@pytest.mark.slow
def test_a_server_that_crashes_and_returns(make_server: Callable[[], Any]) -> None:
    server = make_server()
    upgrade(server.url())
    with Store.open(server.url(), patience=Patience(unreachable_seconds=1.0)) as store:
        store.write([reward("before")])
        server.stop(how=signal.SIGQUIT)
        store.offer(_span("while"))
        with pytest.raises(UnreachableError, match="does not answer"):
            store.write([reward("lost")])
        with pytest.raises(UnreachableError):
            store.get(Reward, "before")
        server.start()
        store.flush()
        assert store.get(Span, "while").span_id == "while"
        assert store.get(Reward, "before") == reward("before")
        waiting = store.submit([reward("after")])
        assert waiting.result(PATIENCE_SECONDS) is None


def test_a_missing_database_is_named(postgres_server: Any) -> None:
    with pytest.raises(NotFoundError, match="create the database first"):
        Store.open(postgres_server.url("nowhere"))


def test_a_role_that_may_not_write(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE guest LOGIN")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest")
    with Store.open(postgres_url.replace("postgres@", "guest@")) as store:
        assert store.count(Reward) == 0
        with pytest.raises(AuthError, match="permission denied"):
            store.write([reward("r")])
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP OWNED BY guest")
        connection.execute("DROP ROLE guest")
