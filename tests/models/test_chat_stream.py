"""Answers piece by piece: the whole is what would have come without a stream, and what breaks off is an error."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.errors import AuthError, ConflictError, UnreachableError, UsageError
from learnloop.models import ChatEndpoint, ChatRequest, EndpointConfig, Message
from tests.loopback import Answer, Fault, LoopbackServer, ToolCall
from tests.waiting import PATIENCE_SECONDS

ASKED = ChatRequest(messages=[Message(role="user", content="hi")], logprobs=True)
EVENTS = (("Content-Type", "text/event-stream"),)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as opened:
        yield opened


def client(server: LoopbackServer, **settings: Any) -> ChatEndpoint:
    config = EndpointConfig(base_url=server.url, model="m", **({"backoff_seconds": 0.01, "max_retries": 2} | settings))
    server.clients.append(opened := ChatEndpoint(config))
    return opened


@pytest.mark.parametrize(
    "answer",
    [
        Answer("one two  three\n", logprobs=[-1.0, -2.0, -3.0], num_input_tokens=3, num_output_tokens=9),
        Answer("cut", finish_reason="length"),
        Answer(""),
        Answer(tool_calls=[ToolCall("f", {"a": [1, "b c"]}, "c1"), ToolCall("g", {}, "c2")]),
        Answer("Both: é \N{GRINNING FACE} here", [ToolCall("f")]),
    ],
    ids=["text", "length", "empty", "calls", "both"],
)
def test_the_whole_is_the_same(server: LoopbackServer, answer: Answer) -> None:
    asked = client(server)
    server.script = [answer, answer]
    whole = asked.complete(ASKED)
    with asked.stream(ASKED) as stream:
        pieces = list(stream)
    assert "".join(pieces) == (whole.content or "")
    assert stream.completion == whole
    assert len(pieces) == len((answer.text or "").split())
    assert server.requests[1] == {**server.requests[0], "stream": True, "stream_options": {"include_usage": True}}
    assert asked.num_tokens == 2 * (whole.num_tokens or 0)


def test_pieces_come_as_they_are_made(server: LoopbackServer) -> None:
    server.script = [Answer("a b c", gate=(gate := threading.Event()))]
    with client(server).stream("hi") as stream:
        assert next(stream) == "a "  # nothing more is sent before it has come
        with pytest.raises(ConflictError, match="not at its end"):
            _ = stream.completion
        gate.set()
        assert list(stream) == ["b ", "c"]
    assert stream.completion.text == "a b c"


def test_a_stream_that_is_given_up(server: LoopbackServer) -> None:
    """It makes place for the next request, and the half of an answer is never used for another."""
    asked = client(server, max_in_flight=1, deadline_seconds=PATIENCE_SECONDS)
    for _ in range(3):
        with asked.stream("one two three") as stream:
            assert next(stream) == "echo: "
        assert asked.complete("next").text == "echo: next"


def test_what_may_pass_is_tried_again_before_it_begins(server: LoopbackServer) -> None:
    server.script = [Fault(503), Fault(hang_up=True), "fine"]
    with client(server).stream("hi") as stream:
        assert list(stream) == ["fine"]
    server.script = [Fault(401)]
    with pytest.raises(AuthError):
        client(server).stream("hi")


@pytest.mark.parametrize(
    ("said", "error", "message"),
    [
        (Answer("a b c d", cut_after=3), UnreachableError, r"in the middle of its answer"),
        (Answer("a b c d", pause_seconds=0.8), UnreachableError, r"not answer within 1.5 s, in the middle"),
        (Fault(body=b'data: {"choices": []}\n\n', headers=EVENTS), UnreachableError, "broke off"),
        (Fault(body=b"", headers=EVENTS), UnreachableError, "broke off"),
        (Fault(body=b'data: {"error": {"message": "no memory"}}\n\n', headers=EVENTS), UnreachableError, "no memory"),
        (Fault(body=b"data: nonsense\n\n", headers=EVENTS), UsageError, "streams what is not a chunk: .*nonsense"),
        (Fault(body=b"data: [DONE]\n\n", headers=EVENTS), UsageError, "without a text"),
    ],
)
def test_what_breaks_off(
    server: LoopbackServer, tmp_path: Path, said: Answer | Fault, error: type[Exception], message: str
) -> None:
    """It is an error, nothing is kept, and it is not asked for again."""
    is_slow = isinstance(said, Answer) and said.pause_seconds > 0
    asked = client(server, timeout_seconds=1.5 if is_slow else PATIENCE_SECONDS, cache=str(tmp_path))
    server.script = [said]
    with pytest.raises(error, match=message), asked.stream("hi") as stream:
        list(stream)
    assert len(server.requests) == 1
    assert list(tmp_path.iterdir()) == []
    assert asked.complete("hi").text == "echo: hi"


def test_an_endpoint_that_does_not_stream(server: LoopbackServer) -> None:
    answer = {"choices": [{"message": {"content": "at once"}, "finish_reason": "stop"}], "usage": {"total_tokens": 4}}
    server.script = [Fault(body=json.dumps(answer).encode())]
    asked = client(server)
    with asked.stream("hi") as stream:
        assert list(stream) == ["at once"]
    assert (stream.completion.num_tokens, asked.num_tokens) == (4, 4)


def test_streams_and_whole_answers_share_the_cache(server: LoopbackServer, tmp_path: Path) -> None:
    asked = client(server, cache=str(tmp_path))
    with asked.stream("a b") as first:
        assert list(first) == ["echo: ", "a ", "b"]
    assert asked.complete("a b") == first.completion
    with asked.stream("a b") as again:
        assert list(again) == ["echo: a b"]
    assert again.completion == first.completion
    assert (asked.num_requests, asked.num_cached) == (1, 2)
