"""LangChain and LangGraph themselves, with the callback: models, tools, retrievers, graphs, many at once."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

from learnloop.core.records import Episode, Span, SpanStatus
from learnloop.traces.conversation.messages import text_of
from learnloop.traces.conversation.steps import steps_of
from learnloop.traces.recording.clients.wrapping import wrap
from learnloop.traces.recording.instrument import instrument
from learnloop.traces.recording.langchain import make_callback
from learnloop.traces.recording.recorder import Recorder
from tests.traces.sink import Sink


class Model(BaseChatModel):
    """Asks for a tool first, then says what it gave."""

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        last = messages[-1]
        usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        if isinstance(last, ToolMessage):
            answer = AIMessage(content=f"it is {last.content}", usage_metadata=usage)
        else:
            call = {"name": "double", "args": {"number": int(last.content)}, "id": f"call-{last.content}"}
            answer = AIMessage(content="", tool_calls=[call], usage_metadata=usage)
        answer.response_metadata = {"finish_reason": "stop"}
        return ChatResult(generations=[ChatGeneration(message=answer)])

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
        return {"ls_model_name": "scripted-1", "ls_provider": "tests", "ls_model_type": "chat"}


@tool
def double(number: int) -> int:
    """Returns twice the number."""
    if number < 0:
        raise ValueError("negative")
    return number * 2


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]


def graph() -> Any:
    def think(state: State) -> Any:
        return {"messages": [Model().invoke([SystemMessage("be brief"), *state["messages"]])]}

    def act(state: State) -> Any:
        (call,) = state["messages"][-1].tool_calls
        return {"messages": [double.invoke({**call, "type": "tool_call"})]}

    def route(state: State) -> str:
        return "act" if state["messages"][-1].tool_calls else END

    built = StateGraph(State)
    built.add_node("think", think)
    built.add_node("act", act)
    built.add_edge(START, "think")
    built.add_conditional_edges("think", route)
    built.add_edge("act", "think")
    return built.compile()


def spans(sink: Sink, operation: str | None = None) -> list[Span]:
    found = [each for each in sink.records if isinstance(each, Span)]
    return [each for each in found if operation in (None, each.operation)]


def test_a_graph_is_an_episode_of_steps(sink: Sink, recorder: Recorder) -> None:
    config = {"callbacks": [make_callback(recorder)], "configurable": {"thread_id": "t1"}}
    graph().invoke({"messages": [HumanMessage("21")]}, config)
    assert len([each for each in sink.records if isinstance(each, Episode)]) == 2, "begun and ended"
    first, second = steps_of(spans(sink))
    assert [text_of(each) for each in first.messages] == ["be brief", "21"]
    assert first.model == "scripted-1"
    assert first.attributes["usage"] == {"input_tokens": 7, "output_tokens": 3}
    (call,) = first.tool_calls
    assert (call.call_id, call.name, call.arguments, call.result) == ("call-21", "double", {"number": 21}, "42")
    assert [each["role"] for each in second.messages] == ["tool"]
    assert second.output is not None
    assert text_of(second.output) == "it is 42"
    (root,) = [each for each in spans(sink) if each.parent_id is None]
    assert root.operation == "invoke_agent"
    assert root.name == "LangGraph"
    assert root.attributes["conversation_id"] == "t1"


def test_inside_of_an_episode_it_is_a_part_of_it(sink: Sink, recorder: Recorder) -> None:
    with recorder.episode(task_id="double 3") as episode:
        graph().invoke({"messages": [HumanMessage("3")]}, {"callbacks": [make_callback(recorder)]})
    assert {each.episode_id for each in spans(sink)} == {episode.episode_id}


def test_many_graphs_at_once_do_not_mix(sink: Sink, recorder: Recorder) -> None:
    callback, built = make_callback(recorder), graph()

    async def run() -> None:
        runs = (
            built.ainvoke({"messages": [HumanMessage(str(number))]}, {"callbacks": [callback]}) for number in range(60)
        )
        await asyncio.gather(*runs)

    asyncio.run(run())
    by_episode: dict[str, list[Span]] = {}
    for each in spans(sink):
        by_episode.setdefault(each.episode_id or "", []).append(each)
    assert len(by_episode) == 60
    for found in by_episode.values():
        first, second = steps_of(found)
        number = first.tool_calls[0].arguments["number"]
        assert first.tool_calls[0].result == str(2 * number)
        assert second.output is not None
        assert text_of(second.output) == f"it is {2 * number}"
    assert recorder.counters().num_failures == 0


def test_an_error_is_told_where_it_happened(sink: Sink, recorder: Recorder) -> None:
    with pytest.raises(ValueError, match="negative"):
        graph().invoke({"messages": [HumanMessage("-1")]}, {"callbacks": [make_callback(recorder)]})
    (failed,) = spans(sink, "execute_tool")
    assert (failed.status, failed.error) == (SpanStatus.ERROR, "ValueError: negative")
    assert [each.status for each in sink.records if isinstance(each, Episode)][-1] == "failed"


def test_an_interrupt_is_no_error(sink: Sink, recorder: Recorder) -> None:
    def ask(state: State) -> Any:
        return {"messages": [AIMessage(interrupt("sure?"))]}

    built = StateGraph(State)
    built.add_node("ask", ask)
    built.add_edge(START, "ask")
    compiled = built.compile(checkpointer=InMemorySaver())
    config = {"callbacks": [make_callback(recorder)], "configurable": {"thread_id": "t"}}
    compiled.invoke({"messages": [HumanMessage("go")]}, config)
    assert all(each.status is SpanStatus.OK for each in spans(sink))
    (node,) = [each for each in spans(sink) if each.name == "ask"]
    assert node.attributes["interrupted"] is True


class Library(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(page_content=f"about {query}", metadata={"page": 3})]


def test_retrievers_and_chains(sink: Sink, recorder: Recorder) -> None:
    chain = Library() | RunnableLambda(lambda found: found[0].page_content)
    assert chain.invoke("birds", {"callbacks": [make_callback(recorder)]}) == "about birds"
    (found,) = spans(sink, "retrieval")
    assert found.attributes["input"] == "birds"
    assert found.attributes["output"] == [{"page_content": "about birds", "metadata": {"page": 3}}]


def test_without_content_nothing_of_what_is_said_is_kept(sink: Sink, recorder: Recorder) -> None:
    graph().invoke({"messages": [HumanMessage("21")]}, {"callbacks": [make_callback(recorder, content=False)]})
    for each in spans(sink):
        assert not {"input", "output"} & each.attributes.keys()
    assert len(spans(sink, "chat")) == 2


class Asking(BaseChatModel):
    """A model that asks through a wrapped client, as ``ChatOpenAI`` does."""

    client: Any

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        given = [{"role": "user", "content": str(each.content)} for each in messages]
        said = self.client.chat.completions.create(model="m", messages=given).choices[0].message.content
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=said))])

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return self._generate(messages)

    @property
    def _llm_type(self) -> str:
        return "asking"


class Client:
    """Has the method that ``wrap`` looks for."""

    def __init__(self) -> None:
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))

    def _create(self, *, messages: Any, **kwargs: Any) -> Any:
        said = SimpleNamespace(role="assistant", content=f"re: {messages[-1]['content']}")
        return SimpleNamespace(model="m", choices=[SimpleNamespace(index=0, message=said, finish_reason="stop")])


def asking_graph(recorder: Recorder) -> Any:
    client = wrap(recorder, Client())
    model = Asking(client=client)
    tool_of_ours = instrument(recorder, lambda text: text.upper(), operation="execute_tool", name="upper")

    async def through_model(state: State) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def by_itself(state: State) -> Any:
        given = [{"role": "user", "content": tool_of_ours(state["messages"][-1].content)}]
        said = client.chat.completions.create(model="m", messages=given).choices[0].message.content
        return {"messages": [AIMessage(said)]}

    built = StateGraph(State)
    built.add_node("through_model", through_model)
    built.add_node("by_itself", by_itself)
    built.add_edge(START, "through_model")
    built.add_edge("through_model", "by_itself")
    return built.compile()


@pytest.mark.parametrize("number_of_callbacks", [1, 2])
@pytest.mark.parametrize("around", ["nothing", "an agent of ours"])
def test_wrapped_clients_and_tools_in_a_graph_belong_to_its_run(
    sink: Sink, recorder: Recorder, number_of_callbacks: int, around: str
) -> None:
    """A call recorded by the callback and by the client is one step; two callbacks record no more than one."""
    config = {"callbacks": [make_callback(recorder) for _ in range(number_of_callbacks)]}

    async def run() -> None:
        await asking_graph(recorder).ainvoke({"messages": [HumanMessage("hi")]}, config)

    entry = instrument(recorder, run, operation="invoke_agent") if around != "nothing" else run
    asyncio.run(entry())
    assert len({each.episode_id for each in sink.records if isinstance(each, Episode)}) == 1
    found = spans(sink)
    assert len([each for each in found if each.parent_id is None]) == 1
    first, second = steps_of(found)
    assert [text_of(each.output) for each in (first, second) if each.output] == ["re: hi", "re: RE: HI"]
    (tool_span,) = spans(sink, "execute_tool")
    assert next(each.name for each in found if each.span_id == tool_span.parent_id) == "by_itself"
    assert recorder.current is None
    assert recorder.counters().num_failures == 0


@pytest.mark.parametrize("mode", ["values", "updates", "messages", ["values", "custom"]])
def test_streams_of_a_graph(sink: Sink, recorder: Recorder, mode: Any) -> None:
    async def run() -> None:
        config = {"callbacks": [make_callback(recorder)]}
        async for _ in asking_graph(recorder).astream({"messages": [HumanMessage("hi")]}, config, stream_mode=mode):
            pass

    asyncio.run(run())
    assert len(steps_of(spans(sink))) == 2
    assert len({each.episode_id for each in spans(sink)}) == 1


def test_streams_that_are_read_in_turns_or_left_do_not_mix(sink: Sink, recorder: Recorder) -> None:
    config = {"callbacks": [make_callback(recorder)]}
    streams = [graph().stream({"messages": [HumanMessage(str(number))]}, config) for number in (1, 2, 3)]
    for _ in range(2):
        for stream in streams:
            next(stream)
    for _ in streams[0]:
        pass
    streams[1].close()
    del stream, streams
    gc.collect()
    by_episode: dict[str | None, list[Span]] = {}
    for each in spans(sink):
        by_episode.setdefault(each.episode_id, []).append(each)
    assert len(by_episode) == 3
    for found in by_episode.values():
        first = steps_of(found)[0]
        number = first.tool_calls[0].arguments["number"]
        assert first.tool_calls[0].result == str(2 * number)
    assert recorder.current is None
    assert not recorder.open_runs


def test_runs_that_never_end_are_bounded(monkeypatch: pytest.MonkeyPatch, sink: Sink, recorder: Recorder) -> None:
    monkeypatch.setattr("learnloop.traces.recording.langchain.MAX_OPEN", 10)
    callback = make_callback(recorder)

    def begin() -> None:
        callback.on_chain_start({}, {"a": 1}, run_id=uuid4(), parent_run_id=None)

    for _ in range(50):
        contextvars.copy_context().run(begin)
    assert len(recorder.open_runs) == 10
    assert [each.attributes["incomplete"] for each in spans(sink)] == [True] * 40
    begin()
    for span, _ in list(recorder.open_runs.values()):
        span.end()
    assert recorder.current is None, "what has ended elsewhere is not current any more"


def test_messages_that_cannot_be_read_end_no_run(sink: Sink, recorder: Recorder) -> None:
    class Odd:
        @property
        def content(self) -> str:
            raise RuntimeError("odd")

    callback, run_id = make_callback(recorder), uuid4()
    callback.on_chat_model_start({}, [[Odd()]], run_id=run_id)
    callback.on_llm_error(KeyboardInterrupt(), run_id=run_id)
    assert [each.error for each in spans(sink)] == ["KeyboardInterrupt"]
    assert recorder.counters().num_failures == 1
