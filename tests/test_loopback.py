"""The loopback server is understood by the real clients of OpenAI and Anthropic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import anthropic
import openai
import pytest

from tests.loopback import Answer, Fault, LoopbackServer, ToolCall

ADD = ToolCall("add", {"a": 1, "b": [2, "x y"]}, "call_7")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
BOTH = Answer("Let me add.", [ADD], num_input_tokens=11, num_output_tokens=4)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as opened:
        yield opened


@pytest.fixture
def client(server: LoopbackServer) -> openai.OpenAI:
    server.clients.append(made := openai.OpenAI(base_url=server.url, api_key="k", max_retries=0))
    return made


@pytest.fixture
def claude(server: LoopbackServer) -> anthropic.Anthropic:
    server.clients.append(made := anthropic.Anthropic(base_url=server.root, api_key="k", max_retries=0))
    return made


def test_chat_completions(server: LoopbackServer, client: openai.OpenAI) -> None:
    server.script = ["hello", BOTH]
    asked = [{"role": "user", "content": "hi there"}]
    answers = [client.chat.completions.create(model="m", messages=asked) for _ in range(3)]
    assert [each.choices[0].message.content for each in answers] == ["hello", "Let me add.", "echo: hi there"]
    call = answers[1].choices[0].message.tool_calls[0]
    assert (call.id, call.function.name, json.loads(call.function.arguments)) == ("call_7", "add", dict(ADD.arguments))
    assert [each.choices[0].finish_reason for each in answers] == ["stop", "tool_calls", "stop"]
    assert (answers[1].usage.prompt_tokens, answers[1].usage.completion_tokens) == (11, 4)
    assert server.paths == ["/v1/chat/completions"] * 3
    assert server.requests[0]["messages"] == asked
    assert server.headers[0]["Authorization"] == "Bearer k"
    assert client.models.list().data[0].id == "m"


@pytest.mark.parametrize("with_usage", [False, True])
def test_chat_streams(server: LoopbackServer, client: openai.OpenAI, with_usage: bool) -> None:
    server.script = [BOTH]
    more = {"stream_options": {"include_usage": True}} if with_usage else {}
    asked = [{"role": "user", "content": "hi"}]
    chunks = list(client.chat.completions.create(model="m", messages=asked, stream=True, **more))
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(each.delta.content or "" for each in choices) == "Let me add."
    calls = [call for each in choices for call in each.delta.tool_calls or ()]
    assert json.loads("".join(call.function.arguments or "" for call in calls)) == dict(ADD.arguments)
    assert (calls[0].id, calls[0].function.name, choices[-1].finish_reason) == ("call_7", "add", "tool_calls")
    assert (chunks[-1].usage is not None) is with_usage
    assert len(chunks) > 6


def test_logprobs(server: LoopbackServer, client: openai.OpenAI) -> None:
    server.script = [Answer("a b", logprobs=[-0.5, -1.0])] * 2
    asked = [{"role": "user", "content": "hi"}]
    whole = client.chat.completions.create(model="m", messages=asked, logprobs=True)
    found = [(each.token, each.logprob) for each in whole.choices[0].logprobs.content]
    assert found == [("a ", -0.5), ("b", -1.0)]
    chunks = client.chat.completions.create(model="m", messages=asked, logprobs=True, stream=True)
    probabilities = [chunk.choices[0].logprobs for chunk in chunks]
    assert [each.content[0].logprob for each in probabilities if each] == [-0.5, -1.0]


def test_responses(server: LoopbackServer, client: openai.OpenAI) -> None:
    server.script = [BOTH]
    answer = client.responses.create(model="m", input="hi")
    assert (answer.output_text, answer.usage.input_tokens, answer.status) == ("Let me add.", 11, "completed")
    assert (answer.output[1].call_id, json.loads(answer.output[1].arguments)) == ("call_7", dict(ADD.arguments))
    parts = [{"type": "input_text", "text": "more"}]
    assert client.responses.create(model="m", input=[{"role": "user", "content": parts}]).output_text == "echo: more"


def test_response_streams(server: LoopbackServer, client: openai.OpenAI) -> None:
    server.script = [BOTH, BOTH]
    events = list(client.responses.create(model="m", input="hi", stream=True))
    assert [each.sequence_number for each in events] == list(range(len(events)))
    assert "".join(each.delta for each in events if each.type == "response.output_text.delta") == "Let me add."
    with client.responses.stream(model="m", input="hi") as stream:
        final = stream.get_final_response()
    assert final.output_text == events[-1].response.output_text == "Let me add."
    assert json.loads(final.output[1].arguments) == dict(ADD.arguments)


def test_messages(server: LoopbackServer, claude: anthropic.Anthropic) -> None:
    server.script = [BOTH, Answer("cut", finish_reason="length")]
    asked = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    answers = [claude.messages.create(model="m", max_tokens=9, messages=asked) for _ in range(3)]
    assert [each.content[0].text for each in answers] == ["Let me add.", "cut", "echo: hi"]
    assert answers[0].content[1].input == dict(ADD.arguments)
    assert [each.stop_reason for each in answers] == ["tool_use", "max_tokens", "end_turn"]
    assert (answers[0].usage.input_tokens, answers[0].usage.output_tokens) == (11, 4)
    assert server.headers[0]["anthropic-version"]


def test_message_streams(server: LoopbackServer, claude: anthropic.Anthropic) -> None:
    server.script = [BOTH, BOTH]
    asked = [{"role": "user", "content": "hi"}]
    with claude.messages.stream(model="m", max_tokens=9, messages=asked) as stream:
        assert "".join(stream.text_stream) == "Let me add."
        final = stream.get_final_message()
    assert (final.content[1].input, final.usage.output_tokens) == (dict(ADD.arguments), 4)
    kinds = [each.type for each in claude.messages.create(model="m", max_tokens=9, messages=asked, stream=True)]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")


def test_faults(server: LoopbackServer, client: openai.OpenAI) -> None:
    asked = [{"role": "user", "content": "hi"}]
    server.script = [Fault(429, headers=(("Retry-After", "7"),)), Fault(hang_up=True), Answer("a b c d", cut_after=3)]
    with pytest.raises(openai.RateLimitError, match="busy") as caught:
        client.chat.completions.create(model="m", messages=asked)
    assert caught.value.response.headers["Retry-After"] == "7"
    with pytest.raises(openai.APIConnectionError):
        client.chat.completions.create(model="m", messages=asked)
    received = []
    with pytest.raises(openai.APIConnectionError):
        received += client.chat.completions.create(model="m", messages=asked, stream=True)
    with pytest.raises(openai.NotFoundError):
        client.moderations.create(model="m", input="x")


def test_embeddings(server: LoopbackServer, client: openai.OpenAI) -> None:
    """As numbers and in base64, which the SDK asks for by itself; each text has its own."""
    server.vector = lambda text: [float(len(text)), 0.5]
    both = client.embeddings.create(model="m", input=["a", "bc"])
    assert {item.index: item.embedding for item in both.data} == {0: [1.0, 0.5], 1: [2.0, 0.5]}
    one = client.embeddings.create(model="m", input="abc", encoding_format="float")
    assert one.data[0].embedding == [3.0, 0.5]


def test_many_at_once(server: LoopbackServer, client: openai.OpenAI) -> None:
    def ask(number: int) -> str | None:
        asked = [{"role": "user", "content": str(number)}]
        return client.chat.completions.create(model="m", messages=asked).choices[0].message.content

    server.model = lambda prompt: Answer(prompt, delay_seconds=0.02)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(32))) == [str(number) for number in range(32)]
    assert server.num_in_flight_max > 1
