"""The gateway: agents that only got another base URL, through a real server to a real one behind it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from learnloop.core.errors import UsageError
from learnloop.core.records import ApiScope, Episode, EpisodeStatus, Span, SpanStatus
from learnloop.loop import Workspace
from learnloop.loop.traces.gateway import close_left_open
from learnloop.loop.workspace.api_keys import create_key
from learnloop.serve.routes.gateway import GatewayOptions, make_gateway
from learnloop.serve.routes.gateway_runs import RunName
from learnloop.traces.conversation.messages import text_of
from learnloop.traces.conversation.steps import steps_of
from tests.loopback import Answer, Fault, LoopbackServer
from tests.serve.conftest import Running, Start
from tests.waiting import eventually

HI = [{"role": "user", "content": "hi there"}]


@pytest.fixture
def upstream() -> Iterator[LoopbackServer]:
    with LoopbackServer() as server:
        yield server


@pytest.fixture
def gateway(start: Start, upstream: LoopbackServer) -> Running:
    return start(make_gateway(GatewayOptions(upstream=upstream.url)))


def client_of(server: Running, place: str = "", **given: Any) -> openai.OpenAI:
    url = f"http://127.0.0.1:{server.port}/gateway{place}"
    return openai.OpenAI(base_url=url, api_key="sk-theirs", max_retries=0, **given)


def spans(workspace: Workspace, number: int) -> list[Span]:
    """Returns the spans of models' calls, once there are so many."""
    store = workspace.store

    def found() -> list[Span]:
        return list(store.iterate(Span, where={"operation": "chat"}))

    assert eventually(lambda: len(found()) == number), f"{len(found())} spans, not {number}"
    return sorted(found(), key=lambda span: span.started_at)


def episodes(workspace: Workspace) -> list[Episode]:
    return list(workspace.store.iterate(Episode))


def test_a_call_passes_as_it_is_and_is_recorded(
    gateway: Running, workspace: Workspace, upstream: LoopbackServer
) -> None:
    with client_of(gateway) as client:
        raw = client.chat.completions.with_raw_response.create(model="m", messages=HI, temperature=0.25)
    assert raw.parse().choices[0].message.content == "echo: hi there"
    assert upstream.requests == [{"model": "m", "messages": HI, "temperature": 0.25}]
    assert upstream.paths == ["/v1/chat/completions"]
    assert upstream.headers[0]["Authorization"] == "Bearer sk-theirs"
    (span,) = spans(workspace, 1)
    assert span.attributes["usage"] == {"input_tokens": 5, "output_tokens": 2}
    assert [text_of(each) for each in span.attributes["output"]] == ["echo: hi there"]
    assert raw.headers["x-learnloop-episode"] == span.episode_id
    (episode,) = episodes(workspace)
    assert (episode.agent_id, episode.source, episode.status) == ("gateway", "gateway", EpisodeStatus.RUNNING)


def test_a_stream_passes_as_it_comes(gateway: Running, workspace: Workspace, upstream: LoopbackServer) -> None:
    upstream.script = [Answer("one two three", gate=(gate := threading.Event()), pause_seconds=0.05)]
    with client_of(gateway) as client:
        begun = time.monotonic()
        stream = client.chat.completions.create(model="m", messages=HI, stream=True)
        assert [next(stream).choices[0].delta.content for _ in range(2)] == ["", "one "]  # before there is more
        gate.set()
        assert len(list(stream)) >= 2
        milliseconds = 1000 * (time.monotonic() - begun)
    (span,) = spans(workspace, 1)
    assert [text_of(each) for each in span.attributes["output"]] == ["one two three"]
    assert span.attributes["time_to_first_chunk_ms"] < milliseconds


