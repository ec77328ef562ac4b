"""Steps: each call of a model once, with what was new in it and what its tool calls gave back."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.records import Span, SpanStatus
from learnloop.traces.conversation.messages import text_of
from learnloop.traces.conversation.steps import Step, in_time_order, steps_of

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def span(
    span_id: str,
    operation: str = "chat",
    *,
    name: str = "m",
    parent: str | None = None,
    at: float = 0.0,
    lasts: float = 1.0,
    error: str | None = None,
    episode: str = "e",
    **attributes: Any,
) -> Span:
    return Span(
        span_id=span_id,
        trace_id="t",
        episode_id=episode,
        parent_id=parent,
        operation=operation,
        name=name,
        status=SpanStatus.OK if error is None else SpanStatus.ERROR,
        error=error,
        started_at=START + timedelta(seconds=at),
        ended_at=START + timedelta(seconds=at + lasts),
        attributes=attributes,
    )


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def asks(call_id: str | None, name: str, arguments: str = "{}") -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def texts(step: Step) -> list[str]:
    return [text_of(each) for each in step.messages]


def test_history_that_each_call_repeats_is_said_once() -> None:
    history = [user("a")]
    spans = []
    for number in range(5):
        spans.append(span(f"s{number}", at=number * 2, input=list(history), output=[said(f"answer {number}")]))
        history += [said(f"answer {number}"), user(f"question {number}")]
    random.Random(3).shuffle(spans)
    steps = steps_of(spans)
    assert [texts(step) for step in steps] == [["a"], *([f"question {number}"] for number in range(4))]
    assert [text_of(step.output or {"parts": []}) for step in steps] == [f"answer {number}" for number in range(5)]


def test_what_was_recorded_as_new_stays_as_it_is() -> None:
    spans = [
        span("a", input=[user("one")], output=[said("two")]),
        span("b", at=2, input=[user("three")], input_offset=2, output=[said("four")]),
        span("c", at=4, input=[user("one"), said("two"), user("three"), said("four"), user("five")]),
    ]
    assert [texts(step) for step in steps_of(spans)] == [["one"], ["three"], ["five"]]


def test_two_conversations_of_one_episode_do_not_mix() -> None:
    spans = [
        span("a1", at=0, input=[user("plan")], output=[said("planned")]),
        span("b1", at=1, input=[user("write")], output=[said("written")]),
        span("a2", at=2, input=[user("plan"), said("planned"), user("more")], output=[said("ok")]),
        span("b2", at=3, input=[user("write"), said("written"), user("shorter")], output=[said("ok")]),
    ]
    assert [texts(step) for step in steps_of(spans)] == [["plan"], ["write"], ["more"], ["shorter"]]


def test_a_history_that_was_rewritten_is_new_from_there_on() -> None:
    spans = [
        span("a", at=0, input=[user("one")], output=[said("two")]),
        span("b", at=1, input=[user("one"), said("a summary"), user("three")], output=[said("x")]),
    ]
    assert texts(steps_of(spans)[1]) == ["a summary", "three"]


def test_one_call_recorded_by_two_instruments_is_one_step() -> None:
    """The faults list: openinference's openai and openai-agents together double model spans, tokens and steps."""
    spans = [
        span("root", "invoke_agent", lasts=9),
        span("outer", parent="root", at=1, lasts=2, input=[user("hi")], output=[said("hello")]),
        span("inner", parent="outer", at=1.2, lasts=1.5, usage={"input_tokens": 3, "output_tokens": 1}),
    ]
    (step,) = steps_of(spans)
    assert step.span_id == "inner"
    assert step.attributes["usage"] == {"input_tokens": 3, "output_tokens": 1}
    assert step.output is not None
    assert text_of(step.output) == "hello"
    assert len(steps_of(spans)) == 1


def test_a_model_asked_by_a_tool_is_a_step_of_its_own() -> None:
    spans = [
        span("outer", at=0, lasts=9, output=[said("x")]),
        span("tool", "execute_tool", parent="outer", at=1, lasts=3),
        span("inner", parent="tool", at=2, lasts=1, output=[said("y")]),
    ]
    assert [step.span_id for step in steps_of(spans)] == ["outer", "inner"]


def test_tool_spans_answer_calls_by_id() -> None:
    spans = [
        span("a", output=[asks("c2", "f"), asks("c1", "f")]),
        span("t1", "execute_tool", name="f", at=2, lasts=0.25, call_id="c1", input={}, output="one"),
        span("t2", "execute_tool", name="f", at=3, call_id="c2", input={}, error="boom"),
    ]
    (step,) = steps_of(spans)
    second, first = step.tool_calls
    assert (first.call_id, first.result, first.error, first.duration_ms, first.span_id) == (
        "c1",
        "one",
        None,
        250,
        "t1",
    )
    assert (second.call_id, second.result, second.error) == ("c2", None, "boom")


def test_tool_spans_without_ids_answer_by_content_and_time() -> None:
    """The faults list: execute_tool spans of the genai instrumentor have no gen_ai.tool.call.id."""
    spans = [
        span("a", at=0, output=[asks("c1", "f", '{"x": 1, "y": 2}')]),
        span("t1", "execute_tool", name="f", at=1.5, input='{"y": 2, "x": 1}', output="one"),
        span("b", at=4, output=[asks("c2", "f", '{"x": 1, "y": 2}')]),
        span("t2", "execute_tool", name="f", at=6, input={"x": 1, "y": 2}, output="two"),
    ]
    first, second = steps_of(spans)
    assert first.tool_calls[0].result == "one"
    assert second.tool_calls[0].result == "two"


