"""Spans become episodes: durable, once, in any order, over requests, processes and restarts; late ones reopen."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from learnloop.core.errors import ConflictError, StoreError, UnreachableError
from learnloop.core.records import Agent, Episode, EpisodeStatus, Reward, Span
from learnloop.store import Store
from learnloop.store.full_text import matches
from learnloop.traces.conversation.messages import message, text_part
from learnloop.traces.conversation.steps import steps_of
from learnloop.traces.otlp.assembly import Assembler, AssemblyOptions
from learnloop.traces.otlp.decode import decode_logs, decode_traces
from learnloop.traces.otlp.mapping import PARTIAL, Mapped, map_logs, map_spans
from learnloop.traces.search import catch_up, parse_query
from tests.traces.otlp import requests as otlp
from tests.traces.otlp.requests import SECOND, T0, Raw, event, log, ours, span, trace_id
from tests.waiting import PATIENCE_SECONDS, eventually

RECEIVED = datetime(2026, 11, 28, 12, tzinfo=UTC)
FAST = AssemblyOptions(grace_seconds=0.05, idle_seconds=0.4)
NEVER = AssemblyOptions(grace_seconds=60, idle_seconds=600)
RESULT = "gen_ai.evaluation.result"
SCORE = {"gen_ai.evaluation.name": "solved", "gen_ai.evaluation.score.value": 1.0}
DETAILS = "gen_ai.client.inference.operation.details"
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.response.id": "r1"}
SAID = {"gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]'}


@pytest.fixture
def quick(sqlite_url: str) -> Iterator[Store]:
    """A store for what is the same on each back end."""
    with Store.open(sqlite_url) as opened:
        yield opened


def spans_of(*spans: Raw, resource: Raw | None = None) -> list[Mapped]:
    return map_spans(decode_traces(otlp.traces_pb(spans, resource), "protobuf").spans, RECEIVED)


def logs_of(*logs: Raw) -> list[Mapped]:
    return map_logs(decode_logs(otlp.logs_pb(logs), "protobuf").logs, RECEIVED)


def send(assembler: Assembler, mapped: Sequence[Mapped]) -> None:
    assembler.submit(mapped).result(PATIENCE_SECONDS)


def ended(store: Store, trace: int = 1) -> Episode:
    def look() -> Episode | None:
        found = store.find(Episode, trace_id(trace))
        return None if found is None or found.status is EpisodeStatus.RUNNING else found

    found = eventually(look)
    assert found is not None
    return found


def kinds(store: Store) -> list[str]:
    return [each.kind for each in store.events()]


RUN = [
    span(1, 1, name="root", attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "Finder"}),
    span(1, 2, 1, attributes={**CHAT, **SAID, "gen_ai.conversation.id": "c1"}),
    span(
        1, 3, 1, attributes={"gen_ai.operation.name": "execute_tool", "learnloop.task_id": "t", "learnloop.attempt": 2}
    ),
]
RESOURCE = {"service.name": "svc", "service.version": "1"}


def test_a_trace_becomes_an_episode(store: Store) -> None:
    with Assembler(store, NEVER) as assembler:
        send(assembler, spans_of(*RUN, resource=RESOURCE))
        running = store.get(Episode, trace_id(1))
        assert (running.status, running.ended_at, running.source) == (EpisodeStatus.RUNNING, None, "otlp")
    with Assembler(store, FAST):
        found = ended(store)
    assert (found.agent_id, found.task_id, found.attempt, found.trace_id) == ("Finder", "t", 2, trace_id(1))
    assert (found.status, found.terminated, found.truncated) == (EpisodeStatus.COMPLETED, True, False)
    spans = list(store.iterate(Span, where={"episode_id": trace_id(1)}))
    assert (found.started_at, found.ended_at) == (min(s.started_at for s in spans), max(s.ended_at for s in spans))
    assert found.metadata == {"service.name": "svc", "service.version": "1", "name": "Finder", "conversation_id": "c1"}
    assert kinds(store) == ["episode.started", "episode.ended"]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)], ids=["root first", "root last", "mixed"])
def test_spans_in_any_order_one_a_request(quick: Store, order: tuple[int, ...]) -> None:
    """The root comes last in practice (data-prepper issue 4517): who did it is known then, and said."""
    with Assembler(quick, FAST) as assembler:
        for index in order:
            send(assembler, spans_of(RUN[index], resource=RESOURCE))
        found = ended(quick)
    assert (found.agent_id, found.task_id, found.attempt) == ("Finder", "t", 2)
    assert quick.count(Span) == 3


def test_what_is_sent_again_changes_nothing(store: Store) -> None:
    """A client that lost the answer sends again (OTLP: at least once)."""
    scored = [*RUN, span(1, 4, 1, events=[event(RESULT, SCORE)])]
    with Assembler(store, FAST) as assembler:
        send(assembler, spans_of(*scored, *scored))
        send(assembler, spans_of(*scored))
        first = ended(store)
        send(assembler, spans_of(*scored))
        send(assembler, spans_of({**scored[1], "name": "another", "attributes": {}}))
        time.sleep(0.3)
        counters = assembler.counters()
    assert store.get(Episode, trace_id(1)) == first
    assert (store.count(Span), store.count(Reward), store.count(Episode)) == (4, 1, 1)
    assert kinds(store) == ["episode.started", "reward.recorded", "episode.ended"]
    assert (counters.num_added, counters.num_closed, counters.num_open) == (4, 1, 0)


def test_a_failed_root_is_a_failed_episode(quick: Store) -> None:
    with Assembler(quick, FAST) as assembler:
        send(assembler, spans_of({**RUN[0], "status": (2, "gave up")}))
        found = ended(quick)
    assert (found.status, found.error, found.terminated) == (EpisodeStatus.FAILED, "gave up", True)


def test_an_agent_that_was_killed_leaves_a_truncated_episode(quick: Store) -> None:
    """No root ever comes (agentic-ci issue 235): the trace ends, says why, and its outcome is not made up."""
    with Assembler(quick, FAST) as assembler:
        send(assembler, spans_of(*RUN[1:], resource=RESOURCE))
        found = ended(quick)
    assert (found.status, found.terminated, found.truncated) == (EpisodeStatus.COMPLETED, False, True)
    assert found.metadata["closed"] == "no root span came and the trace was quiet for 0.4 s: the agent was cut off"
    assert (found.agent_id, quick.count(Reward)) == ("svc", 0)


def test_a_root_below_a_remote_parent_ends_its_trace_when_it_was_quiet_for_long(quick: Store) -> None:
    """The caller is no agent and sends its spans elsewhere."""
    with Assembler(quick, FAST) as assembler:
        send(assembler, spans_of({**RUN[0], "parent_id": "ab" * 8, "flags": 0x300}, *RUN[1:]))
        found = ended(quick)
    assert (found.status, found.terminated, found.agent_id) == (EpisodeStatus.COMPLETED, True, "Finder")


def test_a_late_span_opens_the_trace_again(store: Store) -> None:
    with Assembler(store, FAST) as assembler:
        send(assembler, spans_of(RUN[0], RUN[1]))
        first = ended(store)
    with Assembler(store, NEVER) as assembler:
        send(assembler, spans_of(RUN[2]))
        again = store.get(Episode, trace_id(1))
        assert (again.status, again.ended_at, again.terminated) == (EpisodeStatus.RUNNING, None, False)
    with Assembler(store, FAST):
        second = ended(store)
    assert second.task_id == "t"
    assert first.task_id is None
    assert second.ended_at is not None
    assert first.ended_at is not None
    assert second.ended_at > first.ended_at
    assert kinds(store) == ["episode.started", "episode.ended", "episode.reopened", "episode.ended"]


def test_several_late_spans_do_not_hold_the_trace_open(quick: Store) -> None:
    """Its root is in the store, so a moment of quiet is enough."""
    with Assembler(quick, AssemblyOptions(grace_seconds=0.05, idle_seconds=600)) as assembler:
        send(assembler, spans_of(RUN[0]))
        ended(quick)
        send(assembler, spans_of(*RUN[1:], span(1, 4, 1), span(1, 5, 1)))
        assert ended(quick).task_id == "t"
    with Assembler(quick, NEVER) as assembler:
        send(assembler, spans_of(span(2, 1)))
    with Assembler(quick, AssemblyOptions(grace_seconds=0.05, idle_seconds=600)) as assembler:
        send(assembler, spans_of(*(span(2, number, 1) for number in (2, 3, 4))))
        assert ended(quick, 2).terminated


def test_only_received_episodes_open_again(quick: Store) -> None:
    """One that was recorded here ended when it ended, whoever sends spans with its id."""
    own = Episode(
        episode_id=trace_id(1), trace_id=trace_id(1), agent_id="own", task_id=None, status=EpisodeStatus.COMPLETED,
        terminated=True, started_at=RECEIVED, ended_at=RECEIVED,
    )  # fmt: skip
    quick.write([own])
    with Assembler(quick, FAST) as assembler:
        send(assembler, spans_of(*RUN))
        time.sleep(0.3)
    assert quick.get(Episode, trace_id(1)) == own


def test_open_traces_are_taken_up_after_a_restart(store: Store) -> None:
    with Assembler(store, NEVER) as assembler:
        send(assembler, spans_of(*RUN[1:]))
        send(assembler, spans_of(span(2, 1)))
    assert store.get(Episode, trace_id(1)).status is EpisodeStatus.RUNNING
    with Assembler(store, FAST) as assembler:
        send(assembler, spans_of(RUN[0]))
        assert (ended(store, 1).agent_id, ended(store, 1).truncated) == ("Finder", False)
        assert ended(store, 2).terminated


def test_one_trace_over_two_processes(store: Store) -> None:
    """Neither has all of it; what one adds, the other sees in the store before it closes the trace."""
    with Assembler(store, FAST) as first, Assembler(store, FAST) as second:
        send(first, spans_of(RUN[1]))
        send(second, spans_of(RUN[0]))
        send(first, spans_of(RUN[2]))
        found = ended(store)
        assert (found.agent_id, found.task_id) == ("Finder", "t")
        eventually(lambda: first.counters().num_open == second.counters().num_open == 0)
    assert (store.get(Episode, trace_id(1)).truncated, store.count(Span)) == (False, 3)


def test_one_trace_over_two_stores(sqlite_url: str) -> None:
    """As in two servers over one database: each has a writer of its own."""
    with Store.open(sqlite_url) as one, Store.open(sqlite_url) as other:
        with Assembler(one, FAST) as first, Assembler(other, FAST) as second:
            futures = [first.submit(spans_of(RUN[1])), second.submit(spans_of(RUN[0])), first.submit(spans_of(RUN[2]))]
            futures += [second.submit(spans_of(raw)) for raw in RUN]
            for future in futures:
                future.result(PATIENCE_SECONDS)
            assert eventually(lambda: first.counters().num_open == second.counters().num_open == 0)
        found = one.get(Episode, trace_id(1))
        assert (found.agent_id, found.task_id, found.truncated, one.count(Span)) == ("Finder", "t", False, 3)


def test_what_joins_later_can_be_searched(quick: Store) -> None:
    """Words of a span that changes are taken out of the index and those of the whole one put in."""

    def found(text: str) -> int:
        catch_up(quick)
        query = select(func.count()).select_from(matches("sqlite", parse_query(text)))
        return quick.read(lambda connection: connection.execute(query).scalar_one())

    with Assembler(quick, NEVER) as assembler:
        send(assembler, spans_of(RUN[0], span(1, 2, 1, attributes=CHAT)))
        assert found("tangerine") == 0
        said = '[{"role": "user", "parts": [{"type": "text", "content": "tangerine"}]}]'
        send(assembler, logs_of(log(1, 2, DETAILS, {"gen_ai.input.messages": said})))
        assert found("tangerine") == 1


def test_a_closed_assembler_takes_nothing(quick: Store) -> None:
    assembler = Assembler(quick, FAST)
    assembler.start()
    assembler.close()
    with pytest.raises(ConflictError, match="closed"):
        assembler.submit(spans_of(*RUN))


def test_more_than_may_wait_is_refused_for_now(quick: Store) -> None:
    assembler = Assembler(quick, AssemblyOptions(max_waiting=3))  # not started: nothing is written
    waiting = assembler.submit(spans_of(*RUN))
    with pytest.raises(UnreachableError, match="send it again later"):
        assembler.submit(spans_of(RUN[0]))
    assembler.close()
    with pytest.raises(ConflictError):
        waiting.result(PATIENCE_SECONDS)


def test_a_store_that_is_gone_is_told_to_who_waits(quick: Store) -> None:
    with Assembler(quick, FAST) as assembler:
        quick.close()
        with pytest.raises((ConflictError, StoreError)):
            send(assembler, spans_of(*RUN))
        assert assembler.counters().last_error


def test_what_cannot_be_stored_fails_alone(quick: Store) -> None:
    bad = spans_of(span(2, 1))
    object.__getattribute__(bad[0].span, "attributes")["x"] = object()
    assembler = Assembler(quick, FAST)
    futures = [assembler.submit(each) for each in (spans_of(RUN[0]), bad, spans_of(RUN[1]))]
    with assembler:
        for future in (futures[0], futures[2]):
            future.result(PATIENCE_SECONDS)
        assert futures[1].exception(PATIENCE_SECONDS) is not None
    assert quick.count(Span) == 2


# ---------------------------------------------------------------- content that comes apart


@pytest.mark.parametrize("log_first", [True, False])
def test_content_in_a_log_record_joins_its_span(store: Store, log_first: bool) -> None:
    """event_only capture: the span has the figures, the log record what was said. Either may come first."""
    answer = {"gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "hello"}]}]}
    parts = [spans_of(RUN[0], span(1, 2, 1, attributes=CHAT)), logs_of(log(1, 2, DETAILS, {**CHAT, **SAID, **answer}))]
    with Assembler(store, FAST) as assembler:
        for part in reversed(parts) if log_first else parts:
            send(assembler, part)
            send(assembler, part)
        found = ended(store)
    assert (found.agent_id, found.terminated, store.count(Span)) == ("Finder", True, 2)
    call = store.get(Span, ours(1, 2))
    assert call.started_at < call.ended_at
    assert not {PARTIAL, "duration_unknown"} & call.attributes.keys()
    (step,) = steps_of(store.iterate(Span))
    assert step.messages == [message("user", text_part("hi"))]
    assert step.output == message("assistant", text_part("hello"))


def test_content_of_a_call_whose_span_never_comes_is_kept(quick: Store) -> None:
    with Assembler(quick, FAST) as assembler:
        send(assembler, logs_of(log(1, 2, DETAILS, {**CHAT, **SAID})))
        found = ended(quick)
    assert found.truncated
    (step,) = steps_of(quick.iterate(Span))
    assert step.messages == [message("user", text_part("hi"))]
    assert quick.get(Span, ours(1, 2)).attributes[PARTIAL] == "log"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_messages_in_log_records_of_their_own(quick: Store, order: tuple[int, ...]) -> None:
    parts = [
        logs_of(log(1, 2, "gen_ai.user.message", {}, {"content": "hi"}, T0)),
        spans_of(RUN[0], span(1, 2, 1, attributes=CHAT)),
        logs_of(log(1, 2, "gen_ai.choice", {}, {"message": {"content": "hello"}}, T0 + SECOND)),
    ]
    with Assembler(quick, FAST) as assembler:
        for index in order:
            send(assembler, parts[index])
            send(assembler, parts[index])
        ended(quick)
    (step,) = steps_of(quick.iterate(Span))
    assert step.messages == [message("user", text_part("hi"))]
    assert step.output == message("assistant", text_part("hello"))


def test_a_span_that_is_sent_at_its_start_and_at_its_end(quick: Store) -> None:
    with Assembler(quick, FAST) as assembler:
        send(assembler, spans_of({**RUN[0], "end": 0}))
        assert quick.get(Span, ours(1, 1)).attributes[PARTIAL] == "open"
        send(assembler, spans_of(*RUN))
        assert ended(quick).terminated
    whole = quick.get(Span, ours(1, 1))
    assert PARTIAL not in whole.attributes
    assert whole.ended_at > whole.started_at


# ---------------------------------------------------------------- scores


@pytest.mark.parametrize("score_first", [True, False])
def test_a_score_of_the_root_is_one_of_the_episode(quick: Store, score_first: bool) -> None:
    parts = [spans_of(*RUN), logs_of(log(1, 1, RESULT, SCORE), log(1, 2, RESULT, SCORE))]
    with Assembler(quick, FAST) as assembler:
        for part in reversed(parts) if score_first else parts:
            send(assembler, part)
            send(assembler, part)
        ended(quick)
    found = {each.span_id: each for each in quick.iterate(Reward)}
    assert found.keys() == {None, ours(1, 2)}
    assert {(each.episode_id, each.value) for each in found.values()} == {(trace_id(1), 1.0)}


@pytest.mark.parametrize("score_first", [True, False])
@pytest.mark.parametrize("trace", [1, None], ids=["of the trace", "of no trace"])
def test_a_score_that_names_a_response_finds_its_call(store: Store, score_first: bool, trace: int | None) -> None:
    link = {"agentlightning.link.0.key_match": "gen_ai.response.id", "agentlightning.link.0.value_match": "r1"}
    lightning = span(1, 9, 1, attributes={"agentlightning.reward.0.value": 1.0, **link})
    named = logs_of(log(None, None, RESULT, {**SCORE, "gen_ai.response.id": "r1"}))
    parts = [spans_of(*RUN), named if trace is None else spans_of(lightning)]
    with Assembler(store, FAST) as assembler:
        for part in reversed(parts) if score_first else parts:
            send(assembler, part)
        ended(store)
    (found,) = store.iterate(Reward)
    assert (found.episode_id, found.span_id, found.value) == (trace_id(1), ours(1, 2), 1.0)


def test_a_score_of_an_unknown_response_names_it(quick: Store) -> None:
    with Assembler(quick, FAST) as assembler:
        send(assembler, logs_of(log(None, None, RESULT, {**SCORE, "gen_ai.response.id": "r9"})))
    (found,) = quick.iterate(Reward)
    assert (found.episode_id, found.span_id) == ("response:r9", "response:r9")


# ---------------------------------------------------------------- who did it


@pytest.mark.parametrize(
    ("resource", "attributes", "agent"),
    [
        ({"service.name": "svc"}, {}, "svc"),
        ({"service.name": "unknown_service:python"}, {}, "agent"),
        ({}, {}, "agent"),
        ({"service.name": "svc", "gen_ai.agent.name": "Named"}, {}, "Named"),
        ({"service.name": "svc"}, {"agent.name": "Own"}, "Own"),
        ({"service.name": "s" * 999}, {}, "s" * 256),
    ],
)
def test_whose_run_it_is(sqlite_url: str, resource: Raw, attributes: Raw, agent: str) -> None:
    with Store.open(sqlite_url) as store, Assembler(store, FAST) as assembler:
        send(assembler, spans_of(span(1, 1, attributes=attributes), resource=resource))
        assert ended(store).agent_id == agent
        assert agent in {each.agent_id for each in store.iterate(Agent)}


def test_the_outermost_agent_is_the_one(sqlite_url: str) -> None:
    inner = span(1, 2, 1, attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "Inner"})
    with Store.open(sqlite_url) as store, Assembler(store, FAST) as assembler:
        send(assembler, spans_of(inner))
        send(assembler, spans_of(RUN[0]))
        assert ended(store).agent_id == "Finder"


@pytest.mark.parametrize(
    "resource", [{"learnloop.task_id": "t9", "learnloop.attempt": "3"}, {"task.id": "t9", "task.attempt": 3}]
)
def test_the_task_may_be_said_by_the_resource(sqlite_url: str, resource: Raw) -> None:
    """As in OTEL_RESOURCE_ATTRIBUTES, where nobody may change the agent."""
    with Store.open(sqlite_url) as store, Assembler(store, FAST) as assembler:
        send(assembler, spans_of(span(1, 1), resource=resource))
        found = ended(store)
    assert (found.task_id, found.attempt) == ("t9", 3)


# ---------------------------------------------------------------- any order, any split


POOL = [
    *RUN,
    span(1, 4, 2, attributes={"gen_ai.agent.name": "Inner"}, events=[event(RESULT, SCORE)]),
    span(2, 1, attributes={"gen_ai.conversation.id": "c2"}, status=(2, "no")),
    span(2, 2, 1, start=T0 - SECOND, end=T0),
    span(3, 7, 6),
]
LOGS = [
    log(1, 2, DETAILS, {"gen_ai.output.messages": "[]", "other": 1}),
    log(1, 1, RESULT, SCORE),
    log(2, 2, RESULT, {**SCORE, "gen_ai.evaluation.name": "x"}),
]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("reference") / "all.db"
    with Store.open(f"sqlite:///{path}") as store, Assembler(store, FAST) as assembler:
        send(assembler, [*spans_of(*POOL), *logs_of(*LOGS)])
        return _settled(store)


def _settled(store: Store) -> dict[str, Any]:
    for trace in (1, 2, 3):
        ended(store, trace)
    return {
        "episodes": {each.episode_id: each for each in store.iterate(Episode)},
        "spans": {each.span_id: each for each in store.iterate(Span)},
        "rewards": {each.reward_id: each for each in store.iterate(Reward)},
    }


def test_content_that_comes_with_a_span_sent_again_is_kept(reference: dict[str, Any]) -> None:
    items = [*(spans_of(raw) for raw in POOL), *(logs_of(raw) for raw in LOGS)]
    with Store.open("sqlite:///:memory:") as store, Assembler(store, FAST) as assembler:
        for request in ([0], [1, 2], [3, 4, 5], [6, 8], [9], [7, 1]):
            send(assembler, [each for index in request for each in items[index]])
        assert _settled(store) == reference


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_order_and_split_gives_the_same_records(data: st.DataObject, reference: dict[str, Any]) -> None:
    items = [*(spans_of(raw) for raw in POOL), *(logs_of(raw) for raw in LOGS)]
    order = data.draw(st.permutations(range(len(items))))
    again = data.draw(st.lists(st.sampled_from(range(len(items))), max_size=3))
    requests: list[list[Mapped]] = [[]]
    for index in [*order, *again]:
        if data.draw(st.booleans()):
            requests.append([])
        requests[-1].extend(items[index])
    with Store.open("sqlite:///:memory:") as store, Assembler(store, FAST) as assembler:
        for request in requests:
            send(assembler, request)
        found = _settled(store)
    assert found == reference
