"""LangChain and LangGraph themselves, with the callback: models, tools, retrievers, graphs, many at once."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypedDict

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
from learnloop.traces import Recorder, make_callback
from learnloop.traces.messages import text_of
from learnloop.traces.steps import steps_of
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
