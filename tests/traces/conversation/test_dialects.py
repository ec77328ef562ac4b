"""What each API asks and answers, in the forms that its servers really use."""

from __future__ import annotations

from typing import Any

import pytest

from learnloop.traces.conversation.dialects import DIALECTS, dialect_of
from learnloop.traces.conversation.messages import fingerprint, text_of, tool_calls_of

CHAT, RESPONSES, CLAUDE = (DIALECTS[each] for each in ("/chat/completions", "/responses", "/messages"))


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("/chat/completions", "/chat/completions"),
        ("openai/deployments/x/chat/completions?api-version=1", "/chat/completions"),
        ("/v1/messages?beta=true", "/messages"),
        ("/completions/", "/completions"),
        ("/threads/thread_1/messages", None),
        ("/v1/messages/count_tokens", None),
        ("/messages/batches", None),
        ("/files", None),
        ("", None),
    ],
)
def test_what_asks_a_model(path: str, end: str | None) -> None:
    assert dialect_of(path) is (None if end is None else DIALECTS[end])


def test_several_answers_in_pieces_with_calls_without_index() -> None:
    def chunk(index: int, **delta: object) -> dict[str, object]:
        return {"id": "c", "choices": [{"index": index, "delta": delta}]}

    call = {"id": "1", "function": {"name": "f", "arguments": '{"a":'}}
    made = CHAT.join_chunks([
        chunk(1, content="se"), chunk(0, tool_calls=[call]), chunk(0, tool_calls=[{"function": {"arguments": "1}"}}]),
        chunk(1, content="cond"), chunk(2, refusal="no"), {"choices": [], "usage": {"prompt_tokens": 1}},
    ])  # fmt: skip
    first, second, third = CHAT.read_response(made).output
    assert [(part["name"], part["arguments"]) for part in tool_calls_of(first)] == [("f", {"a": 1})]
    assert (text_of(second), text_of(third)) == ("second", "no")
    assert CHAT.read_response(made).attributes["usage"] == {"input_tokens": 1}


def test_whole_calls_in_single_chunks_without_index_stay_apart() -> None:
    """Some servers send each parallel call whole, in a chunk of its own, and number none."""
    calls = [{"id": str(n), "function": {"name": "f", "arguments": f'{{"a": {n}}}'}} for n in range(3)]
    made = CHAT.join_chunks([{"choices": [{"index": 0, "delta": {"tool_calls": [each]}}]} for each in calls])
    (answer,) = CHAT.read_response(made).output
    assert [part["arguments"] for part in tool_calls_of(answer)] == [{"a": 0}, {"a": 1}, {"a": 2}]


def test_thinking_and_tools_of_claude_in_pieces() -> None:
    made = CLAUDE.join_chunks([
        {"type": "message_start", "message": {"id": "m", "usage": {
            "input_tokens": 3, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 7, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "let "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "me"}},
        {"type": "ping"},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t", "name": "f",
                                                                      "input": {}}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a"'}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ": 2}"}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ])  # fmt: skip
    answer = CLAUDE.read_response(made)
    (said,) = answer.output
    assert said["parts"][0] == {"type": "reasoning", "content": "let me"}
    assert [(part["id"], part["arguments"]) for part in tool_calls_of(said)] == [("t", {"a": 2})]
    assert answer.attributes["usage"] == {
        "input_tokens": 30, "output_tokens": 9, "cached_input_tokens": 20, "cache_write_input_tokens": 7,
    }  # fmt: skip


def test_an_answer_of_several_items_is_known_when_it_is_sent_again() -> None:
    items = [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "wait"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"},
    ]
    (answer,) = RESPONSES.read_response({"output": items}).output
    given = [{"role": "user", "content": "hi"}, *items, {"type": "function_call_output", "call_id": "1", "output": "x"}]
    asked = RESPONSES.read_request({"model": "m", "input": given}).messages
    assert [each["role"] for each in asked] == ["user", "assistant", "tool"]
    assert fingerprint(asked[1]) == fingerprint(answer)


def test_a_response_that_broke_off_has_what_came() -> None:
    made = RESPONSES.join_chunks([
        {"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "one "},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "two"},
        {"type": "response.output_item.added", "output_index": 1, "item": {
            "type": "function_call", "name": "f", "call_id": "1", "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"a": 1}'},
    ])  # fmt: skip
    (answer,) = RESPONSES.read_response(made).output
    assert text_of(answer) == "one two"
    assert tool_calls_of(answer)[0]["arguments"] == {"a": 1}


def test_completions_have_token_ids_and_texts() -> None:
    completions = DIALECTS["/completions"]
    assert completions.read_request({"model": "m", "prompt": [1, 2]}).attributes == {"prompt_token_ids": [1, 2]}
    pieces: list[dict[str, Any]] = [{"text": "a"}, {"text": "b", "finish_reason": "stop"}]
    made = completions.join_chunks([{"id": "r", "choices": [{"index": 0, **each}]} for each in pieces])
    answer = completions.read_response(made)
    assert [text_of(each) for each in answer.output] == ["ab"]
    assert answer.attributes == {"finish_reasons": ["stop"], "response_id": "r"}
    whole = completions.read_response({"choices": [{"text": "ab", "token_ids": [5, 6]}], "prompt_token_ids": [1]})
    assert whole.attributes["token_ids"] == {"prompt": [1], "completion": [5, 6]}