def test_a_result_is_found_in_what_the_model_was_told_next() -> None:
    answered = {"role": "tool", "tool_call_id": "c1", "content": "42"}
    spans = [
        span("a", at=0, input=[user("q")], output=[asks("c1", "f")]),
        span("b", at=2, input=[user("q"), asks("c1", "f"), answered], output=[said("it is 42")]),
    ]
    first, second = steps_of(spans)
    (call,) = first.tool_calls
    assert (call.result, call.span_id, call.duration_ms) == ("42", None, None)
    assert [each["role"] for each in second.messages] == ["tool"]


def test_tools_alone_are_steps() -> None:
    spans = [span("a", "execute_tool", name="ls", output="x"), span("b", "execute_tool", name="cd", at=2, error="no")]
    steps = steps_of(spans)
    assert [(step.tool_calls[0].name, step.error) for step in steps] == [("ls", None), ("cd", "no")]


def test_an_answer_in_several_items_is_one() -> None:
    items = [{"type": "reasoning", "summary": [{"text": "hm"}]}, said("a"), asks("c", "f")]
    (step,) = steps_of([span("a", output=items)])
    assert step.output is not None
    assert [part["type"] for part in step.output["parts"]] == ["reasoning", "text", "tool_call"]


def test_a_loop_of_parents_ends() -> None:
    spans = [span("a", parent="b", output=[said("x")]), span("b", "custom", parent="a")]
    assert [step.span_id for step in steps_of(spans)] == ["a"]
    assert len(in_time_order(spans)) == 2


OPERATIONS = st.sampled_from(["chat", "execute_tool", "custom", "invoke_agent"])
NAMES = st.sampled_from("abcdef")
VALUES = st.sampled_from([None, "x", [], {}, [user("x")], [said("y"), asks("c", "f")], 3, '[{"role": "user"}]'])


@given(st.lists(st.tuples(NAMES, OPERATIONS, NAMES, st.integers(0, 3), VALUES, VALUES), unique_by=lambda row: row[0]))
def test_any_spans_have_steps_and_their_order_does_not_matter(rows: list[tuple[Any, ...]]) -> None:
    spans = [
        span(key, operation, parent=parent, at=at, input=given_, output=got)
        for key, operation, parent, at, given_, got in rows
    ]
    steps = steps_of(spans)
    assert steps_of(list(reversed(spans))) == steps
    assert len({step.span_id for step in steps}) == len(steps)


def chain(number: int) -> list[Span]:
    """Calls deep below a chain of other spans."""
    inner = [span(f"c{n}", "custom", parent=f"c{n - 1}" if n else None, at=n) for n in range(number)]
    return inner + [span(f"m{n}", parent=f"c{number - 1 - n % 50}", at=number + n) for n in range(number)]


def past_tools(number: int) -> list[Span]:
    """Calls of one tool that ended before a model ever asked for it."""
    tools = [span(f"t{n}", "execute_tool", name="f", at=n, lasts=0.5) for n in range(number)]
    return tools + [span(f"m{n}", at=number + n, input=[user(str(n))], output=[asks(None, "f")]) for n in range(number)]


def branches(number: int) -> list[Span]:
    """Conversations that begin alike."""
    return [span(f"m{n}", at=n, input=[user("system"), user(str(n))], output=[said("x")]) for n in range(number)]


def additions(number: int) -> list[Span]:
    """One conversation, each call with what is new."""
    offset = [{"input_offset": 2 * n} if n else {} for n in range(number)]
    return [span(f"m{n}", at=n, input=[user(str(n))], output=[said("x")], **offset[n]) for n in range(number)]


@pytest.mark.parametrize("made", [chain, past_tools, branches, additions])
def test_time_grows_with_the_number_of_spans(made: Any) -> None:
    def seconds(number: int) -> float:
        spans = made(number)
        begun = time.thread_time()
        steps_of(spans)
        return time.thread_time() - begun

    few = min(seconds(500) for _ in range(3))
    assert min(seconds(5_000) for _ in range(2)) < 50 * few, "100 times as long where it grew with the square"


def test_calls_at_the_same_time_with_the_same_arguments_take_a_span_each() -> None:
    tools = [span(f"t{n}", "execute_tool", name="f", at=1, lasts=n, output=n) for n in (1, 2)]
    both = {"role": "assistant", "tool_calls": [asks(None, "f")["tool_calls"][0]] * 2}
    (step,) = steps_of([span("m", output=[both]), *tools])
    assert [call.result for call in step.tool_calls] == [1, 2]


def test_a_tool_span_without_recorded_arguments_answers_by_its_name() -> None:
    """As where a program keeps contents out of its records."""
    tool = span("t", "execute_tool", name="f", at=1, output=5)
    (step,) = steps_of([span("m", output=[asks(None, "f", '{"a": 1}')]), tool])
    assert [call.result for call in step.tool_calls] == [5]
