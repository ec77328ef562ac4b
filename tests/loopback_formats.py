"""The wire formats of ``tests/loopback.py``: an ``Answer`` as three APIs send it, whole and as server-sent events."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

JSON = dict[str, Any]
CREATED = 1_700_000_000
"""Seconds since 1970, in each answer that has a time."""
_PIECE = re.compile(r"\S*\s*")


class ToolCall(NamedTuple):
    """A call of a tool that the model wants."""

    name: str
    arguments: Mapping[str, Any] = {}  # never changed
    id: str = "call_1"


class Answer(NamedTuple):
    """What the model says: text, calls of tools, or both."""

    text: str | None = None
    tool_calls: Sequence[ToolCall] = ()
    num_input_tokens: int = 5
    num_output_tokens: int = 2
    finish_reason: str | None = None
    """As OpenAI's chat completions name it; None: ``tool_calls`` where there are some, else ``stop``."""
    logprobs: Sequence[float] = ()
    """One for each piece of the text (a word and the space behind it); chat completions only, where asked for."""
    delay_seconds: float = 0.0
    """Before the first byte."""
    pause_seconds: float = 0.0
    """Before each event of a stream but the first."""
    gate: threading.Event | None = None
    """A stream goes on behind its second event when this is set; of chat completions that is its first word."""
    cut_after: int | None = None
    """A stream: the connection is closed after so many events, without its end."""
    headers: tuple[tuple[str, str], ...] = ()


def pieces(text: str) -> list[str]:
    """Returns words, each with the space behind it; they are the deltas of a stream."""
    return [piece for piece in _PIECE.findall(text) if piece]


def prompt_of(path: str, body: JSON) -> str:
    """Returns the text of the last message of a request of any of the three APIs."""
    last = body.get("input", "") if path.endswith("/responses") else body["messages"]
    if isinstance(last, list):
        last = last[-1] if last else ""
    if isinstance(last, dict):
        last = last.get("content", last.get("output", ""))
    if isinstance(last, list):
        last = "".join(part.get("text") or str(part.get("content", "")) for part in last)
    return last or ""


# OpenAI, embeddings --------------------------------------------------------------------------------------------------


def vector_of(text: str) -> list[float]:
    """Returns four numbers that depend on a text, at no length in particular."""
    return [byte - 127.5 for byte in hashlib.sha256(text.encode()).digest()[:4]]


def embeddings(vector: Callable[[str], Sequence[float]], body: JSON) -> JSON:
    """Returns an answer of ``POST /v1/embeddings``, the last text first; a token for each word."""
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    data = []
    for index, text in enumerate(texts):
        numbers: Any = list(vector(text))
        if body.get("encoding_format") == "base64":
            numbers = base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
        data.insert(0, {"object": "embedding", "index": index, "embedding": numbers})
    num_tokens = sum(len(text.split()) for text in texts)
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


# OpenAI, chat completions --------------------------------------------------------------------------------------------


def chat_completion(answer: Answer, body: JSON, number: int) -> JSON:
    """Returns an answer of ``POST /v1/chat/completions``."""
    message: JSON = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.tool_calls:
        message["tool_calls"] = [_chat_call(call) for call in answer.tool_calls]
    choice: JSON = {"index": 0, "message": message, "finish_reason": _chat_reason(answer), "logprobs": None}
    if body.get("logprobs"):
        choice["logprobs"] = _logprobs(answer, range(len(answer.logprobs)))
    return {**_chat_head(body, number, "chat.completion"), "choices": [choice], "usage": _chat_usage(answer)}