def test_the_other_apis(gateway: Running, workspace: Workspace, start: Start, upstream: LoopbackServer) -> None:
    with client_of(gateway) as client:
        client.responses.create(model="m", input="a")
        assert [model.id for model in client.models.list()] == ["m"]
    root = start(make_gateway(GatewayOptions(upstream=upstream.root)))
    claude = anthropic.Anthropic(base_url=f"http://127.0.0.1:{root.port}/gateway", api_key="k", max_retries=0)
    with claude, claude.messages.stream(model="c", max_tokens=5, messages=HI) as stream:
        assert "".join(stream.text_stream) == "echo: hi there"
    first, second = spans(workspace, 2)
    assert [text_of(each) for each in first.attributes["output"]] == ["echo: a"]
    assert [text_of(each) for each in second.attributes["output"]] == ["echo: hi there"]


def converse(client: openai.OpenAI, first: str, turns: int) -> None:
    messages: list[Any] = [{"role": "user", "content": first}]
    for turn in range(turns):
        answer = client.chat.completions.create(model="m", messages=messages).choices[0].message.content
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": f"{first} {turn}"}]


def test_a_conversation_is_one_episode(gateway: Running, workspace: Workspace) -> None:
    with client_of(gateway) as client:
        converse(client, "a", 3)
        converse(client, "b", 2)
    found = spans(workspace, 5)
    by_episode: dict[str, list[Span]] = {}
    for span in found:
        by_episode.setdefault(span.episode_id or "", []).append(span)
    assert sorted(len(each) for each in by_episode.values()) == [2, 3]
    for each in by_episode.values():
        assert [len(step.messages) for step in steps_of(each)] == [1] * len(each)


def test_runs_that_say_the_same_are_two(gateway: Running, workspace: Workspace) -> None:
    with client_of(gateway) as client:
        lists: list[list[Any]] = [list(HI), list(HI)]
        for _ in range(3):
            for messages in lists:
                answer = client.chat.completions.create(model="m", messages=messages).choices[0].message.content
                messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "more"}]
    found = spans(workspace, 6)
    counts = {span.episode_id: sum(each.episode_id == span.episode_id for each in found) for span in found}
    assert sorted(counts.values()) == [3, 3]


def test_a_call_that_failed_can_be_asked_again(
    gateway: Running, workspace: Workspace, upstream: LoopbackServer
) -> None:
    upstream.script = ["first", Fault(500), "second"]
    with client_of(gateway) as client:
        messages: list[Any] = [*HI]
        client.chat.completions.create(model="m", messages=messages)
        messages += [{"role": "assistant", "content": "first"}, {"role": "user", "content": "go on"}]
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="m", messages=messages)
        client.chat.completions.create(model="m", messages=messages)
    found = spans(workspace, 3)
    assert len({span.episode_id for span in found}) == 1
    assert [span.status for span in found] == [SpanStatus.OK, SpanStatus.ERROR, SpanStatus.OK]
    assert "HTTP 500" in (found[1].error or "")


def test_a_branch_belongs_to_its_run(gateway: Running, workspace: Workspace) -> None:
    with client_of(gateway) as client:
        answer = client.chat.completions.create(model="m", messages=HI).choices[0].message.content
        for way in ("left", "right"):
            said = [*HI, {"role": "assistant", "content": answer}, {"role": "user", "content": way}]
            client.chat.completions.create(model="m", messages=said)
    assert len({span.episode_id for span in spans(workspace, 3)}) == 1


def test_a_response_that_goes_on_with_another_belongs_to_its_run(gateway: Running, workspace: Workspace) -> None:
    with client_of(gateway) as client:
        first = client.responses.create(model="m", input="a")
        second = client.responses.create(model="m", input="b", previous_response_id=first.id)
        client.responses.create(model="m", input="c", previous_response_id=second.id)
        client.responses.create(model="m", input="other")
    found = spans(workspace, 4)
    assert [span.episode_id == found[0].episode_id for span in found] == [True, True, True, False]


