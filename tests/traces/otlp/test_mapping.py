"""What spans and log records mean: conventions current and old, of three families, and nothing lost on the way."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from learnloop.core.records import Reward, Span, SpanStatus
from learnloop.traces.conversation.messages import message, text_part, tool_call_part, tool_response_part
from learnloop.traces.conversation.steps import steps_of
from learnloop.traces.otlp.decode import decode_logs, decode_traces
from learnloop.traces.otlp.mapping import PARTIAL, map_logs, map_spans
from tests.traces.otlp import requests as otlp
from tests.traces.otlp.requests import SECOND, T0, Raw, event, log, ours, span, span_id, trace_id

RECEIVED = datetime(2026, 11, 28, 12, tzinfo=UTC)
START = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=T0 // 1000)
USER = message("user", text_part("hi"))
ANSWER = message("assistant", text_part("hello"))


def mapped(*spans: Raw, resource: Raw | None = None) -> list[Span]:
    found = map_spans(decode_traces(otlp.traces_pb(spans, resource), "protobuf").spans, RECEIVED)
    return [each.span for each in found if each.span is not None]


def one(resource: Raw | None = None, **fields: Any) -> Span:
    return mapped(span(**fields), resource=resource)[0]


def with_attributes(attributes: Raw, **fields: Any) -> Span:
    return one(attributes=attributes, **fields)


def rewards(*spans: Raw) -> list[Reward]:
    found = map_spans(decode_traces(otlp.traces_pb(spans), "protobuf").spans, RECEIVED)
    return [reward for each in found for reward in each.rewards]


def logged(*logs: Raw) -> tuple[list[Span], list[Reward]]:
    found = map_logs(decode_logs(otlp.logs_pb(logs), "protobuf").logs, RECEIVED)
    return [each.span for each in found if each.span], [reward for each in found for reward in each.rewards]


# ---------------------------------------------------------------- identity and time


def test_ids_are_unique_over_traces() -> None:
    first, second = mapped(span(1, 5, 4, links=[(trace_id(9), span_id(8))]), span(2, 5))
    assert (first.span_id, first.parent_id) == (ours(1, 5), ours(1, 4))
    assert (second.span_id, second.parent_id) == (ours(2, 5), None)
    assert (first.trace_id, first.episode_id) == (trace_id(1), trace_id(1))
    assert first.attributes["links"] == [{"trace_id": trace_id(9), "span_id": ours(9, 8)}]


def test_the_order_of_spans_in_one_microsecond_is_kept() -> None:
    """Langfuse issue 6393."""
    late, early = mapped(span(1, 1, start=T0 + 700, end=T0 + 2000), span(1, 2, start=T0 + 300, end=T0 + 2000))
    assert late.started_at == early.started_at == START
    for each in (late, early):
        each.attributes["usage"] = {}
    calls = [Span(**{**as_fields(each), "operation": "chat"}) for each in (late, early)]
    assert [step.span_id for step in steps_of(calls)] == [early.span_id, late.span_id]


def as_fields(record: Span) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


@pytest.mark.parametrize(
    ("start", "end", "started", "ended", "marks"),
    [
        (T0, T0 + SECOND, START, START + timedelta(seconds=1), {}),
        (T0, 0, START, START, {"duration_unknown": True, PARTIAL: "open"}),
        (0, T0, START, START, {"duration_unknown": True}),
        (0, 0, RECEIVED, RECEIVED, {"duration_unknown": True, "time_unknown": True, PARTIAL: "open"}),
        (
            T0,
            T0 - SECOND,
            START,
            START,
            {"duration_unknown": True, "clock_error": "it ended 1000 ms before it started"},
        ),
        (T0 + 5, T0 + 5, START, START, {"start_nanos": 5}),
        (
            2**64 - 1,
            2**64 - 1,
            datetime(2554, 7, 21, 23, 34, 33, 709551, tzinfo=UTC),
            datetime(2554, 7, 21, 23, 34, 33, 709551, tzinfo=UTC),
            {"start_nanos": 615},
        ),
    ],
    ids=["known", "no end", "no start", "none", "backwards", "no time at all", "as late as can be"],
)
def test_times(start: int, end: int, started: datetime, ended: datetime, marks: Raw) -> None:
    found = one(start=start, end=end)
    assert (found.started_at, found.ended_at) == (started, ended)
    names = {"duration_unknown", "time_unknown", PARTIAL, "clock_error", "start_nanos"}
    assert {name: value for name, value in found.attributes.items() if name in names} == marks


def test_errors_in_their_own_words() -> None:
    thrown = event("exception", {"exception.type": "ValueError", "exception.message": "boom"})
    assert one(status=(0, "")).status is SpanStatus.OK
    assert one(status=(1, "fine")).error is None
    assert one(status=(2, "timed out")).error == "timed out"
    assert one(status=(2, ""), events=[thrown]).error == "ValueError: boom"
    assert with_attributes({"error.type": "429"}, status=(2, "")).error == "429"
    assert one(status=(2, "")).error == "failed"
    assert one(status=(2, ""), events=[thrown]).attributes["events"][0]["name"] == "exception"


# ---------------------------------------------------------------- what is kept


def test_what_is_not_mapped_is_kept_each_value_bounded_by_itself() -> None:
    """One oversized attribute drops neither its span nor its batch (trigger.dev issue 3620)."""
    found = with_attributes(
        {"zero": 0, "false": False, "empty": "", "list": [0, ""], "object": {"a": {"b": 0}}, "huge": "x" * 1_000_000},
        kind=3,
        flags=0x300,
        parent=9,
        resource={"service.name": "s", "host.name": "h"},
    )
    kept = found.attributes
    assert (kept["zero"], kept["false"], kept["empty"], kept["list"]) == (0, False, "", [0, ""])
    assert kept["object"] == {"a": {"b": 0}}
    assert kept["huge"].startswith("xxx")
    assert kept["huge"].endswith("[1000000 characters]")
    assert kept["resource"] == {"service.name": "s", "host.name": "h"}
    assert kept["scope"] == {"name": "test"}
    assert (kept["kind"], kept["remote_parent"]) == ("client", True)


def test_a_sender_does_not_use_our_words() -> None:
    found = with_attributes({"partial": "log", "usage": "much", "input_offset": 4, "token_ids": "none"})
    assert found.attributes["otel.partial"] == "log"
    assert not {PARTIAL, "usage", "input_offset", "token_ids"} & found.attributes.keys()


def test_content_is_not_cut() -> None:
    """Langfuse issue 6517: text cut at some length is no JSON any more."""
    text = "y" * 300_000
    said = json.dumps([{"role": "user", "parts": [{"type": "text", "content": text}]}])
    found = with_attributes({"gen_ai.operation.name": "chat", "gen_ai.input.messages": said})
    assert found.attributes["input"][0]["parts"][0]["content"] == text


@pytest.mark.parametrize("depth", [60, 500, 5_000])
def test_content_nested_too_deep_is_cut_not_refused(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    said = f'[{{"role": "assistant", "parts": [{{"type": "tool_call", "name": "f", "arguments": {deep}}}]}}]'
    for name in ("gen_ai.output.messages", "gen_ai.tool.definitions", "other"):
        found = with_attributes({"gen_ai.operation.name": "chat", name: said})
        json.dumps(found.attributes)  # Python's own encoder follows it to its end


# ---------------------------------------------------------------- GenAI, current

GENAI = [
    {"role": "system", "parts": [{"type": "text", "content": "be brief"}], "name": None},
    {"role": "user", "parts": [{"type": "text", "content": "hi"}]},
]
GENAI_ANSWER = [{"role": "assistant", "parts": [{"type": "text", "content": "hello"}], "finish_reason": "stop"}]


@pytest.mark.parametrize("structured", [False, True], ids=["text", "structured"])
def test_genai(structured: bool) -> None:
    """Messages come as JSON text or as structured values; both are read."""
    written = (lambda value: value) if structured else json.dumps
    found = with_attributes(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.system": "old",
            "gen_ai.request.model": "m",
            "gen_ai.response.model": "m-2026",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.stop_sequences": ["a"],
            "gen_ai.response.id": "r1",
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.conversation.id": "c1",
            "gen_ai.usage.input_tokens": 0,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.usage.cache_read.input_tokens": 3,
            "gen_ai.usage.cache_creation.input_tokens": 2,
            "gen_ai.usage.reasoning.output_tokens": 4,
            "gen_ai.input.messages": written(GENAI),
            "gen_ai.output.messages": written(GENAI_ANSWER),
            "gen_ai.tool.definitions": written([{"type": "function", "name": "f"}]),
            "gen_ai.new.thing": 1,
        }
    )
    kept = found.attributes
    assert (found.operation, found.name) == ("chat", "m-2026")
    assert kept["input"] == [message("system", text_part("be brief")), USER]
    assert kept["output"][0]["parts"] == [text_part("hello")]
    assert kept["usage"] == {
        "input_tokens": 0,
        "output_tokens": 7,
        "cached_input_tokens": 3,
        "cache_write_input_tokens": 2,
        "reasoning_tokens": 4,
    }
    assert kept["request"] == {"temperature": 0.5, "stop_sequences": ["a"], "model": "m"}
    assert (kept["provider"], kept["response_id"], kept["conversation_id"]) == ("openai", "r1", "c1")
    assert (kept["finish_reasons"], kept["tools"]) == (["stop"], [{"type": "function", "name": "f"}])
    assert (kept["gen_ai.system"], kept["gen_ai.new.thing"]) == ("old", 1)


@pytest.mark.parametrize(
    "said",
    ["be brief", '[{"type": "text", "content": "be brief"}]', [{"type": "text", "content": "be brief"}]],
    ids=["plain", "text", "structured"],
)
def test_system_instructions_come_first(said: Any) -> None:
    found = with_attributes(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.system_instructions": said,
            "gen_ai.input.messages": json.dumps(GENAI[1:]),
        }
    )
    assert found.attributes["input"] == [message("system", text_part("be brief")), USER]


def test_genai_tool_agent_and_workflow() -> None:
    tool, agent, workflow = mapped(
        span(
            name="execute_tool f",
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "f",
                "gen_ai.tool.call.id": "c1",
                "gen_ai.tool.call.arguments": '{"a": 1}',
                "gen_ai.tool.call.result": '{"b": 2}',
            },
        ),
        span(attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "Finder"}),
        span(name="invoke_workflow Flow", attributes={"gen_ai.operation.name": "invoke_workflow"}),
    )
    assert (tool.operation, tool.name, tool.attributes["call_id"]) == ("execute_tool", "f", "c1")
    assert (tool.attributes["input"], tool.attributes["output"]) == ({"a": 1}, '{"b": 2}')
    assert (agent.operation, agent.name, agent.attributes["agent"]) == ("invoke_agent", "Finder", "Finder")
    assert (workflow.operation, workflow.name) == ("invoke_workflow", "Flow")


def test_a_tool_response_called_result() -> None:
    said = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "result": "18C"}]}]
    found = with_attributes({"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(said)})
    (step,) = steps_of([found])
    assert step.messages == [message("tool", tool_response_part("c", "18C"))]


def test_token_ids_for_training() -> None:
    found = with_attributes(
        {"gen_ai.operation.name": "chat", "prompt_token_ids": [1, 2], "response_token_ids": "[3, 4]"}
    )
    assert found.attributes["token_ids"] == {"prompt": [1, 2], "completion": [3, 4]}


# ---------------------------------------------------------------- GenAI, older


def test_old_names_of_usage_and_provider() -> None:
    found = with_attributes(
        {
            "gen_ai.system": "az",
            "gen_ai.request.model": "m",
            "gen_ai.usage.prompt_tokens": 5,
            "gen_ai.usage.completion_tokens": "6",
        }
    )
    assert (found.operation, found.name, found.attributes["provider"]) == ("chat", "m", "az")
    assert found.attributes["usage"] == {"input_tokens": 5, "output_tokens": 6}


def test_message_events_on_the_span() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    events = [
        event("gen_ai.system.message", {"content": "be brief"}),
        event("gen_ai.user.message", {"content": "hi", "gen_ai.system": "openai"}),
        event("gen_ai.assistant.message", {"content": "", "tool_calls": json.dumps(calls)}),
        event("gen_ai.tool.message", {"content": "18C", "id": "c"}),
        event("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": json.dumps({"content": "hello"})}),
    ]
    found = with_attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, events=events)
    assert found.attributes["input"] == [
        message("system", text_part("be brief")),
        USER,
        message("assistant", tool_call_part("c", "f", {"a": 1})),
        message("tool", tool_response_part("c", "18C")),
    ]
    assert found.attributes["output"] == [ANSWER]
    assert "events" not in found.attributes


def test_message_events_with_their_content_in_one_text() -> None:
    events = [
        event("gen_ai.user.message", {"gen_ai.event.content": '{"role": "user", "content": "hi"}'}),
        event("gen_ai.choice", {"gen_ai.event.content": '{"message": {"content": "hello"}, "index": 0}'}),
    ]
    found = with_attributes({"gen_ai.system": "az"}, events=events)
    assert (found.operation, found.attributes["input"], found.attributes["output"]) == ("chat", [USER], [ANSWER])


def test_content_events_of_the_first_convention() -> None:
    events = [
        event("gen_ai.content.prompt", {"gen_ai.prompt": '[{"role": "user", "content": "hi"}]'}),
        event("gen_ai.content.completion", {"gen_ai.completion": '[{"role": "assistant", "content": "hello"}]'}),
    ]
    found = with_attributes({"gen_ai.operation.name": "chat"}, events=events)
    assert (found.attributes["input"], found.attributes["output"]) == ([USER], [ANSWER])


def test_traceloop() -> None:
    found = with_attributes(
        {
            "llm.request.type": "chat",
            "gen_ai.system": "OpenAI",
            "gen_ai.request.model": "m",
            "gen_ai.prompt.10.role": "tool",
            "gen_ai.prompt.10.content": "18C",
            "gen_ai.prompt.10.tool_call_id": "c",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": '[{"type": "text", "text": "hi"}]',
            "gen_ai.prompt.2.role": "assistant",
            "gen_ai.prompt.2.tool_calls.0.id": "c",
            "gen_ai.prompt.2.tool_calls.0.name": "f",
            "gen_ai.prompt.2.tool_calls.0.arguments": '{"a": 1}',
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "hello",
            "gen_ai.completion.0.finish_reason": "stop",
            "llm.request.functions.0.name": "f",
            "llm.request.functions.0.parameters": '{"type": "object"}',
            "llm.usage.total_tokens": 9,
        }
    )
    kept = found.attributes
    assert (found.operation, found.name) == ("chat", "m")
    assert kept["input"] == [
        USER,
        message("assistant", tool_call_part("c", "f", {"a": 1})),
        message("tool", tool_response_part("c", "18C")),
    ]
    assert kept["output"] == [ANSWER]
    assert kept["tools"] == [{"name": "f", "parameters": {"type": "object"}}]
    assert kept["usage"] == {"total_tokens": 9}


@pytest.mark.parametrize(
    ("kind", "operation", "name"),
    [
        ("workflow", "invoke_workflow", "flow"),
        ("agent", "invoke_agent", "x"),
        ("tool", "execute_tool", "e"),
        ("task", "custom", "x"),
    ],
)
def test_traceloop_kinds(kind: str, operation: str, name: str) -> None:
    found = with_attributes(
        {
            "traceloop.span.kind": kind,
            "traceloop.entity.name": "e",
            "traceloop.workflow.name": "flow",
            "traceloop.entity.input": '{"q": 1}',
            "traceloop.association.properties.session_id": "s",
        },
        name="x",
    )
    assert (found.operation, found.name, found.attributes["input"]) == (operation, name, {"q": 1})
    assert found.attributes["conversation_id"] == "s"


# ---------------------------------------------------------------- OpenInference


def test_openinference() -> None:
    found = with_attributes(
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "m",
            "llm.system": "openai",
            "llm.invocation_parameters": '{"model": "m", "temperature": 0.1}',
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.contents.0.message_content.type": "text",
            "llm.input_messages.0.message.contents.0.message_content.text": "hi",
            "llm.input_messages.1.message.role": "assistant",
            "llm.input_messages.1.message.tool_calls.0.tool_call.id": "c",
            "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "f",
            "llm.input_messages.1.message.tool_calls.0.tool_call.function.arguments": '{"a": 1}',
            "llm.input_messages.2.message.role": "tool",
            "llm.input_messages.2.message.content": "18C",
            "llm.input_messages.2.message.tool_call_id": "c",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "hello",
            "llm.tools.0.tool.json_schema": '{"name": "f"}',
            "llm.token_count.prompt": 3,
            "llm.token_count.completion": 4,
            "llm.token_count.prompt_details.cache_read": 2,
            "llm.token_count.completion_details.reasoning": 1,
            "llm.cost.total": 0.25,
            "session.id": "s",
            "user.id": "u",
            "metadata": '{"task_id": "t1", "attempt": 2, "x": 1}',
            "input.value": "raw",
        }
    )
    kept = found.attributes
    assert (found.operation, found.name, kept["provider"]) == ("chat", "m", "openai")
    assert kept["input"] == [
        USER,
        message("assistant", tool_call_part("c", "f", {"a": 1})),
        message("tool", tool_response_part("c", "18C")),
    ]
    assert kept["output"] == [ANSWER]
    assert kept["usage"] == {"input_tokens": 3, "output_tokens": 4, "cached_input_tokens": 2, "reasoning_tokens": 1}
    assert (kept["request"], kept["tools"], kept["cost_usd"]) == ({"temperature": 0.1}, [{"name": "f"}], 0.25)
    assert (kept["conversation_id"], kept["user_id"]) == ("s", "u")
    assert (kept["task_id"], kept["attempt"]) == ("t1", 2)
    assert (kept["input.value"], kept["metadata"]) == ("raw", '{"task_id": "t1", "attempt": 2, "x": 1}')


def test_openinference_llm_that_has_values_only() -> None:
    request = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": "hello"}}]})
    found = with_attributes({"openinference.span.kind": "LLM", "input.value": request, "output.value": answer})
    assert (found.attributes["input"], found.attributes["output"]) == ([USER], [ANSWER])


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        ("TOOL", "execute_tool"),
        ("AGENT", "invoke_agent"),
        ("CHAIN", "custom"),
        ("RETRIEVER", "retrieval"),
        ("EMBEDDING", "embeddings"),
        ("RERANKER", "rerank"),
        ("GUARDRAIL", "guardrail"),
        ("EVALUATOR", "evaluate"),
        ("NEW", "custom"),
    ],
)
def test_openinference_kinds(kind: str, operation: str) -> None:
    found = with_attributes(
        {"openinference.span.kind": kind, "input.value": '{"q": 1}', "output.value": "0.5", "tool.name": "x"}, name="x"
    )
    assert (found.operation, found.name, found.attributes["input"]) == (operation, "x", {"q": 1})


def test_flattened_attributes_that_contradict_each_other_are_survived() -> None:
    found = with_attributes(
        {
            "openinference.span.kind": "LLM",
            "llm.input_messages.0": "text",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.99999999999999999999.message.role": "user",
            "llm.input_messages.x.message": 1,
            "llm.output_messages.0.message.tool_calls": "none",
            "llm.output_messages.1": 3,
            "llm.tools.0": 4,
            "llm.input_messages.0." + "a." * 200 + "b": 1,
        }
    )
    assert found.operation == "chat"


# ---------------------------------------------------------------- recorded by the real instruments


@pytest.mark.parametrize("name", ["otlp_genai", "otlp_openinference"])
def test_recorded_runs_have_two_steps_whichever_instrument_saw_them(name: str) -> None:
    """OpenInference doubles the spans of models (four for two calls); both families give the same two steps."""
    spans = [each.span for each in map_spans(decode_traces(otlp.recorded(f"{name}.pb"), "protobuf").spans, RECEIVED)]
    first, second = steps_of(span for span in spans if span is not None)
    assert first.messages == [
        message("system", text_part("Answer weather questions with the tool.")),
        message("user", text_part("Weather in Paris?")),
    ]
    assert first.output is not None
    assert first.output["parts"] == [tool_call_part("call_1", "get_weather", {"city": "Paris"})]
    (call,) = first.tool_calls
    result = '{"city": "Paris", "temp_c": 18, "sky": "cloudy"}'
    assert (call.name, call.arguments, call.result) == ("get_weather", {"city": "Paris"}, result)
    assert second.messages == [message("tool", tool_response_part("call_1", result))]
    assert second.output is not None
    assert second.output["parts"] == [text_part("It is 18C and cloudy in Paris.")]
    assert second.tool_calls == []
    for step in (first, second):
        assert step.model == "tiny-local-1"
        assert {name: step.attributes["usage"][name] for name in ("input_tokens", "output_tokens")} == {
            "input_tokens": 21,
            "output_tokens": 9,
        }


# ---------------------------------------------------------------- log records


def test_details_as_a_log_record() -> None:
    (found,), _ = logged(
        log(
            1,
            2,
            "gen_ai.client.inference.operation.details",
            {"gen_ai.input.messages": GENAI[1:], "gen_ai.operation.name": "chat"},
        )
    )
    assert (found.span_id, found.attributes[PARTIAL], found.operation) == (ours(1, 2), "log", "chat")
    assert found.attributes["input"] == [USER]


def test_messages_as_log_records() -> None:
    spans, _ = logged(
        log(1, 2, "gen_ai.user.message", {"gen_ai.system": "openai"}, {"content": "hi"}),
        log(1, 2, "gen_ai.choice", {}, {"index": 0, "message": {"content": "hello"}}, T0 + 1),
    )
    assert [each.attributes.get("input") for each in spans] == [[USER], None]
    assert spans[1].attributes["output"] == [ANSWER]
    assert {each.operation for each in spans} == {"chat"}


def test_other_log_records_mean_nothing_here() -> None:
    assert logged(log(1, 2, "", {}, "started"), log(None, None, "gen_ai.user.message", {}, {})) == ([], [])


# ---------------------------------------------------------------- speed


def test_mapping_is_fast_enough_to_receive() -> None:
    """A budget that a slow machine keeps too; the benchmark has the figures."""
    said = json.dumps(GENAI)
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": said, "gen_ai.usage.input_tokens": 3}
    body = otlp.traces_pb([span(1, number, attributes=attributes) for number in range(1, 500)])
    best = min(_seconds(body) for _ in range(5))
    assert best / 499 < 500e-6


def _seconds(body: bytes) -> float:
    start = time.thread_time()
    map_spans(decode_traces(body, "protobuf").spans, RECEIVED)
    return time.thread_time() - start
