"""Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from learnloop.traces.conversation.dialects.base import (
    Answer,
    Asked,
    Body,
    add_text,
    integer,
    join_texts,
    mapping,
    named,
    present,
    request_attributes,
    sequence,
)
from learnloop.traces.conversation.messages import parsed, read_message

_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class AnthropicMessages:
    """``POST /messages``."""

    operation = "chat"

    def asked(self, body: Body) -> Asked:
        """Returns what a request says, its system prompt as the first message."""
        system = body.get("system")
        messages = [read_message({"role": "system", "content": system})] if system else []
        messages += [read_message(each) for each in sequence(body.get("messages"))]
        return Asked(named(body.get("model")), messages, request_attributes(body), bool(body.get("stream")))

    def answer(self, body: Body) -> Answer:
        """Returns what a response says."""
        content = body.get("content")
        output = [read_message({"role": "assistant", "content": content})] if content is not None else []
        reason = body.get("stop_reason")
        return Answer(output, present(
            finish_reasons=[reason] if reason else None,
            response_id=body.get("id"),
            model=body.get("model"),
            usage=_usage(mapping(body.get("usage"))) or None,
        ))  # fmt: skip

    def assembled(self, chunks: Sequence[Body]) -> Body:
        """Returns the message that the events make together."""
        made: dict[str, Any] = {}
        blocks: dict[int, dict[str, Any]] = {}
        for chunk in chunks:
            kind = chunk.get("type")
            if kind == "message_start":
                made.update(mapping(chunk.get("message")))
            elif kind == "content_block_start":
                blocks[integer(chunk.get("index")) or 0] = dict(mapping(chunk.get("content_block")))
            elif kind == "content_block_delta":
                _add(blocks.setdefault(integer(chunk.get("index")) or 0, {}), mapping(chunk.get("delta")))
            elif kind == "message_delta":
                made.update(present(**mapping(chunk.get("delta"))))
                made["usage"] = {**mapping(made.get("usage")), **present(**mapping(chunk.get("usage")))}
        if blocks:
            made["content"] = [_closed(blocks[index]) for index in sorted(blocks)]
        return made


def _add(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    kind = named(delta.get("type"))
    if kind in _DELTAS:
        add_text(block, _DELTAS[kind], delta.get(_DELTAS[kind]))
    elif kind == "input_json_delta":
        add_text(block, "_json", delta.get("partial_json"))


def _closed(block: dict[str, Any]) -> dict[str, Any]:
    written = join_texts(block).pop("_json", None)
    return block if not written else {**block, "input": parsed(written)}


def _usage(usage: Mapping[str, Any]) -> dict[str, int]:
    """Returns the counts of tokens; the input is all of it, what was read from and written to the cache included."""
    fresh, read, written = (
        integer(usage.get(name)) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    counts = {
        "input_tokens": None if fresh is None else fresh + (read or 0) + (written or 0),
        "output_tokens": integer(usage.get("output_tokens")),
        "cached_input_tokens": read,
        "cache_write_input_tokens": written,
    }
    return {name: count for name, count in counts.items() if count is not None}