def chat_events(answer: Answer, body: JSON, number: int) -> Iterator[str]:
    """Yields the events of a stream; one with the usage where ``stream_options.include_usage`` is set."""
    head = _chat_head(body, number, "chat.completion.chunk")
    with_usage = bool((body.get("stream_options") or {}).get("include_usage"))

    def event(delta: JSON, reason: str | None = None, logprobs: JSON | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": logprobs}
        return _data({**head, "choices": [choice], **({"usage": None} if with_usage else {})})

    yield event({"role": "assistant", "content": None if answer.text is None else ""})
    for place, piece in enumerate(pieces(answer.text or "")):
        asked = body.get("logprobs") and place < len(answer.logprobs)
        yield event({"content": piece}, logprobs=_logprobs(answer, [place]) if asked else None)
    for index, call in enumerate(answer.tool_calls):
        start = _chat_call(call)
        start["function"]["arguments"] = ""
        yield event({"tool_calls": [{"index": index, **start}]})
        for piece in pieces(json.dumps(dict(call.arguments))):
            yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield event({}, _chat_reason(answer))
    if with_usage:
        yield _data({**head, "choices": [], "usage": _chat_usage(answer)})
    yield "data: [DONE]\n\n"


def _chat_head(body: JSON, number: int, kind: str) -> JSON:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": CREATED, "model": body.get("model", "")}


def _chat_call(call: ToolCall) -> JSON:
    function = {"name": call.name, "arguments": json.dumps(dict(call.arguments))}
    return {"id": call.id, "type": "function", "function": function}


def _chat_reason(answer: Answer) -> str:
    return answer.finish_reason or ("tool_calls" if answer.tool_calls else "stop")


def _chat_usage(answer: Answer) -> JSON:
    prompt, completion = answer.num_input_tokens, answer.num_output_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _logprobs(answer: Answer, places: Sequence[int]) -> JSON:
    words = pieces(answer.text or "")
    content = [
        {"token": words[place], "bytes": None, "logprob": answer.logprobs[place], "top_logprobs": []}
        for place in places
    ]
    return {"content": content, "refusal": None}


# OpenAI, responses ---------------------------------------------------------------------------------------------------


def response(answer: Answer, body: JSON, number: int) -> JSON:
    """Returns an answer of ``POST /v1/responses``."""
    items = [] if answer.text is None else [_message_item(answer.text, number)]
    items += [_call_item(call) for call in answer.tool_calls]
    prompt, completion = answer.num_input_tokens, answer.num_output_tokens
    return {
        **_response_head(body, number, "completed"),
        "output": items,
        "usage": {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + completion,
        },
    }


def response_events(answer: Answer, body: JSON, number: int) -> Iterator[str]:
    """Yields the events of a stream."""
    begun = {**_response_head(body, number, "in_progress"), "output": [], "usage": None}
    sequence = iter(range(1_000_000))

    def event(kind: str, **fields: Any) -> str:
        return _named({"type": kind, "sequence_number": next(sequence), **fields})

    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    whole = response(answer, body, number)
    for index, item in enumerate(whole["output"]):
        for kind, fields in _item_events(item):
            yield event(kind, output_index=index, **fields)
    yield event("response.completed", response=whole)


def _item_events(item: JSON) -> Iterator[tuple[str, JSON]]:
    where = {"item_id": item["id"]}
    if item["type"] == "message":
        part = item["content"][0]
        place = {**where, "content_index": 0}
        yield "response.output_item.added", {"item": {**item, "status": "in_progress", "content": []}}
        yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
        for piece in pieces(part["text"]):
            yield "response.output_text.delta", {**place, "delta": piece, "logprobs": []}
        yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
        yield "response.content_part.done", {**place, "part": part}
    else:
        yield "response.output_item.added", {"item": {**item, "status": "in_progress", "arguments": ""}}
        for piece in pieces(item["arguments"]):
            yield "response.function_call_arguments.delta", {**where, "delta": piece}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield "response.function_call_arguments.done", {**where, **done}
    yield "response.output_item.done", {"item": item}


def _response_head(body: JSON, number: int, status: str) -> JSON:
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "model": body.get("model", ""),
        "parallel_tool_calls": True,
        "temperature": body.get("temperature", 1.0),
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "top_p": 1.0,
    }


def _message_item(text: str, number: int) -> JSON:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def _call_item(call: ToolCall) -> JSON:
    return {
        "id": f"fc_{call.id}",
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": json.dumps(dict(call.arguments)),
        "status": "completed",
    }


# Anthropic, messages -------------------------------------------------------------------------------------------------

_STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}


def message(answer: Answer, body: JSON, number: int) -> JSON:
    """Returns an answer of ``POST /v1/messages``."""
    blocks: list[JSON] = [] if answer.text is None else [{"type": "text", "text": answer.text, "citations": None}]
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}
        for call in answer.tool_calls
    ]
    reason = _chat_reason(answer)
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", ""),
        "content": blocks,
        "stop_reason": _STOP_REASONS.get(reason, reason),
        "stop_sequence": None,
        "usage": {"input_tokens": answer.num_input_tokens, "output_tokens": answer.num_output_tokens},
    }


def message_events(answer: Answer, body: JSON, number: int) -> Iterator[str]:
    """Yields the events of a stream."""
    whole = message(answer, body, number)
    usage = {"input_tokens": answer.num_input_tokens, "output_tokens": 1}
    yield _named({"type": "message_start", "message": {**whole, "content": [], "stop_reason": None, "usage": usage}})
    yield _named({"type": "ping"})
    for index, block in enumerate(whole["content"]):
        is_text = block["type"] == "text"
        empty: JSON = {"text": ""} if is_text else {"input": {}}
        yield _named({"type": "content_block_start", "index": index, "content_block": {**block, **empty}})
        for piece in pieces(block["text"] if is_text else json.dumps(block["input"])):
            delta = {"type": "text_delta", "text": piece}
            if not is_text:
                delta = {"type": "input_json_delta", "partial_json": piece}
            yield _named({"type": "content_block_delta", "index": index, "delta": delta})
        yield _named({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield _named({"type": "message_delta", "delta": delta, "usage": {"output_tokens": answer.num_output_tokens}})
    yield _named({"type": "message_stop"})


def _data(value: JSON) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _named(value: JSON) -> str:
    return f"event: {value['type']}\n{_data(value)}"
