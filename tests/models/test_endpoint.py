"""The chat client against a real HTTP server: what is sent and read, and every way in which an answer can fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.errors import (
    AuthError,
    ConflictError,
    FormatError,
    LearnloopError,
    NotFoundError,
    UnreachableError,
    UsageError,
)
from learnloop.models import Budget, ChatEndpoint, ChatRequest, EndpointConfig, Message, TokenLogprob, Tool, ToolRequest
from tests.loopback import Answer, Fault, LoopbackServer
from tests.loopback import ToolCall as LoopbackCall
from tests.waiting import PATIENCE_SECONDS


def adder(prompt: str) -> str:
    """Adds."""
    first, second = prompt.removeprefix("Add: ").split(" plus ")
    return f"The sum is {int(first) + int(second)}."


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(adder) as opened:
        yield opened


def client(server: LoopbackServer, **settings: Any) -> ChatEndpoint:
    config = EndpointConfig(base_url=server.url, model="m", **({"backoff_seconds": 0.01} | settings))
    server.clients.append(opened := ChatEndpoint(config))
    return opened


@pytest.mark.parametrize(
    "fault",
    [
        Fault(429, headers=(("Retry-After", "0"),)),
        Fault(500),
        Fault(503),
        Fault(200, b"{not json"),
        Fault(hang_up=True),
        Fault(delay_seconds=4.0),
        Fault(body=b'{"choices": []}' * 20, drip_seconds=0.02),
    ],
    ids=["429", "500", "503", "malformed", "hang up", "slow", "dripping"],
)
def test_what_may_pass_is_tried_again(server: LoopbackServer, fault: Fault) -> None:
    """One failure costs a repetition; failures without end are an error that names the endpoint, never a reward."""
    is_slow = fault.delay_seconds > 0 or fault.drip_seconds > 0
    asked = client(server, timeout_seconds=1.0 if is_slow else PATIENCE_SECONDS, max_retries=2)
    server.script = [fault]
    assert asked.complete("Add: 1 plus 2").text == "The sum is 3."
    assert asked.num_requests == 2
    hasty = client(server, timeout_seconds=0.1 if is_slow else PATIENCE_SECONDS, max_retries=2)
    server.script = [fault] * 3
    with pytest.raises(UnreachableError, match=rf"{server.url}/chat/completions .*asked 3 times"):
        hasty.complete("Add: 1 plus 2")


def test_retry_after_is_kept(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In seconds or as a date; one that is too far away is not waited for."""
    waits: list[float] = []
    monkeypatch.setattr("learnloop.models.transport.time.sleep", waits.append)
    asked = client(server, backoff_seconds=10.0)
    server.script = [Fault(429, headers=(("Retry-After", "1"),))]
    asked.complete("Add: 1 plus 2")
    past = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    server.script = [Fault(429, headers=(("Retry-After", past),))]
    asked.complete("Add: 1 plus 2")
    assert [wait for wait in waits if wait] == [1.0]
    server.script = [Fault(503, headers=(("Retry-After", "3600"),))]
    with pytest.raises(UnreachableError, match=r"503 .* asks to wait 3600 s; at most 60 s"):
        asked.complete("Add: 1 plus 2")
    quick = client(server)
    server.script = [Fault(429, headers=(("Retry-After", "soon"),))]
    quick.complete("Add: 1 plus 2")


