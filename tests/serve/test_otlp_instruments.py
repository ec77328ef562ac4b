"""Real instruments of both families, sending to a real server of ours, over agents that talk to a real model server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from learnloop.core.records import Episode, EpisodeStatus, Span
from learnloop.store import Store
from learnloop.traces.conversation.messages import message, text_part, tool_call_part, tool_response_part
from learnloop.traces.conversation.steps import Step, steps_of
from tests.loopback import Answer, LoopbackServer, ToolCall
from tests.serve.conftest import Start
from tests.waiting import PATIENCE_SECONDS, eventually

QUESTION = message("user", text_part("Weather in Paris?"))
RESULT = '{"city": "Paris", "temp_c": 18}'


@pytest.fixture
def model() -> Iterator[LoopbackServer]:
    with LoopbackServer() as server:
        yield server


def run(start: Start, model: LoopbackServer, family: str, subject: str, content: str = "span_only") -> Store:
    """Runs an instrumented agent to its end and returns the store when all episodes have ended."""
    server = start(trace_grace_seconds=0.2)
    command = [sys.executable, "-W", "ignore", "-m", "tests.serve.instrumented", family, subject, model.url]
    command += [f"http://127.0.0.1:{server.port}", content]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    store = server.workspace.store
    assert eventually(lambda: bool(store.count(Episode)) and not store.count(Episode, where={"status": "running"}))
    return store


def episodes(store: Store) -> list[Episode]:
    return sorted(store.iterate(Episode), key=lambda episode: episode.started_at)


def steps(store: Store, episode: Episode) -> list[Step]:
    return steps_of(store.iterate(Span, where={"episode_id": episode.episode_id}))


@pytest.mark.parametrize(
    ("family", "content"), [("genai", "span_only"), ("genai", "event_only"), ("openinference", "span_only")]
)
def test_openai(start: Start, model: LoopbackServer, family: str, content: str) -> None:
    """Each call is a trace of its own; streaming ones too. ``event_only`` brings what was said as log records."""
    store = run(start, model, family, "openai", content)
    whole, streamed = episodes(store)
    for episode, question in ((whole, "Weather in Paris?"), (streamed, "and in Rome?")):
        assert (episode.agent_id, episode.task_id) == ("demo-service", "weather")
        assert (episode.status, episode.terminated) == (EpisodeStatus.COMPLETED, True)
        (step,) = steps(store, episode)
        assert step.messages == [message("user", text_part(question))]
        assert step.output is not None
        assert step.output["parts"] == [text_part(f"echo: {question}")]
        usage = step.attributes["usage"]
        assert (usage["input_tokens"], usage["output_tokens"]) == (5, 2)


@pytest.mark.parametrize("family", ["genai", "openinference"])
def test_openai_agents(start: Start, model: LoopbackServer, family: str) -> None:
    """Both families give the same two steps, with the call of the tool answered, and one episode of the agent."""
    model.script = [Answer(tool_calls=[ToolCall("get_weather", {"city": "Paris"})]), "It is 18C."]
    store = run(start, model, family, "agents")
    (episode,) = episodes(store)
    assert (episode.agent_id, episode.task_id, episode.terminated) == ("Weather agent", "weather", True)
    first, second = steps(store, episode)
    assert first.messages == [message("system", text_part("Use the tool.")), QUESTION]
    assert first.output is not None
    (asked,) = first.output["parts"]
    assert asked == tool_call_part(asked["id"], "get_weather", {"city": "Paris"})
    (call,) = first.tool_calls
    assert (call.name, call.arguments, call.result) == ("get_weather", {"city": "Paris"}, RESULT)
    assert second.messages == [message("tool", tool_response_part(asked["id"], RESULT))]
    assert second.output is not None
    assert second.output["parts"] == [text_part("It is 18C.")]
    for step in (first, second):
        assert (step.attributes["usage"]["input_tokens"], step.attributes["usage"]["output_tokens"]) == (5, 2)
