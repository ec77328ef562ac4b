"""The real clients of OpenAI and Anthropic, wrapped: they stay what they are, and what they do is recorded."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import anthropic
import openai
import pydantic
import pytest
from openai._base_client import SyncAPIClient
from openai.resources.chat import Chat
from openai.resources.chat.chat import ChatWithRawResponse

from learnloop.core.errors import ConflictError, UsageError
from learnloop.core.records import Episode, EpisodeStatus, Span, SpanStatus
from learnloop.traces.conversation.messages import text_of, tool_calls_of
from learnloop.traces.conversation.steps import steps_of
from learnloop.traces.recording.clients.wrapping import wrap
from learnloop.traces.recording.recorder import Recorder
from tests.loopback import Answer, Fault, LoopbackServer, ToolCall
from tests.traces.sink import Sink

HI = [{"role": "user", "content": "hi there"}]
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as started:
        yield started


@pytest.fixture
def plain_client(server: LoopbackServer) -> openai.OpenAI:
    client = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
    server.clients.append(client)
    return client


@pytest.fixture
def client(plain_client: openai.OpenAI, recorder: Recorder) -> openai.OpenAI:
    return wrap(recorder, plain_client)


@pytest.fixture
def claude(server: LoopbackServer, recorder: Recorder) -> anthropic.Anthropic:
    made = anthropic.Anthropic(base_url=server.root, api_key="k", max_retries=0)
    server.clients.append(made)
    return wrap(recorder, made)


def calls(sink: Sink) -> list[Span]:
    spans = [each for each in sink.records if isinstance(each, Span)]
    return [each for each in spans if each.operation != "invoke_agent"]


def said(span: Span) -> str:
    (answer,) = span.attributes["output"]
    return text_of(answer)


def test_the_client_stays_what_it_was(
    plain_client: openai.OpenAI, client: openai.OpenAI, sink: Sink, recorder: Recorder
) -> None:
    """Neither the class nor the client itself is changed: what goes through them is not recorded."""
    assert type(client) is openai.OpenAI
    assert client is not plain_client
    assert plain_client.chat.completions.create(model="m", messages=HI).choices[0].message.content == "echo: hi there"
    assert sink.records == []
    with recorder.episode():
        answer = client.chat.completions.create(model="m", messages=HI)
    assert type(answer).__name__ == "ChatCompletion"
    assert len(calls(sink)) == 1


def test_an_answer_with_its_tokens(client: openai.OpenAI, sink: Sink, recorder: Recorder) -> None:
    with recorder.episode() as episode:
        client.chat.completions.create(model="m", messages=HI, temperature=0.5)
    (span,) = calls(sink)
    assert (span.operation, span.name, span.status, span.episode_id) == ("chat", "m", "ok", episode.episode_id)
    assert span.parent_id == episode.span_id
    assert span.attributes["usage"] == {"input_tokens": 5, "output_tokens": 2}
    assert span.attributes["request"] == {"temperature": 0.5}
    assert span.attributes["finish_reasons"] == ["stop"]
    assert [text_of(each) for each in span.attributes["input"]] == ["hi there"]
    assert said(span) == "echo: hi there"


def test_a_conversation_is_recorded_once(client: openai.OpenAI, sink: Sink, recorder: Recorder) -> None:
    messages: list[Any] = [*HI]
    with recorder.episode():
        for number in range(3):
            answer = client.chat.completions.create(model="m", messages=messages)
            messages += [answer.choices[0].message, {"role": "user", "content": f"question {number}"}]
    inputs = [[text_of(each) for each in span.attributes["input"]] for span in calls(sink)]
    assert inputs == [["hi there"], ["question 0"], ["question 1"]]
    assert [span.attributes.get("input_offset") for span in calls(sink)] == [None, 2, 4]
    assert [len(step.messages) for step in steps_of(calls(sink))] == [1, 1, 1]


def test_tools(client: openai.OpenAI, server: LoopbackServer, sink: Sink, recorder: Recorder) -> None:
    server.script = [Answer(tool_calls=[ToolCall("add", {"a": 1})])]
    with recorder.episode():
        first = client.chat.completions.create(model="m", messages=HI, tools=[ADD])
        asked = first.choices[0].message.tool_calls[0]
        with recorder.span("add", "execute_tool", {"call_id": asked.id, "input": {"a": 1}}) as tool:
            tool.set(output=2)
        result = {"role": "tool", "tool_call_id": asked.id, "content": "2"}
        client.chat.completions.create(model="m", messages=[*HI, first.choices[0].message, result], tools=[ADD])
    spans = [each for each in sink.records if isinstance(each, Span)]
    first_step, second_step = steps_of(spans)
    (call,) = first_step.tool_calls
    assert (call.name, call.arguments, call.result) == ("add", {"a": 1}, 2)
    assert [each["role"] for each in second_step.messages] == ["tool"]
    assert first_step.attributes["tools"] == [ADD]


class Sum(pydantic.BaseModel):
    total: int


def test_parsed_answers(client: openai.OpenAI, server: LoopbackServer, sink: Sink, recorder: Recorder) -> None:
    server.script = ['{"total": 4}']
    with recorder.episode():
        answer = client.chat.completions.parse(model="m", messages=HI, response_format=Sum)
    assert answer.choices[0].message.parsed == Sum(total=4)
    assert said(calls(sink)[0]) == '{"total": 4}'


def test_a_stream_keeps_its_type_and_its_chunks(client: openai.OpenAI, sink: Sink, recorder: Recorder) -> None:
    with recorder.episode():
        usage = {"include_usage": True}
        stream = client.chat.completions.create(model="m", messages=HI, stream=True, stream_options=usage)
        assert type(stream) is openai.Stream
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "echo: hi there"
    (span,) = calls(sink)
    assert said(span) == text
    assert span.attributes["usage"] == {"input_tokens": 5, "output_tokens": 2}
    assert span.attributes["num_chunks"] == len(chunks)
    assert 0 < span.attributes["time_to_first_chunk_ms"] <= (span.ended_at - span.started_at).total_seconds() * 1000
    assert "incomplete" not in span.attributes


@pytest.mark.parametrize("how", ["break", "close", "with", "unread"])
def test_a_stream_that_is_not_read_to_its_end(client: openai.OpenAI, sink: Sink, recorder: Recorder, how: str) -> None:
    with recorder.episode():
        stream = client.chat.completions.create(model="m", messages=HI, stream=True)
        if how == "with":
            with stream:
                next(iter(stream))
        elif how != "unread":
            for _ in stream:
                break
            if how == "close":
                stream.close()
        del stream
        gc.collect()
    (span,) = calls(sink)
    assert span.attributes["incomplete"] is True
    assert span.status is SpanStatus.OK
    assert ("output" in span.attributes) == (how != "unread")


def test_a_stream_that_breaks(client: openai.OpenAI, server: LoopbackServer, sink: Sink, recorder: Recorder) -> None:
    server.script = [Answer("one two three four", cut_after=3)]
    with recorder.episode(), pytest.raises(openai.APIConnectionError):
        list(client.chat.completions.create(model="m", messages=HI, stream=True))
    (span,) = calls(sink)
    assert span.status is SpanStatus.ERROR
    assert span.error is not None
    assert "APIConnectionError" in span.error
    assert said(span).startswith("one")


def test_tool_calls_of_a_stream(client: openai.OpenAI, server: LoopbackServer, sink: Sink, recorder: Recorder) -> None:
    wanted = [ToolCall("add", {"a": 1, "b": "two"}), ToolCall("sub", {"c": [3]})]
    server.script = [Answer(tool_calls=wanted)]
    with recorder.episode(), client.chat.completions.stream(model="m", messages=HI, tools=[ADD]) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls
    (answer,) = calls(sink)[0].attributes["output"]
    assert [(part["name"], part["arguments"]) for part in tool_calls_of(answer)] == [
        ("add", {"a": 1, "b": "two"}),
        ("sub", {"c": [3]}),
    ]


def test_raw_responses(client: openai.OpenAI, sink: Sink, recorder: Recorder) -> None:
    with recorder.episode():
        raw = client.chat.completions.with_raw_response.create(model="m", messages=HI)
        assert raw.status_code == 200
        assert raw.parse().choices[0].message.content == "echo: hi there"
        with client.chat.completions.with_streaming_response.create(model="m", messages=HI) as response:
            assert b"echo: hi there" in response.read()
    first, second = calls(sink)
    assert said(first) == "echo: hi there"
    assert said(second) == "echo: hi there", "also where the program reads the bytes itself"


def test_the_responses_api(client: openai.OpenAI, server: LoopbackServer, sink: Sink, recorder: Recorder) -> None:
    server.script = ["whole", Answer("in pieces"), Answer(tool_calls=[ToolCall("add", {"a": 1})])]
    with recorder.episode():
        client.responses.create(model="m", input="hi", instructions="be brief")
        for _ in client.responses.create(model="m", input="hi", stream=True):
            pass
        with client.responses.stream(model="m", input="add") as stream:
            for _ in stream:
                pass
    whole, pieces, tools = calls(sink)
    assert [each["role"] for each in whole.attributes["input"]] == ["system", "user"]
    assert [said(whole), said(pieces)] == ["whole", "in pieces"]
    assert whole.attributes["usage"]["input_tokens"] == 5
    assert [part["name"] for part in tool_calls_of(tools.attributes["output"][0])] == ["add"]


def test_options_of_a_client_are_recorded_too(client: openai.OpenAI, sink: Sink, recorder: Recorder) -> None:
    with recorder.episode():
        client.with_options(timeout=9).chat.completions.create(model="m", messages=HI)
        client.copy().chat.completions.create(model="m", messages=HI)
    assert len(calls(sink)) == 2


def test_an_error_of_the_server_reaches_the_program(
    client: openai.OpenAI, server: LoopbackServer, sink: Sink, recorder: Recorder
) -> None:
    server.script = [Fault(429)]
    with recorder.episode(), pytest.raises(openai.RateLimitError):
        client.chat.completions.create(model="m", messages=HI)
    (span,) = calls(sink)
    assert span.status is SpanStatus.ERROR
    assert span.error is not None
    assert "RateLimitError" in span.error


def test_a_call_outside_of_an_episode_is_one(client: openai.OpenAI, sink: Sink) -> None:
    client.chat.completions.create(model="m", messages=HI)
    episodes = [each for each in sink.records if isinstance(each, Episode)]
    assert [each.status for each in episodes] == [EpisodeStatus.RUNNING, EpisodeStatus.COMPLETED]
    assert [each.operation for each in calls(sink)] == ["chat"]


def test_without_content_nothing_of_what_is_said_is_kept(
    plain_client: openai.OpenAI, sink: Sink, recorder: Recorder
) -> None:
    quiet = wrap(recorder, plain_client, content=False)
    with recorder.episode():
        quiet.chat.completions.create(model="m", messages=HI, tools=[ADD])
        list(quiet.chat.completions.create(model="m", messages=HI, stream=True))
    for span in calls(sink):
        assert not {"input", "output", "tools"} & span.attributes.keys()
        assert "hi there" not in str(span)
    assert calls(sink)[0].attributes["usage"] == {"input_tokens": 5, "output_tokens": 2}


def test_anthropic(claude: anthropic.Anthropic, server: LoopbackServer, sink: Sink, recorder: Recorder) -> None:
    server.script = [
        "whole",
        "in pieces",
        "through its own stream",
        Answer("look", [ToolCall("add", {"a": 1})]),
        "beta",
    ]
    with recorder.episode():
        answer = claude.messages.create(model="c", max_tokens=9, messages=HI, system="be brief")
        assert type(answer).__name__ == "Message"
        stream = claude.messages.create(model="c", max_tokens=9, messages=HI, stream=True)
        assert isinstance(stream, anthropic.Stream)
        list(stream)
        with claude.messages.stream(model="c", max_tokens=9, messages=HI) as helper:
            assert "".join(helper.text_stream) == "through its own stream"
        with claude.messages.stream(model="c", max_tokens=9, messages=HI) as helper:
            assert helper.get_final_message().stop_reason == "tool_use"
        claude.beta.messages.create(model="c", max_tokens=9, messages=HI)
    texts = [said(span) for span in calls(sink)]
    assert texts == ["whole", "in pieces", "through its own stream", "look", "beta"]
    assert [each["role"] for each in calls(sink)[0].attributes["input"]] == ["system", "user"]
    (asked,) = tool_calls_of(calls(sink)[3].attributes["output"][0])
    assert (asked["name"], asked["arguments"]) == ("add", {"a": 1})
    assert all(span.attributes["usage"]["input_tokens"] == 5 for span in calls(sink))


def test_asynchronous_clients(server: LoopbackServer, sink: Sink, recorder: Recorder) -> None:
    async def run() -> None:
        client = wrap(recorder, openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0))
        claude = wrap(recorder, anthropic.AsyncAnthropic(base_url=server.root, api_key="k", max_retries=0))
        assert type(client) is openai.AsyncOpenAI
        with recorder.episode():
            await client.chat.completions.create(model="m", messages=HI)
            stream = await client.chat.completions.create(model="m", messages=HI, stream=True)
            assert type(stream) is openai.AsyncStream
            assert [chunk async for chunk in stream]
            async with client.chat.completions.stream(model="m", messages=HI) as helper:
                async for _ in helper:
                    pass
            async with claude.messages.stream(model="c", max_tokens=9, messages=HI) as helper:
                async for _ in helper.text_stream:
                    pass
            raw = await client.chat.completions.with_raw_response.create(model="m", messages=HI)
            assert raw.status_code == 200
        await client.close()
        await claude.close()

    asyncio.run(run())
    assert [said(span) for span in calls(sink)] == ["echo: hi there"] * 5


async def many_runs(recorder: Recorder, server: LoopbackServer, number: int) -> None:
    client = wrap(recorder, openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0))
    gate = asyncio.Semaphore(50)  # connections of the server, not of the recorder

    async def run(key: str) -> None:
        with recorder.episode(task_id=key):
            for turn in range(2):
                async with gate:
                    said = [{"role": "user", "content": f"{key} {turn}"}]
                    await client.chat.completions.create(model="m", messages=said)
                await asyncio.sleep(0)

    await asyncio.gather(*(run(f"run-{each}") for each in range(number)))
    await client.close()


@pytest.mark.slow
def test_a_thousand_runs_at_once_do_not_mix(server: LoopbackServer, sink: Sink, recorder: Recorder) -> None:
    asyncio.run(many_runs(recorder, server, 1_000))
    tasks = {each.episode_id: each.task_id for each in sink.records if isinstance(each, Episode)}
    spans = calls(sink)
    assert len(spans) == 2_000
    for span in spans:
        key = tasks[span.episode_id or ""]
        assert text_of(span.attributes["input"][0]).split()[0] == key
        assert said(span).split()[1] == key
    assert recorder.counters().num_failures == 0


class Fake:
    """A client of its own kind: methods of the known names, objects or dicts as answers."""

    def __init__(self) -> None:
        self.chat = SimpleNamespace(completions=self)

    def create(self, **request: Any) -> Any:
        if request.get("stream"):
            return (SimpleNamespace(choices=[{"index": 0, "delta": {"content": part}}]) for part in ("a", "b"))
        message = SimpleNamespace(role="assistant", content="own")
        return SimpleNamespace(id="1", choices=[SimpleNamespace(message=message, finish_reason="stop")])


def test_clients_of_other_kinds(sink: Sink, recorder: Recorder) -> None:
    client = wrap(recorder, Fake())
    assert isinstance(client, Fake)
    with recorder.episode():
        client.chat.completions.create(model="m", messages=HI)
        assert len(list(client.chat.completions.create(model="m", messages=HI, stream=True))) == 2
    assert [said(span) for span in calls(sink)] == ["own", "ab"]


class BrokenRecorder(Recorder):
    def describe(self, attributes: Any) -> dict[str, Any]:
        raise RuntimeError("no")


def test_what_cannot_be_recorded_never_reaches_the_program(plain_client: openai.OpenAI, sink: Sink) -> None:
    recorder = BrokenRecorder(sink, "a")
    client = wrap(recorder, plain_client)
    answer = client.chat.completions.create(model="m", messages=HI)
    assert answer.choices[0].message.content == "echo: hi there"
    assert list(client.chat.completions.create(model="m", messages=HI, stream=True))
    assert recorder.counters().num_failures > 0


def test_a_client_is_wrapped_once(client: openai.OpenAI, recorder: Recorder) -> None:
    for wrapped in (client, wrap(recorder, Fake())):
        with pytest.raises(ConflictError, match="wrapped already"):
            wrap(recorder, wrapped)


@pytest.mark.parametrize("what", [None, 3, object(), openai.OpenAI, {}, [openai]])
def test_what_is_no_client_is_refused(recorder: Recorder, what: Any) -> None:
    with pytest.raises(UsageError):
        wrap(recorder, what)


class OtherClient(SyncAPIClient):
    """As the clients of OpenAI's kin that make their resources when they are made (Groq's, say)."""

    def __init__(self, server: LoopbackServer) -> None:
        super().__init__(version="1", base_url=server.url, max_retries=0, timeout=60, _strict_response_validation=False)
        self.chat = Chat(self)
        self.with_raw_response = OtherClientWithRawResponse(self)


class OtherClientWithRawResponse:
    def __init__(self, client: OtherClient) -> None:
        self.chat = ChatWithRawResponse(client.chat)


def test_clients_that_hold_their_resources(server: LoopbackServer, sink: Sink, recorder: Recorder) -> None:
    plain = OtherClient(server)
    server.clients.append(plain)
    wrapped = wrap(recorder, plain)
    with recorder.episode():
        wrapped.chat.completions.create(model="m", messages=HI)
        wrapped.with_raw_response.chat.completions.create(model="m", messages=HI)
        plain.with_raw_response.chat.completions.create(model="m", messages=HI)
    assert [said(each) for each in calls(sink)] == ["echo: hi there"] * 2


class Waiting:
    """A client whose method waits, and is strict about its arguments."""

    def __init__(self) -> None:
        self.chat = SimpleNamespace(completions=self)

    async def create(self, *, model: str, messages: list[Any]) -> Any:
        return {"choices": [{"index": 0, "message": {"role": "assistant", "content": "own"}, "finish_reason": "stop"}]}


def test_a_call_that_its_client_refuses_has_failed(sink: Sink, recorder: Recorder) -> None:
    client = wrap(recorder, Waiting())

    async def ask() -> None:
        await client.chat.completions.create(model="m", messages=HI)
        with pytest.raises(TypeError, match="nope"):
            await client.chat.completions.create(model="m", messages=HI, nope=1)  # type: ignore[call-arg]

    with recorder.episode():
        asyncio.run(ask())
    first, second = calls(sink)
    assert (said(first), first.status) == ("own", SpanStatus.OK)
    assert second.status is SpanStatus.ERROR
    assert "nope" in str(second.error)


class Fixed:
    __slots__ = ()

    def create(self, **given: Any) -> Any:
        return {}

    @property
    def messages(self) -> Any:
        return self


@pytest.mark.parametrize("client", [SimpleNamespace(messages=Fixed()), Fixed()])
def test_what_takes_no_attributes_is_told_so(recorder: Recorder, client: Any) -> None:
    with pytest.raises(UsageError, match="takes no attributes"):
        wrap(recorder, client)
