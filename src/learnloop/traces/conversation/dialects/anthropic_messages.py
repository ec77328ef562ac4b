"""Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from learnloop.traces.conversation.dialects import base
from learnloop.traces.conversation.dialects.base import Body, ModelRequest, ModelResponse, add_text, join_texts
from learnloop.traces.conversation.messages import parsed, read_message
from learnloop.traces.json_values import anthropic_usage, known_integer, known_list, known_object, known_text, present

_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class AnthropicMessages(base.Dialect):
    """``POST /messages``."""

    def read_request(self, body: Body) -> ModelRequest:
        """Returns what a request says, its system prompt as the first message."""
        system = body.get("system")
        messages = [read_message({"role": "system", "content": system})] if system else []
        return base.request_of(body, [*messages, *map(read_message, known_list(body.get("messages")))])

    def read_response(self, body: Body) -> ModelResponse:
        """Returns what a response says."""
        content = body.get("content")
        output = [read_message({"role": "assistant", "content": content})] if content is not None else []
        return base.response_of(body, output, [body.get("stop_reason")], usage=anthropic_usage(body.get("usage")))

    def join_chunks(self, chunks: Sequence[Body]) -> Body:
        """Returns the message that the events make together."""
        made: dict[str, Any] = {}
        blocks: dict[int, dict[str, Any]] = {}
        for chunk in chunks:
            kind = chunk.get("type")
            if kind == "message_start":
                made.update(known_object(chunk.get("message")))
            elif kind == "content_block_start":
                blocks[known_integer(chunk.get("index")) or 0] = dict(known_object(chunk.get("content_block")))
            elif kind == "content_block_delta":
                _add(blocks.setdefault(known_integer(chunk.get("index")) or 0, {}), known_object(chunk.get("delta")))
            elif kind == "message_delta":
                made.update(present(known_object(chunk.get("delta"))))
                made["usage"] = {**known_object(made.get("usage")), **present(known_object(chunk.get("usage")))}
        if blocks:
            made["content"] = [_close(blocks[index]) for index in sorted(blocks)]
        return made


def _add(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    kind = known_text(delta.get("type")) or ""
    if kind in _DELTAS:
        add_text(block, _DELTAS[kind], delta.get(_DELTAS[kind]))
    elif kind == "input_json_delta":
        add_text(block, "_json", delta.get("partial_json"))


def _close(block: dict[str, Any]) -> dict[str, Any]:
    written = join_texts(block).pop("_json", None)
    return block if not written else {**block, "input": parsed(written)}
