"""learnloop.traces.recording.instrument: functions, coroutines and generators keep their behaviour and become spans."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest

from learnloop.core.errors import UsageError
from learnloop.core.records import SpanStatus
from learnloop.traces.recording.instrument import instrument
from learnloop.traces.recording.recorder import Recorder
from tests.traces.sink import Sink


@pytest.fixture
def tool(recorder: Recorder) -> Callable[..., Any]:
    return functools.partial(instrument, recorder, operation="execute_tool")


def test_function(tool: Callable[..., Any], sink: Sink) -> None:
    @tool
    def add(a: int, b: int = 1, *rest: int, **named: int) -> int:
        """Adds."""
        return a + b

    assert (add(1), add(1, 2, 3, x=4), add.__name__, add.__doc__) == (2, 3, "add", "Adds.")
    spans = [record for record in sink.records if type(record).__name__ == "Span"]
    assert spans[0].attributes == {"input": {"a": 1}, "output": 2}  # type: ignore[attr-defined]
    assert spans[1].attributes == {"input": {"a": 1, "b": 2, "args": [3], "x": 4}, "output": 3}  # type: ignore[attr-defined]


def test_input_is_kept_as_it_was_at_the_call(tool: Callable[..., Any], sink: Sink) -> None:
    @tool
    def drain(items: list[int]) -> None:
        items.clear()

    drain([1, 2])
    assert sink.spans()["drain"].attributes["input"] == {"items": [1, 2]}


def test_method_leaves_out_self(tool: Callable[..., Any], sink: Sink) -> None:
    class Agent:
        @tool
        def act(self, x: int) -> int:
            return x

    assert Agent().act(3) == 3
    assert sink.spans()["act"].attributes["input"] == {"x": 3}


def test_content_can_be_left_out(recorder: Recorder, sink: Sink) -> None:
    secret = instrument(recorder, lambda x: x, operation="execute_tool", name="secret", content=False)
    assert secret("password") == "password"
    assert sink.spans()["secret"].attributes == {}


def test_coroutine(tool: Callable[..., Any], sink: Sink) -> None:
    @tool
    async def fetch(url: str) -> str:
        await asyncio.sleep(0)
        return url.upper()

    assert inspect.iscoroutinefunction(fetch)
    assert asyncio.run(fetch("a")) == "A"
    assert sink.spans()["fetch"].attributes == {"input": {"url": "a"}, "output": "A"}


def test_cancelled_coroutine_is_an_error(tool: Callable[..., Any], sink: Sink) -> None:
    @tool
    async def wait() -> None:
        await asyncio.sleep(60)

    async def cancel() -> None:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel())
    assert sink.spans()["wait"].status is SpanStatus.ERROR


def test_generator_is_current_only_while_it_runs(recorder: Recorder, tool: Callable[..., Any], sink: Sink) -> None:
    @tool
    def words() -> Generator[str, str, str]:
        with recorder.span("inside"):
            pass
        got = yield "one"
        yield got
        return "end"

    assert inspect.isgeneratorfunction(words)
    with recorder.episode() as episode:
        generator = words()
        assert next(generator) == "one"
        assert recorder.current is episode
        with recorder.span("between"):
            pass
        assert generator.send("two") == "two"
        with pytest.raises(StopIteration) as stop:
            next(generator)
    assert stop.value.value == "end"
    spans = sink.spans()
    assert spans["inside"].parent_id == spans["words"].span_id
    assert spans["between"].parent_id == episode.span_id
    assert spans["words"].attributes["output"] == ["one", "two"]


def test_generator_takes_what_is_thrown(tool: Callable[..., Any], sink: Sink) -> None:
    @tool
    def careful() -> Generator[str, None, None]:
        try:
            yield "one"
        except KeyError:
            yield "caught"

    generator = careful()
    next(generator)
    assert generator.throw(KeyError()) == "caught"
    generator.close()
    assert sink.spans()["careful"].status is SpanStatus.OK


def test_generator_that_is_left_early_ends_well(tool: Callable[..., Any], sink: Sink) -> None:
    closed = []

    @tool
    def count() -> Generator[int, None, None]:
        try:
            yield from range(10)
        finally:
            closed.append(True)

    for number in count():
        if number == 2:
            break
    assert closed == [True]
    assert sink.spans()["count"].status is SpanStatus.OK
    assert sink.spans()["count"].attributes["output"] == [0, 1, 2]


def test_generator_that_fails(tool: Callable[..., Any], sink: Sink) -> None:
    @tool
    def broken() -> Generator[int, None, None]:
        yield 1
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        list(broken())
    assert sink.spans()["broken"].error == "ValueError: boom"


def test_async_generator(recorder: Recorder, tool: Callable[..., Any], sink: Sink) -> None:
    @tool
    async def stream() -> AsyncGenerator[str, str]:
        with recorder.span("inside"):
            await asyncio.sleep(0)
        got = yield "one"
        try:
            yield got
        except KeyError:
            yield "caught"

    async def consume() -> list[str]:
        with recorder.episode() as episode:
            generator = stream()
            first = await anext(generator)
            assert recorder.current is episode
            found = [first, await generator.asend("two"), await generator.athrow(KeyError())]
            await generator.aclose()
            return found

    assert inspect.isasyncgenfunction(stream)
    assert asyncio.run(consume()) == ["one", "two", "caught"]
    spans = sink.spans()
    assert spans["inside"].parent_id == spans["stream"].span_id
    assert spans["stream"].attributes["output"] == ["one", "two", "caught"]
    assert spans["stream"].status is SpanStatus.OK


def test_async_generators_of_many_tasks_do_not_mix(recorder: Recorder, tool: Callable[..., Any], sink: Sink) -> None:
    @tool
    async def stream(number: int) -> AsyncGenerator[int, None]:
        for _ in range(3):
            await asyncio.sleep(0)
            yield number

    async def run(number: int) -> str:
        with recorder.episode() as episode:
            async for _ in stream(number):
                await asyncio.sleep(0)
        return episode.episode_id

    async def run_all() -> list[str]:
        return await asyncio.gather(*(run(number) for number in range(100)))

    episodes = asyncio.run(run_all())
    found = {
        record.attributes["input"]["number"]: record.episode_id  # type: ignore[attr-defined]
        for record in sink.records
        if getattr(record, "name", "") == "stream"
    }
    assert found == dict(enumerate(episodes))


@pytest.mark.parametrize("thing", [3, object(), dict])
def test_what_is_no_function_is_refused(recorder: Recorder, thing: Any) -> None:
    with pytest.raises(UsageError, match="no function"):
        instrument(recorder, thing, operation="execute_tool")