def test_waits_double(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("learnloop.models.transport.time.sleep", waits.append)
    server.script = [Fault(500)] * 3
    client(server, backoff_seconds=0.5).complete("Add: 1 plus 2")
    assert [wait for wait in waits if wait] == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (Fault(401), AuthError, r"401 .*a key that it takes into the variable LEARNLOOP_TEST_KEY"),
        (Fault(403), AuthError, "403"),
        (Fault(404), NotFoundError, r"404 .*the model 'm'"),
        (Fault(400), UsageError, r"400 Bad Request: .*busy.*refused"),
        (Fault(302, headers=(("Location", "http://other/v1"),)), UsageError, "moved to http://other/v1"),
        (Fault(200, b"[]"), UsageError, "not a chat completion"),
        (Fault(200, b'{"choices": []}'), UsageError, "without a text"),
        (Fault(200, b'{"choices": [{"message": {"content": null}}]}'), UsageError, "without a text"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch, fault: Fault, error: type[Exception], message: str
) -> None:
    monkeypatch.setenv("LEARNLOOP_TEST_KEY", "sk-secret")
    asked = client(server, api_key_env="LEARNLOOP_TEST_KEY")
    server.script = [fault]
    with pytest.raises(error, match=message) as caught:
        asked.complete("Add: 1 plus 2")
    assert asked.num_requests == 1
    assert "sk-secret" not in str(caught.value)
    assert server.headers[0]["Authorization"] == "Bearer sk-secret"


def test_nobody_listens(server: LoopbackServer) -> None:
    server.close()
    with pytest.raises(UnreachableError, match=r"cannot be reached \(ConnectionRefusedError"):
        client(server, max_retries=1).complete("hello")


def test_a_password_in_the_address_stays_there(server: LoopbackServer) -> None:
    asked = ChatEndpoint(EndpointConfig(base_url=server.url.replace("//", "//me:secret@"), model="m"))
    assert "secret" not in asked.name


def test_the_budget_of_requests(server: LoopbackServer) -> None:
    """Counted before a request is sent, repetitions included."""
    asked = client(server, max_requests=3)
    server.script = [Fault(500)]
    asked.complete("Add: 1 plus 2")
    asked.complete("Add: 1 plus 2")
    with pytest.raises(ConflictError, match=r"the 3 requests .*max_requests.* are used up"):
        asked.complete("Add: 1 plus 2")
    assert len(server.requests) == 3


def test_the_cache(server: LoopbackServer, tmp_path: Path) -> None:
    """What was answered is not asked again, by another client either; another question, model or place is."""
    folder = tmp_path / "answers"
    first, second = client(server, cache=str(folder)), client(server, cache=str(folder))
    assert first.complete("Add: 1 plus 2") == second.complete("Add: 1 plus 2")
    assert (first.num_requests, second.num_requests, second.num_cached) == (1, 0, 1)
    second.complete("Add: 1 plus 3")
    client(server, cache=str(folder), temperature=1.0).complete("Add: 1 plus 2")
    assert len(server.requests) == 3
    assert len(list(folder.iterdir())) == 3
    for path in folder.iterdir():
        path.write_bytes(b"{")
    with pytest.raises(UsageError, match="the kept answer"):
        first.complete("Add: 1 plus 2")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        client(server, cache=str(blocked / "x")).complete("Add: 1 plus 2")


# What is said and told ------------------------------------------------------------------------------------------------

WEATHER = Tool(name="weather", description="of a city", parameters={"type": "object", "properties": {"city": {}}})
TALK = [
    Message(role="system", content="Be brief."),
    Message(role="user", content=[{"type": "text", "text": "Weather in Rome?"}]),
    Message(role="assistant", tool_calls=(ToolRequest(id="c1", name="weather", arguments='{"city": "Rome"}'),)),
    Message(role="tool", content="sunny", tool_call_id="c1"),
]


def test_all_that_can_be_said(server: LoopbackServer) -> None:
    asked = client(server, max_tokens_field="max_completion_tokens", temperature=None, extra_body={"top_k": 4})
    server.script = ["fine"]
    form = {"type": "json_object"}
    asked.complete(
        ChatRequest(
            messages=TALK,
            tools=[WEATHER],
            tool_choice="weather",
            response_format=form,
            logprobs=True,
            top_logprobs=2,
            seed=7,
            stop=["END"],
            max_tokens=9,
        )
    )
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    assert server.requests == [
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Weather in Rome?"}]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
            ],
            "max_completion_tokens": 9,
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "weather", "description": "of a city", "parameters": WEATHER.parameters},
                }
            ],
            "tool_choice": {"type": "function", "function": {"name": "weather"}},
            "response_format": form,
            "logprobs": True,
            "top_logprobs": 2,
            "seed": 7,
            "stop": ["END"],
            "top_k": 4,
        }
    ]


