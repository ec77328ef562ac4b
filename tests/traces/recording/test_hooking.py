"""Agents that are objects: runs and tool calls are recorded on the one object, and on no other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from learnloop.core.errors import ConflictError, UsageError
from learnloop.core.records import Episode, EpisodeStatus, Span, SpanStatus
from learnloop.traces.recording.hooking import hook
from learnloop.traces.recording.recorder import Recorder
from tests.traces.sink import Sink


class FlowAgent:
    """The shape of seed 3's agent: an asynchronous run that calls tools through one method."""

    async def a_run(self, query: str, session_id: str = "default") -> str:
        await asyncio.sleep(0)
        total = await self.arun_function("add", a=len(query), b=1)
        return f"{query}: {total}"

    async def arun_function(self, function_name: str, **arguments: Any) -> Any:
        await asyncio.sleep(0)
        if function_name != "add":
            raise ValueError(f"no tool {function_name}")
        return sum(arguments.values())


class Plain:
    def run(self, text: str) -> list[Any]:
        return [self.call_tool("echo", {"text": text}), self.call_tool(name="upper", text=text)]

    def call_tool(self, name: str, given: Any = None, **more: Any) -> Any:
        return given or more


class Sealed:
    __slots__ = ()

    def run(self) -> int:
        return 1


def spans(sink: Sink, operation: str) -> list[Span]:
    return [each for each in sink.records if isinstance(each, Span) and each.operation == operation]


def test_a_run_is_an_episode_and_its_tools_are_spans(sink: Sink, recorder: Recorder) -> None:
    agent = hook(recorder, FlowAgent())
    assert asyncio.run(agent.a_run("abc", session_id="s")) == "abc: 4"
    (run,), (tool,) = spans(sink, "invoke_agent"), spans(sink, "execute_tool")
    assert (run.name, run.attributes["input"], run.attributes["output"]) == (
        "FlowAgent",
        {"query": "abc", "session_id": "s"},
        "abc: 4",
    )
    assert (tool.name, tool.attributes["input"], tool.attributes["output"]) == ("add", {"a": 3, "b": 1}, 4)
    assert tool.parent_id == run.span_id
    episodes = [each for each in sink.records if isinstance(each, Episode)]
    assert episodes[-1].status is EpisodeStatus.COMPLETED


def test_other_objects_of_the_class_are_not_recorded(sink: Sink, recorder: Recorder) -> None:
    hook(recorder, FlowAgent())
    asyncio.run(FlowAgent().a_run("x"))
    assert sink.records == []


def test_arguments_of_tools_however_they_are_given(sink: Sink, recorder: Recorder) -> None:
    hook(recorder, Plain()).run("hi")
    assert [(each.name, each.attributes["input"]) for each in spans(sink, "execute_tool")] == [
        ("echo", {"text": "hi"}),
        ("upper", {"text": "hi"}),
    ]


def test_an_error_of_a_tool_is_its_spans_and_goes_on(sink: Sink, recorder: Recorder) -> None:
    agent = hook(recorder, FlowAgent())
    with pytest.raises(ValueError, match="no tool sub"):
        asyncio.run(agent.arun_function("sub"))
    (tool,) = spans(sink, "execute_tool")
    assert (tool.status, tool.error) == (SpanStatus.ERROR, "ValueError: no tool sub")


def test_many_runs_at_once_do_not_mix(sink: Sink, recorder: Recorder) -> None:
    agent = hook(recorder, FlowAgent())

    async def run() -> None:
        await asyncio.gather(*(agent.a_run("x" * number) for number in range(300)))

    asyncio.run(run())
    runs = {each.span_id: each for each in spans(sink, "invoke_agent")}
    tools = spans(sink, "execute_tool")
    assert len(runs) == len(tools) == 300
    for tool in tools:
        assert tool.attributes["input"]["a"] == len(runs[tool.parent_id or ""].attributes["input"]["query"])


def test_named_methods(sink: Sink, recorder: Recorder) -> None:
    class Odd:
        def go(self) -> int:
            return self.use("t", 2)

        def use(self, what: str, number: int) -> int:
            return number

    hook(recorder, Odd(), run="go", tool=["use"]).go()
    assert [(each.name, each.attributes["input"]) for each in spans(sink, "execute_tool")] == [("t", {"args": [2]})]


def test_what_cannot_be_hooked(recorder: Recorder) -> None:
    with pytest.raises(UsageError, match="none of the methods 'run', 'a_run'"):
        hook(recorder, object())
    with pytest.raises(UsageError, match="no method 'fly'"):
        hook(recorder, Plain(), run="run", tool="fly")
    with pytest.raises(UsageError, match="takes no attributes"):
        hook(recorder, Sealed())
    agent = hook(recorder, Plain())
    with pytest.raises(ConflictError, match="hooked already"):
        hook(recorder, agent)
