"""Streams and responses that the program reads itself, whenever and however it likes."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from learnloop.core.records import Span, SpanStatus
from learnloop.traces.conversation.conversations import Conversations
from learnloop.traces.conversation.dialects import DIALECTS
from learnloop.traces.conversation.messages import text_of
from learnloop.traces.conversation.steps import steps_of
from learnloop.traces.recording.clients import calls as calls_module
from learnloop.traces.recording.clients.calls import ModelCall
from learnloop.traces.recording.clients.streams import watch
from learnloop.traces.recording.clients.wrapping import wrap
from learnloop.traces.recording.recorder import Recorder
from tests.loopback import Answer, LoopbackServer, ToolCall
from tests.traces.sink import Sink
from tests.waiting import PATIENCE_SECONDS

HI = [{"role": "user", "content": "hi there"}]


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as started:
        yield started


@pytest.fixture
def client(server: LoopbackServer, recorder: Recorder) -> openai.OpenAI:
    made = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
    server.clients.append(made)
    return wrap(recorder, made)


def spans(sink: Sink) -> list[Span]:
    return [each for each in sink.records if isinstance(each, Span) and each.operation == "chat"]


def said(span: Span) -> str:
    (answer,) = span.attributes["output"]
    return text_of(answer)


@pytest.mark.parametrize("how", ["parse", "read", "json", "text"])
def test_a_response_that_is_read_later(client: openai.OpenAI, sink: Sink, recorder: Recorder, how: str) -> None:
    with recorder.episode(), client.chat.completions.with_streaming_response.create(model="m", messages=HI) as response:
        getattr(response, how)()
    (span,) = spans(sink)
    assert said(span) == "echo: hi there"
    assert span.attributes["usage"] == {"input_tokens": 5, "output_tokens": 2}


@pytest.mark.parametrize("how", ["parse", "read", "iter_bytes", "nothing"])
def test_a_stream_that_is_opened_later(client: openai.OpenAI, sink: Sink, recorder: Recorder, how: str) -> None:
    opened = client.chat.completions.with_streaming_response
    with recorder.episode(), opened.create(model="m", messages=HI, stream=True) as response:
        if how == "parse":
            stream = response.parse()
            assert type(stream) is openai.Stream
            list(stream)
        elif how == "read":
            response.read()
        elif how == "iter_bytes":
            list(response.iter_bytes())
    (span,) = spans(sink)
    assert ("output" in span.attributes) == (how in ("parse", "read"))
    assert ("incomplete" in span.attributes) == (how in ("iter_bytes", "nothing"))


def test_asynchronous_responses_that_are_read_later(server: LoopbackServer, sink: Sink, recorder: Recorder) -> None:
    """OpenAI's Agents SDK reads its streams like this."""
    server.script = [Answer(tool_calls=[ToolCall("add", {"a": 1}, "c1"), ToolCall("add", {"a": 1}, "c2")]), "done"]

    async def run() -> None:
        client = wrap(recorder, openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0))
        given: list[Any] = [{"role": "user", "content": "hi"}]
        for _ in range(2):
            opened = client.responses.with_streaming_response.create(model="m", input=given, stream=True)
            async with opened as response:
                async for event in await response.parse():
                    if event.type == "response.completed":
                        given += [item.model_dump() for item in event.response.output]
            given += [{"type": "function_call_output", "call_id": each, "output": "1"} for each in ("c1", "c2")]
        await client.close()

    with recorder.episode():
        asyncio.run(run())
    first, second = steps_of(spans(sink))
    assert [call.call_id for call in first.tool_calls] == ["c1", "c2"]
    assert [call.result for call in first.tool_calls] == ["1", "1"]
    assert [each["role"] for each in second.messages] == ["tool", "tool"], "parallel calls are one answer, said before"


def test_a_raw_response_that_cannot_be_parsed_is_the_programs_own(sink: Sink, recorder: Recorder) -> None:
    transport = httpx.MockTransport(
        lambda request: httpx.Response(200, headers={"content-type": "application/json"}, content=b"{cut off")
    )
    plain = openai.OpenAI(api_key="k", base_url="http://x/v1", http_client=httpx.Client(transport=transport))
    with recorder.episode(), plain:
        raw = wrap(recorder, plain).chat.completions.with_raw_response.create(model="m", messages=HI)
        assert raw.content == b"{cut off"
        with pytest.raises(json.JSONDecodeError):
            raw.parse()
        del raw
        gc.collect()
    (span,) = spans(sink)
    assert "output" not in span.attributes


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError(), SystemExit(3), TimeoutError("late")])
def test_whatever_ends_a_stream_passes_through(sink: Sink, recorder: Recorder, error: BaseException) -> None:
    def stream() -> Iterator[Any]:
        yield {"choices": [{"index": 0, "delta": {"content": "one"}}]}
        raise error

    with recorder.episode():
        call = ModelCall(recorder, DIALECTS["/chat/completions"], {"model": "m", "messages": HI})
        with pytest.raises(type(error)) as caught:
            list(watch(stream(), call))
    assert caught.value is error
    (span,) = spans(sink)
    assert (span.status, said(span)) == (SpanStatus.ERROR, "one")


def test_a_stream_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch, sink: Sink, recorder: Recorder) -> None:
    monkeypatch.setattr(calls_module, "MAX_CHUNKS", 10)
    with recorder.episode():
        call = ModelCall(recorder, DIALECTS["/chat/completions"], {"model": "m", "messages": HI})
        for number in range(50):
            call.chunk({"choices": [{"index": 0, "delta": {"content": f"{number} "}}]})
        call.chunk({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 50}})
        call.end_stream()
    (span,) = spans(sink)
    assert span.attributes["num_chunks"] == 51
    assert span.attributes["num_chunks_left_out"] == 41
    assert span.attributes["usage"] == {"input_tokens": 3, "output_tokens": 50}, "the last chunk stays"


def test_a_long_stream_costs_time_in_proportion(recorder: Recorder) -> None:
    """A text that is added to piece by piece would be copied each time."""

    def seconds(number: int) -> float:
        chunk = {"choices": [{"index": 0, "delta": {"content": "x" * 200}}]}
        chunks = [chunk] * number
        begun = time.thread_time()
        DIALECTS["/chat/completions"].join_chunks(chunks)
        return time.thread_time() - begun

    few = min(seconds(2_000) for _ in range(3))
    assert min(seconds(20_000) for _ in range(3)) < 25 * few


def test_a_forgotten_stream_may_end_in_the_middle_of_another_call() -> None:
    """The garbage collector ends it wherever it runs: in the same thread, while the conversations are looked at."""
    conversations = Conversations()
    ended = threading.Event()

    class Mark(str):
        def __hash__(self) -> int:
            if not ended.is_set():
                ended.set()
                conversations.end(["x"], "y")  # as a finalizer does
            return str.__hash__(self)

    def look() -> None:
        with conversations._lock:
            conversations.begin([Mark("m")])

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    assert conversations.begin(["x", "y"]) == 2