def test_all_that_is_told(server: LoopbackServer) -> None:
    asked = client(server)
    calls = [LoopbackCall("weather", {"city": "Rome"}, "c9"), LoopbackCall("clock", {}, "c10")]
    server.script = [
        Answer("a b", logprobs=[-0.5, -1.0], num_input_tokens=11, num_output_tokens=4, finish_reason="length"),
        Answer(tool_calls=calls),
    ]
    cut = asked.complete(ChatRequest(messages=TALK, logprobs=True))
    assert (cut.text, cut.finish_reason, cut.model) == ("a b", "length", "m")
    assert (cut.num_prompt_tokens, cut.num_completion_tokens, cut.num_tokens) == (11, 4, 15)
    assert cut.logprobs == (TokenLogprob(token="a ", logprob=-0.5), TokenLogprob(token="b", logprob=-1.0))
    called = asked.complete(TALK)
    assert (called.content, called.finish_reason, called.logprobs) == (None, "tool_calls", None)
    assert [(call.id, call.name, call.parsed()) for call in called.tool_calls] == [
        ("c9", "weather", {"city": "Rome"}),
        ("c10", "clock", {}),
    ]
    with pytest.raises(UsageError, match="only calls of weather, clock"):
        _ = called.text
    assert called.message() == Message(role="assistant", tool_calls=called.tool_calls)
    server.script = [Fault(body=b'{"choices": [{"message": {"content": "x"}}]}')]
    bare = asked.complete(TALK)
    assert (bare.num_tokens, bare.num_prompt_tokens, bare.finish_reason, bare.model) == (None, None, None, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"messages": []}, "no messages"),
        ({"messages": TALK, "top_logprobs": 2}, "without logprobs"),
        ({"messages": TALK, "max_tokens": 0}, "max_tokens is 0"),
        ({"messages": TALK, "tool_choice": "required"}, "tool_choice is 'required'"),
        ({"messages": TALK, "tools": [WEATHER], "tool_choice": "clock"}, "'clock'.*'weather'"),
    ],
)
def test_questions_that_contradict_themselves(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ChatRequest(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"deadline_seconds": 0.0}, "deadline_seconds is 0"),
        ({"max_in_flight": 0}, "max_in_flight is 0"),
        ({"max_total_tokens": 0}, "max_total_tokens is 0"),
        ({"temperature": -1.0}, "temperature is -1"),
        ({"extra_body": {"messages": []}}, "extra_body is"),
        ({"model": ""}, "model is empty"),
    ],
)
def test_configurations_without_a_meaning(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EndpointConfig(**{"base_url": "http://127.0.0.1:9/v1", "model": "m"} | given)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://h/v1", "gopher://h", "//h/v1", "http:///v1", "http://h?a"]
)
def test_only_http_is_spoken(url: str) -> None:
    with pytest.raises(UsageError, match="is needed"):
        ChatEndpoint(EndpointConfig(base_url=url, model="m"))


def test_redirects_are_not_followed(server: LoopbackServer) -> None:
    with LoopbackServer(adder) as other:
        for status in (301, 302, 307, 308):
            server.script = [Fault(status, headers=(("Location", f"{other.url}/chat/completions"),))]
            with pytest.raises(UsageError, match="has moved to"):
                client(server).complete("Add: 1 plus 2")
        assert other.requests == []


def test_arguments_that_are_no_json() -> None:
    with pytest.raises(FormatError, match=r"the arguments of f are not a JSON object.*: \[1"):
        ToolRequest(id="1", name="f", arguments="[1").parsed()


# Keys ----------------------------------------------------------------------------------------------------------------


def test_a_key_is_nowhere_but_in_the_request(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LEARNLOOP_TEST_KEY", "sk-secret")
    asked = client(server, api_key_env="LEARNLOOP_TEST_KEY", cache=str(tmp_path), max_retries=1)
    caplog.set_level("DEBUG")
    asked.complete("Add: 1 plus 2")
    repeated = b'{"error": "wrong key sk-secret"}'
    messages = []
    for fault in (Fault(401, repeated), Fault(400, repeated), Fault(500, repeated), Fault(200, b"{sk-secret")):
        server.script = [fault] * 2
        with pytest.raises(LearnloopError) as caught:
            asked.complete("Add: 1 plus 3")
        server.script = []
        messages.append(str(caught.value))
    assert all("***" in message for message in messages)
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir()).decode()
    assert all("sk-secret" not in text for text in (*messages, kept, caplog.text, repr(asked), str(vars(asked))))
    assert all(header["Authorization"] == "Bearer sk-secret" for header in server.headers)


def test_a_password_in_the_address_is_not_shown() -> None:
    config = EndpointConfig(base_url="http://me:secret@h/v1", model="m")
    assert "secret" not in repr(config)
    assert "//h/v1" in repr(config)
    for url in ("ftp://me:secret@h", "http://me:secret@h:port"):
        with pytest.raises(UsageError) as caught:
            ChatEndpoint(EndpointConfig(base_url=url, model="m"))
        assert "secret" not in str(caught.value)


# Deadlines and budgets -----------------------------------------------------------------------------------------------


def test_the_deadline_of_a_question(server: LoopbackServer) -> None:
    """Repetitions and waits are within it; a wait that would pass it is not begun."""
    asked = client(server, timeout_seconds=0.4, deadline_seconds=0.9, max_retries=50)
    server.script = [Fault(delay_seconds=0.6)] * 50
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=r"within deadline_seconds \(0.9 s\)"):
        asked.complete("Add: 1 plus 2")
    assert 0.7 < time.monotonic() - began < 15  # 50 times 0.4 s are 20
    server.script = [Fault(429, headers=(("Retry-After", "50"),))]
    with pytest.raises(UnreachableError, match=r"429.*deadline_seconds.*asked 1 times"):
        client(server, deadline_seconds=40.0, max_retries=50).complete("Add: 1 plus 2")
    assert time.monotonic() - began < 40