@pytest.mark.parametrize("how", ["headers", "path"])
def test_an_agent_may_name_its_run(gateway: Running, workspace: Workspace, how: str) -> None:
    names = {"agent": "booker", "task": "book flight", "attempt": "2", "run": "r1"}
    headers = {f"x-learnloop-{key}": value for key, value in names.items()} if how == "headers" else {}
    place = "/@agent=booker,task=book%20flight,attempt=2,run=r1" if how == "path" else ""
    with client_of(gateway, place, default_headers=headers) as client:
        converse(client, "a", 1)
        converse(client, "b", 1)
    assert len({span.episode_id for span in spans(workspace, 2)}) == 1
    (episode,) = episodes(workspace)
    assert (episode.agent_id, episode.task_id, episode.attempt) == ("booker", "book flight", 2)
    assert episode.metadata["run"] == "r1"


@pytest.mark.parametrize("given", ["", "-1", "x", "null", "5.0", "1e3", "-0", " 1", "1234567890", "\u0663"])
def test_an_attempt_is_a_whole_number(given: str) -> None:
    with pytest.raises(UsageError, match="give a whole number from 0"):
        RunName.of({"attempt": given})
    assert RunName.of({"attempt": "007"}).attempt == 7


@pytest.mark.parametrize("place", ["/@speed=9", "/@attempt=-1", "/@attempt=x", "/@agent=", "/@nothing"])
def test_a_name_that_cannot_be_used_is_told(gateway: Running, place: str) -> None:
    with client_of(gateway, place) as client, pytest.raises(openai.UnprocessableEntityError) as caught:
        client.chat.completions.create(model="m", messages=HI)
    assert caught.value.body is not None


async def many(server: Running, number: int) -> None:
    client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/gateway", api_key="k", max_retries=0)
    gate = asyncio.Semaphore(40)

    async def run(key: str) -> None:
        messages: list[Any] = [{"role": "user", "content": key}]
        for _ in range(2):
            async with gate:
                answer = await client.chat.completions.create(model="m", messages=messages)
            said = answer.choices[0].message.content
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": key}]

    await asyncio.gather(*(run(f"run-{each}") for each in range(number)))
    await client.close()


@pytest.mark.slow
def test_many_runs_at_once_do_not_mix(gateway: Running, workspace: Workspace) -> None:
    asyncio.run(many(gateway, 250))
    found = spans(workspace, 500)
    keys: dict[str, set[str]] = {}
    for span in found:
        keys.setdefault(span.episode_id or "", set()).add(text_of(span.attributes["input"][-1]))
    assert len(keys) == 250
    assert all(len(each) == 1 for each in keys.values())


def test_an_idle_run_ends(start: Start, workspace: Workspace, upstream: LoopbackServer) -> None:
    server = start(make_gateway(GatewayOptions(upstream=upstream.url, idle_seconds=0.2)))
    with client_of(server) as client:
        converse(client, "a", 1)
    assert eventually(lambda: [each.status for each in episodes(workspace)] == [EpisodeStatus.COMPLETED])
    (episode,) = episodes(workspace)
    assert episode.terminated
    assert [span.operation for span in workspace.store.iterate(Span) if span.parent_id is None] == ["invoke_agent"]


def test_a_server_that_stops_cuts_its_runs_off(gateway: Running, workspace: Workspace) -> None:
    with client_of(gateway) as client:
        converse(client, "a", 1)
    gateway.stop()
    workspace.store.flush()
    (episode,) = episodes(workspace)
    assert (episode.status, episode.truncated, episode.terminated) == (EpisodeStatus.COMPLETED, True, False)


def test_what_a_killed_gateway_left_open_is_ended(gateway: Running, workspace: Workspace) -> None:
    with client_of(gateway) as client:
        converse(client, "a", 1)
    spans(workspace, 1)
    (episode,) = episodes(workspace)
    assert close_left_open(workspace, 3600.0) == 0, "it may still go on"
    assert close_left_open(workspace, 0.0, {episode.episode_id}) == 0, "somebody looks after it"
    time.sleep(0.01)
    assert close_left_open(workspace, 0.0) == 1
    (ended,) = episodes(workspace)
    assert (ended.status, ended.truncated) == (EpisodeStatus.COMPLETED, True)
    assert "gateway stopped" in ended.metadata["cut_off"]


