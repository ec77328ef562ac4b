"""The local model server answers as OpenAI's API does, with a real model: the official client reads every answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.model_server.server import CAPITALS, MODEL, ROOM, ModelServer
from tests.project import ROOT
from tests.waiting import eventually, is_running

ASKED = [{"role": role, "content": text} for role, text in zip(("user", "assistant", "user"), CAPITALS, strict=True)]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
            "required": ["city", "unit"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def client(model_server: ModelServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=model_server.url, api_key="none", max_retries=0, timeout=240) as made:
        yield made


def test_it_answers(client: openai.OpenAI, model_server: ModelServer) -> None:
    used = model_server.cpu_seconds()
    answers = [client.chat.completions.create(model=MODEL, messages=ASKED, max_tokens=16) for _ in range(2)]
    assert model_server.cpu_seconds() - used < 10
    assert answers[0].choices[0].message.content  # which words a model says is its own affair
    assert answers[0].choices == answers[1].choices
    assert answers[0].choices[0].finish_reason in ("stop", "length")
    usage = answers[0].usage
    assert 40 < usage.prompt_tokens < 60
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert client.models.list().data[0].id == MODEL


def test_limits_and_stops(client: openai.OpenAI) -> None:
    cut = client.chat.completions.create(model=MODEL, messages=ASKED, max_tokens=3)
    assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 3)
    whole = client.chat.completions.create(model=MODEL, messages=ASKED, max_tokens=16).choices[0].message.content or ""
    middle = len(whole) // 2
    stop = whole[middle - 2 : middle + 2]
    stopped = client.chat.completions.create(model=MODEL, messages=ASKED, max_tokens=16, stop=["no such words", stop])
    assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == (whole.partition(stop)[0], "stop")


def test_seeds(client: openai.OpenAI) -> None:
    def ask(seed: int) -> str | None:
        asked = [{"role": "user", "content": "Tell a story."}]
        answer = client.chat.completions.create(model=MODEL, messages=asked, max_tokens=8, temperature=1.5, seed=seed)
        return answer.choices[0].message.content

    assert ask(1) == ask(1)
    assert len({ask(seed) for seed in range(1, 4)}) > 1


def test_streams(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=ASKED, max_tokens=16, stop=["Paris"])
    usage = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=ASKED, max_tokens=16, stop=["Paris"], stream=True, stream_options=usage
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    assert len(chunks) > 5


@pytest.mark.parametrize("stream", [False, True])
def test_a_forced_tool(client: openai.OpenAI, stream: bool) -> None:
    choice = {"type": "function", "function": {"name": "get_weather"}}
    asked = [{"role": "user", "content": "Is it warm in Paris?"}]
    answer = client.chat.completions.create(
        model=MODEL, messages=asked, tools=[WEATHER, CLOCK], tool_choice=choice, max_tokens=ROOM, stream=stream
    )
    found = [each.choices[0] for each in answer] if stream else [answer.choices[0]]
    calls = [call for each in found for call in (each.delta if stream else each.message).tool_calls or ()]
    assert [call.function.name for call in calls] == ["get_weather"]
    arguments = json.loads(calls[0].function.arguments)
    assert arguments.keys() == {"city", "unit"}
    assert arguments["unit"] in ("celsius", "fahrenheit")
    assert found[-1].finish_reason == "tool_calls"


def test_any_tool(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=ASKED, tools=[WEATHER, CLOCK], tool_choice="required", max_tokens=ROOM
    )
    function = answer.choices[0].message.tool_calls[0].function
    assert function.name in ("get_weather", "get_time")
    json.loads(function.arguments)


def test_a_schema(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"score": {"enum": [1, 2, 3]}, "reasons": {"type": "array", "items": {"type": "string"}}},
    }
    form = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema}}
    answer = client.chat.completions.create(model=MODEL, messages=ASKED, response_format=form, max_tokens=ROOM)
    verdict = json.loads(answer.choices[0].message.content or "")
    assert verdict["score"] in (1, 2, 3)
    assert len(verdict["reasons"]) <= 4


def test_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=ASKED, max_tokens=4, logprobs=True, top_logprobs=2)
    tokens = answer.choices[0].logprobs.content
    assert "".join(each.token for each in tokens) == answer.choices[0].message.content
    for each in tokens:
        assert each.top_logprobs[0].token == each.token
        assert each.top_logprobs[1].logprob <= each.logprob <= 0.0


def test_refusals(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model"):
        client.chat.completions.create(model="other", messages=ASKED)
    with pytest.raises(openai.BadRequestError, match="messages is empty"):
        client.chat.completions.create(model=MODEL, messages=[])
    long = [{"role": "user", "content": "word " * 3000}]
    with pytest.raises(openai.BadRequestError, match="more than 2048"):
        client.chat.completions.create(model=MODEL, messages=long)
    with pytest.raises(openai.BadRequestError, match="names none"):
        client.chat.completions.create(model=MODEL, messages=ASKED, tools=[CLOCK], tool_choice={"type": "function"})


def test_several_at_once(client: openai.OpenAI) -> None:
    """They wait for each other, and get the answer that each would get alone."""

    def ask(city: str) -> str | None:
        asked = [{"role": "user", "content": f"Say the word {city}."}]
        return client.chat.completions.create(model=MODEL, messages=asked, max_tokens=6).choices[0].message.content

    cities = ["Rome", "Lima", "Oslo"]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(ask, cities)) == [ask(city) for city in cities]


def test_it_ends_with_its_process() -> None:
    code = "from tests.model_server.server import ModelServer; s = ModelServer(); print(s._process.pid, flush=True)"
    child = subprocess.run(
        [sys.executable, "-c", f"{code}; import os; os._exit(9)"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert child.returncode == 9, child.stderr
    assert eventually(lambda: not is_running(int(child.stdout)))