def test_a_deadline_of_one_question(server: LoopbackServer) -> None:
    """The shorter of the two counts, whichever that is."""
    asked = client(server, deadline_seconds=PATIENCE_SECONDS, max_retries=50)
    server.script = [Fault(500)] * 9
    with pytest.raises(UnreachableError, match="deadline_seconds"):
        asked.complete("Add: 1 plus 2", 0.2)
    assert server.script, "later ones would be answered"
    server.script = [Answer("late", delay_seconds=0.6)]
    with pytest.raises(UnreachableError, match=r"did not answer within 0\.[0-3]"):
        client(server, deadline_seconds=0.3, max_retries=0).complete("Add: 1 plus 2", 60.0)


def test_a_budget_of_ones_own(server: LoopbackServer) -> None:
    budget = Budget("both of them", 3, None)
    config = EndpointConfig(base_url=server.url, model="m")
    with ChatEndpoint(config, budget) as one, ChatEndpoint(config, budget) as other:
        for asked in (one, other, one):
            asked.complete("Add: 1 plus 2")
        with pytest.raises(ConflictError, match="both of them"):
            other.complete("Add: 1 plus 2")
    assert (budget.num_requests, one.num_requests) == (3, 3)


def test_the_wait_for_a_place_has_an_end(server: LoopbackServer) -> None:
    asked = client(server, max_in_flight=1, deadline_seconds=0.2)
    server.script = [Answer("a b c", pause_seconds=0.05)]
    stream = asked.stream("Add: 1 plus 2")
    with pytest.raises(UnreachableError, match=r"1 other requests \(max_in_flight\)"):
        asked.complete("Add: 1 plus 2")
    stream.close()
    assert asked.complete("Add: 1 plus 2").text == "The sum is 3."


def test_the_budget_of_tokens(server: LoopbackServer) -> None:
    """A request that may pass the limit is not sent; what the endpoint counted is what was used."""
    asked = client(server, max_total_tokens=120, max_tokens=20)
    server.model = lambda prompt: Answer("x", num_input_tokens=10, num_output_tokens=10)
    for number in range(1, 4):
        asked.complete("Add: 1 plus 2")
        assert asked.num_tokens == 20 * number
    with pytest.raises(ConflictError, match=r"of the 120 tokens .*\(max_total_tokens\) 60 are used.*may take \d+"):
        asked.complete(ChatRequest(messages=[Message(role="user", content="hi")], max_tokens=60))
    server.script = [Fault(400)]
    with pytest.raises(UsageError, match="400"):
        asked.complete("Add: 1 plus 2")
    assert asked.num_tokens == 60
    server.script = [Fault(body=b'{"choices": [{"message": {"content": "not counted"}}]}')]
    asked.complete("")
    assert 60 + 20 < asked.num_tokens <= 120


# Many at once --------------------------------------------------------------------------------------------------------


def test_several_threads(server: LoopbackServer, tmp_path: Path) -> None:
    """Each gets its own answer, and no more requests than allowed are on their way."""
    server.model = lambda prompt: Answer(prompt, delay_seconds=0.01)
    asked = client(server, max_in_flight=3, cache=str(tmp_path), max_requests=40)
    with ThreadPoolExecutor(12) as threads:
        texts = list(threads.map(lambda number: asked.complete(str(number)).text, range(40)))
    assert texts == [str(number) for number in range(40)]
    assert server.num_in_flight_max == 3
    assert (asked.num_requests, asked.num_tokens) == (40, 40 * 7)
    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(lambda number: asked.complete(str(number)).text, range(40))) == texts
    assert (asked.num_requests, asked.num_cached) == (40, 40)


def test_a_budget_holds_among_threads(server: LoopbackServer) -> None:
    asked = client(server, max_in_flight=8, max_requests=10)

    def ask(number: int) -> bool:
        try:
            return asked.complete(f"Add: {number} plus 0").text == f"The sum is {number}."
        except ConflictError:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(ask, range(30))) == 10
    assert len(server.requests) == 10


def test_several_tasks(server: LoopbackServer) -> None:
    asked = client(server, max_in_flight=4)
    server.model = lambda prompt: Answer(prompt, delay_seconds=0.02)

    async def ask() -> list[str]:
        answers = await asyncio.gather(*(asked.acomplete(str(number)) for number in range(12)))
        server.script = [Fault(401)]
        with pytest.raises(AuthError):
            await asked.acomplete("x")
        waiting = asyncio.create_task(asked.acomplete("y"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return [answer.text for answer in answers]

    assert asyncio.run(ask()) == [str(number) for number in range(12)]
    assert 1 < server.num_in_flight_max <= 4