def test_a_model_that_is_not_there(start: Start, workspace: Workspace) -> None:
    server = start(make_gateway(GatewayOptions(upstream="http://127.0.0.1:9/v1")))
    with client_of(server) as client, pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model="m", messages=HI)
    assert caught.value.status_code == 502
    assert "does not answer" in caught.value.message
    (span,) = spans(workspace, 1)
    assert span.status is SpanStatus.ERROR


def test_a_stream_that_breaks_or_is_left(gateway: Running, workspace: Workspace, upstream: LoopbackServer) -> None:
    upstream.script = [Answer("one two three four", cut_after=3), Answer("one two three four", pause_seconds=0.3)]
    with client_of(gateway) as client:
        with pytest.raises(openai.APIError):
            list(client.chat.completions.create(model="m", messages=HI, stream=True))
        with client.chat.completions.create(model="m", messages=HI, stream=True) as stream:
            next(iter(stream))
    broken, left = spans(workspace, 2)
    assert broken.status is SpanStatus.ERROR
    assert left.attributes["incomplete"] is True


def test_the_gateways_own_key_is_sent_in_place_of_theirs(
    start: Start, upstream: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", "sk-real")
    server = start(make_gateway(GatewayOptions(upstream=upstream.url, key_env="MODEL_KEY")))
    with client_of(server) as client:
        client.chat.completions.create(model="m", messages=HI)
    assert upstream.headers[0].get_all("Authorization") == ["Bearer sk-real"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 3}', b'{"messages": [{"role": 1}, 5, null]}'])
def test_a_body_of_any_kind_is_passed_on(gateway: Running, upstream: LoopbackServer, body: bytes) -> None:
    """Whether it makes sense is for the model's server to say."""
    upstream.script = [Fault(400, b'{"error": {"message": "their words"}}')]
    reply = gateway.ask("POST", "/gateway/chat/completions", body)
    if body in (b"", b"{"):
        assert reply.status in (400, 502)  # the loopback server itself gives up on these
    else:
        assert (reply.status, reply.json()["error"]["message"]) == (400, "their words")


def test_what_a_gateway_cannot_be() -> None:
    for upstream in ("", "ftp://x", "api.openai.com/v1", "http://", "http://x/?a=1"):
        with pytest.raises(UsageError, match="base URL"):
            GatewayOptions(upstream=upstream)
    with pytest.raises(UsageError, match="NO_SUCH_KEY"):
        GatewayOptions(upstream="http://x/v1", key_env="NO_SUCH_KEY")
    with pytest.raises(UsageError, match="idle_seconds"):
        GatewayOptions(upstream="http://x/v1", idle_seconds=0)


def test_where_keys_exist_a_call_shows_one_and_keeps_its_own(
    gateway: Running, workspace: Workspace, upstream: LoopbackServer
) -> None:
    made = create_key(workspace, "agents", [ApiScope.INGEST])
    assert eventually(lambda: gateway.ask("GET", "/gateway/models").status == 401)
    with client_of(gateway) as client, pytest.raises(openai.AuthenticationError):
        client.chat.completions.create(model="m", messages=HI)
    assert upstream.requests == []
    with client_of(gateway, default_headers={"x-learnloop-key": made.secret}) as client:
        client.chat.completions.create(model="m", messages=HI)
    (sent,) = upstream.headers
    assert sent["Authorization"] == "Bearer sk-theirs"
    assert sent["x-learnloop-key"] is None
    url = f"http://127.0.0.1:{gateway.port}/gateway"
    with openai.OpenAI(base_url=url, api_key=made.secret, max_retries=0) as client:
        client.chat.completions.create(model="m", messages=HI)
    assert upstream.headers[1]["Authorization"] is None, "our key is nobody else's business"
