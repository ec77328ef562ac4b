"""learnloop.traces.recording.recorder: spans find their parents and capture never disturbs the agent."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from learnloop.core.errors import UsageError
from learnloop.core.records import EpisodeStatus, Record, SpanStatus
from learnloop.traces.recording.instrument import instrument
from learnloop.traces.recording.recorder import Recorder
from tests.traces.sink import Sink


def test_spans_nest_and_belong_to_the_episode(recorder: Recorder, sink: Sink) -> None:
    with recorder.episode(task_id="t", attempt=2, metadata={"a": 1}) as episode:
        with recorder.span("outer", "chat"), recorder.span("inner", "execute_tool", {"x": 1}):
            pass
        with recorder.span("second"):
            pass
    spans = sink.spans()
    assert spans["inner"].parent_id == spans["outer"].span_id
    assert spans["outer"].parent_id == spans["second"].parent_id == spans["agent"].span_id
    assert spans["agent"].parent_id is None
    assert {span.trace_id for span in spans.values()} == {episode.trace_id}
    assert {span.episode_id for span in spans.values()} == {episode.episode_id}
    assert spans["inner"].attributes == {"x": 1}
    started, ended = sink.episodes()
    assert (started.status, started.ended_at) == (EpisodeStatus.RUNNING, None)
    assert (ended.status, ended.terminated, ended.truncated) == (EpisodeStatus.COMPLETED, True, False)
    assert (ended.task_id, ended.attempt, ended.metadata) == ("t", 2, {"a": 1})
    assert ended.started_at == started.started_at <= spans["outer"].started_at <= spans["outer"].ended_at


def test_an_error_is_recorded_and_goes_on(recorder: Recorder, sink: Sink) -> None:
    with pytest.raises(ValueError, match="boom"), recorder.episode(), recorder.span("tool"):
        raise ValueError("boom")
    assert sink.spans()["tool"].status is SpanStatus.ERROR
    assert sink.spans()["tool"].error == "ValueError: boom"
    assert (sink.episodes()[-1].status, sink.episodes()[-1].error) == (EpisodeStatus.FAILED, "ValueError: boom")


def test_truncated_is_not_terminated(recorder: Recorder, sink: Sink) -> None:
    with recorder.episode() as episode:
        episode.truncate()
    assert (sink.episodes()[-1].terminated, sink.episodes()[-1].truncated) == (False, True)


def test_a_span_outside_of_an_episode_makes_one(recorder: Recorder, sink: Sink) -> None:
    with recorder.span("lonely", "execute_tool"):
        pass
    assert sink.spans()["lonely"].episode_id == sink.episodes()[-1].episode_id
    assert recorder.current is None


def test_an_episode_inside_another_is_a_trace_of_its_own(recorder: Recorder, sink: Sink) -> None:
    with recorder.episode() as outer:
        with recorder.episode() as inner:
            assert recorder.current is inner
        assert recorder.current is outer
    assert inner.trace_id != outer.trace_id
    assert len({episode.episode_id for episode in sink.episodes()}) == 2


def test_an_episode_is_one_try(recorder: Recorder) -> None:
    with recorder.episode() as episode:
        pass
    with pytest.raises(UsageError, match="begun before"), episode:
        pass


def test_a_thousand_concurrent_runs_do_not_mix(recorder: Recorder, sink: Sink) -> None:
    async def run(number: int) -> tuple[str, str]:
        with recorder.episode(task_id=str(number)) as episode:
            await asyncio.sleep(0)
            with recorder.span(f"tool-{number}"):
                await asyncio.sleep(0)
        return f"tool-{number}", episode.episode_id

    async def run_all() -> list[tuple[str, str]]:
        return await asyncio.gather(*(run(number) for number in range(1000)))

    expected = dict(asyncio.run(run_all()))
    spans = sink.spans()
    assert {name: spans[name].episode_id for name in expected} == expected


def test_threads_start_without_a_parent_unless_they_copy_the_context(recorder: Recorder, sink: Sink) -> None:
    def work(name: str) -> None:
        with recorder.span(name):
            pass

    with recorder.episode() as episode:
        context = contextvars.copy_context()
        for target, args in ((work, ("alone",)), (context.run, (work, "copied"))):
            thread = threading.Thread(target=target, args=args)
            thread.start()
            thread.join()
    assert sink.spans()["copied"].episode_id == episode.episode_id
    assert sink.spans()["alone"].episode_id != episode.episode_id


def test_a_sink_that_fails_is_counted_and_the_agent_goes_on() -> None:
    def broken(record: Record) -> bool:
        raise RuntimeError("no disk")

    recorder = Recorder(broken, "agent")
    with recorder.episode(), recorder.span("tool"):
        pass
    counters = recorder.counters()
    assert counters.num_failures == 4  # two of the episode, two spans
    assert counters.last_failure == "RuntimeError: no disk"


def test_an_object_that_cannot_be_read_is_said(recorder: Recorder, sink: Sink) -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no str")

    with pytest.raises(BrokenError), recorder.episode(), recorder.span("tool") as span:
        span.set(good=1, bad=Broken())
        raise BrokenError
    tool = sink.spans()["tool"]
    assert tool.attributes == {"good": 1, "bad": "(could not be recorded: RuntimeError)"}
    assert tool.error == "BrokenError: (its message could not be read: RuntimeError)"
    assert recorder.counters().num_failures == 1


def test_attributes_are_kept_as_they_were(recorder: Recorder, sink: Sink) -> None:
    messages: list[Any] = ["first"]
    with recorder.span("chat") as span:
        span.set(messages=messages)
        messages.append("second")
    assert sink.spans()["chat"].attributes == {"messages": ["first"]}


def test_two_agents_in_one_program_do_not_mix(sink: Sink) -> None:
    first, second = Recorder(sink, "first"), Recorder(sink, "second")
    with first.episode() as outer, second.span("tool"):
        pass
    assert sink.spans()["tool"].trace_id != outer.trace_id
    assert {episode.agent_id for episode in sink.episodes()} == {"first", "second"}


def test_ending_twice_is_counted_and_changes_nothing(recorder: Recorder, sink: Sink) -> None:
    with pytest.raises(ValueError, match="the agent's own"), recorder.episode() as episode:
        episode.end()
        raise ValueError("the agent's own")
    assert [record.status for record in sink.episodes()] == [EpisodeStatus.RUNNING, EpisodeStatus.COMPLETED]
    assert recorder.counters().num_failures == 1


@pytest.mark.parametrize("metadata", [[1], np.zeros(2), "text", 3])
def test_metadata_of_any_kind_is_recorded(recorder: Recorder, sink: Sink, metadata: Any) -> None:
    with recorder.episode(metadata=metadata):
        pass
    assert "metadata" in sink.episodes()[-1].metadata


def test_one_argument_that_cannot_be_read_does_not_hide_the_others(recorder: Recorder, sink: Sink) -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    tool = instrument(recorder, lambda good, bad: good, operation="execute_tool", name="tool")
    assert tool(1, Broken()) == 1
    assert sink.spans()["tool"].attributes["input"] == {"good": 1, "bad": "(could not be recorded: RuntimeError)"}


def test_what_a_generator_yields_is_kept_as_it_was(recorder: Recorder, sink: Sink) -> None:
    def count() -> Generator[dict[str, int], None, None]:
        reused = {"i": 0}
        for number in range(3):
            reused["i"] = number
            yield reused

    list(instrument(recorder, count, operation="execute_tool")())
    assert sink.spans()["count"].attributes["output"] == [{"i": 0}, {"i": 1}, {"i": 2}]
