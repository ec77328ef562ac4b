"""The client and a real model: what a judge, a memory and a prompt optimiser ask for comes back usable."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from learnloop.core.errors import NotFoundError, UsageError
from learnloop.models import ChatEndpoint, ChatRequest, EndpointConfig, Message, Tool
from tests.model_server.server import CAPITALS, ROOM, ModelServer

QUESTION = [
    Message(role=role, content=text) for role, text in zip(("user", "assistant", "user"), CAPITALS, strict=True)
]


def ask_for(text: str) -> list[Message]:
    return [Message(role="user", content=text)]


@pytest.fixture(scope="module")
def model(model_server: ModelServer) -> Iterator[ChatEndpoint]:
    config = EndpointConfig(base_url=model_server.url, model=model_server.model, max_tokens=16, max_retries=0)
    with ChatEndpoint(config) as opened:
        yield opened


def test_an_answer(model: ChatEndpoint) -> None:
    answer = model.complete(QUESTION)
    assert answer.text  # which words a model says is its own affair
    assert answer.finish_reason in ("stop", "length")
    assert answer.num_tokens == (answer.num_prompt_tokens or 0) + (answer.num_completion_tokens or 0)
    with model.stream(QUESTION) as stream:
        assert "".join(stream) == answer.text
    assert stream.completion == answer


def test_a_forced_tool(model: ChatEndpoint) -> None:
    tool = Tool(
        name="weather",
        description="Tells the weather of a city",
        parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    )
    request = ChatRequest(
        messages=ask_for("Is it warm in Paris?"), tools=[tool], tool_choice="weather", max_tokens=ROOM
    )
    answer = model.complete(request)
    assert [call.name for call in answer.tool_calls] == ["weather"]
    assert isinstance(answer.tool_calls[0].parsed()["city"], str)
    with model.stream(request) as stream:
        assert list(stream) == []
    assert [call.arguments for call in stream.completion.tool_calls] == [answer.tool_calls[0].arguments]


def test_a_verdict_by_schema(model: ChatEndpoint) -> None:
    schema = {"type": "object", "properties": {"winner": {"enum": ["A", "B"]}}}
    answer = model.complete(
        ChatRequest(
            messages=ask_for("Which is right? A: 2+2=4. B: 2+2=5."),
            response_format={"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema}},
            logprobs=True,
            top_logprobs=3,
            max_tokens=ROOM,
        )
    )
    assert msgspec.json.decode(answer.text)["winner"] in ("A", "B")
    assert answer.logprobs is not None
    assert len(answer.logprobs) == answer.num_completion_tokens
    assert all(each.logprob <= 0.0 and len(each.top) <= 3 for each in answer.logprobs)


def test_votes_by_seed(model: ChatEndpoint) -> None:
    def vote(seed: int) -> str:
        asked = ChatRequest(messages=ask_for("Name an animal."), temperature=1.5, seed=seed, max_tokens=6)
        return model.complete(asked).text

    assert vote(3) == vote(3)
    assert len({vote(seed) for seed in range(4)}) > 1


def test_refusals(model: ChatEndpoint, model_server: ModelServer) -> None:
    with pytest.raises(UsageError, match="more than 2048"):
        model.complete("word " * 3000)
    other = EndpointConfig(base_url=model_server.url, model="other")
    with ChatEndpoint(other) as asked, pytest.raises(NotFoundError, match="no model"):
        asked.complete(QUESTION)
