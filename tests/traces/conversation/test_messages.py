"""Messages of every dialect become the same ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.traces.conversation.messages import (
    as_text,
    fingerprint,
    messages_of,
    read_message,
    text_of,
    tool_calls_of,
    tool_responses_of,
)

ARGUMENTS = {"city": "Paris", "days": 2}

CALLS: dict[str, list[dict[str, Any]]] = {
    "openai chat": [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": json.dumps(ARGUMENTS)},
                }
            ],
        }
    ],
    "openai, arguments as an object": [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [{"id": "c1", "name": "weather", "arguments": ARGUMENTS}],
        }
    ],
    "anthropic": [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": ARGUMENTS},
            ],
        }
    ],
    "genai": [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "Let me look."},
                {"type": "tool_call", "id": "c1", "name": "weather", "arguments": json.dumps(ARGUMENTS)},
            ],
            "finish_reason": "tool_call",
        }
    ],
    "old gemini words": [
        {
            "role": "model",
            "parts": [
                {"type": "text", "content": "Let me look."},
                {"type": "tool_call", "id": "c1", "name": "weather", "arguments": ARGUMENTS},
            ],
        }
    ],
}

RESULTS: dict[str, dict[str, Any]] = {
    "openai chat": {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    "openai chat, blocks": {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]},
    "responses": {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    "genai": {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "sunny"}]},
    "genai, as its registry shows it": {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": "c1", "result": "sunny"}],
    },
}


@pytest.mark.parametrize("dialect", CALLS)
def test_a_call_is_the_same_in_every_dialect(dialect: str) -> None:
    (said,) = messages_of(CALLS[dialect])
    assert said["role"] == "assistant"
    assert text_of(said) == "Let me look."
    assert tool_calls_of(said) == [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": ARGUMENTS}]


def test_dialects_have_one_fingerprint() -> None:
    assert len({fingerprint(messages_of(each)[0]) for each in CALLS.values()}) == 1
    assert len({fingerprint(read_message(each)) for each in RESULTS.values()}) == 1


@pytest.mark.parametrize("dialect", RESULTS)
def test_a_result_is_the_same_in_every_dialect(dialect: str) -> None:
    said = read_message(RESULTS[dialect])
    assert said == {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "sunny"}]}


def test_anthropic_gives_results_as_the_user() -> None:
    block = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "no"}], "is_error": True}
    said = read_message({"role": "user", "content": [block]})
    assert said["role"] == "user"
    (part,) = tool_responses_of(said)
    assert (part["id"], part["response"], part["is_error"]) == ("c1", "no", True)


def test_items_of_the_responses_api() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "greet"}]},
        {"type": "function_call", "call_id": "c1", "id": "fc", "name": "wave", "arguments": "{}"},
    ]
    user, thought, call = messages_of(items)
    assert text_of(user) == "hi"
    assert thought["parts"] == [{"type": "reasoning", "content": "greet"}]
    assert tool_calls_of(call) == [{"type": "tool_call", "id": "c1", "name": "wave", "arguments": {}}]


@pytest.mark.parametrize(
    ("role", "ours"), [("developer", "system"), ("human", "user"), ("ai", "assistant"), ("critic", "critic")]
)
def test_roles(role: str, ours: str) -> None:
    assert read_message({"role": role, "content": "x"})["role"] == ours


def test_a_text_is_what_the_user_said() -> None:
    assert messages_of("hello") == [{"role": "user", "parts": [{"type": "text", "content": "hello"}]}]
    assert messages_of(None) == []
    assert messages_of({"messages": [{"role": "user", "content": "a"}]}) == messages_of(
        '[{"role": "user", "content": "a"}]'
    )


def test_arguments_that_are_no_json_stay_as_they_were_sent() -> None:
    """Models write broken JSON; what they wrote is what is learned from."""
    call = {"id": "c", "function": {"name": "f", "arguments": '{"a": '}}
    said = read_message({"role": "assistant", "content": None, "tool_calls": [call]})
    assert tool_calls_of(said)[0]["arguments"] == '{"a": '


def test_reasoning_and_ids_do_not_make_a_message_another_one() -> None:
    sent = {"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}
    assert fingerprint(read_message(sent)) == fingerprint(read_message({"role": "assistant", "content": "4"}))
    assert fingerprint(read_message(sent)) != fingerprint(read_message({"role": "assistant", "content": "5"}))
    assert fingerprint(read_message({"role": "user", "content": "4"})) != fingerprint(read_message(sent))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["role", "content", "parts", "type", "tool_calls", "function", "id", "name", "text", "input"])
ODD = st.dictionaries(KEYS, JSON | st.lists(st.dictionaries(KEYS, JSON, max_size=4), max_size=3), max_size=6)


@given(st.lists(ODD | JSON, max_size=4) | ODD | JSON)
def test_anything_becomes_messages(value: Any) -> None:
    for said in messages_of(value):
        assert isinstance(said["role"], str)
        assert all(isinstance(part, dict) for part in said["parts"])
        fingerprint(said)
        assert isinstance(text_of(said), str)


@given(JSON)
def test_as_text_is_text(value: Any) -> None:
    assert isinstance(as_text(value), str)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "thinking", "content": "I think so"},
        {"type": "thinking", "thinking": "so", "signature": "s"},
        {"type": "tool_use", "id": "1", "name": "n", "arguments": {"a": 1}},
        {"type": "tool_result", "id": "1", "result": "r"},
        {"type": "refusal", "refusal": "no"},
        {"type": "output_text", "text": "yes", "annotations": [1]},
    ],
)
def test_parts_of_other_conventions_stay_as_they_are(part: dict[str, Any]) -> None:
    """Among GenAI parts these types mean nothing: what they hold is kept, all of it."""
    assert read_message({"role": "assistant", "parts": [part]})["parts"] == [part]


def test_the_text_of_a_block_is_its_text() -> None:
    said = read_message({"role": "user", "content": [{"type": "text", "text": "a", "content": "b"}]})
    assert said["parts"] == [{"type": "text", "content": "a"}]
