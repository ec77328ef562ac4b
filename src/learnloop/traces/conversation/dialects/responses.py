"""OpenAI's responses API: items in, items out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from learnloop.traces.conversation.dialects.base import (
    Answer,
    Asked,
    Body,
    add_text,
    join_texts,
    mapping,
    named,
    present,
    request_attributes,
    sequence,
)
from learnloop.traces.conversation.dialects.chat_completions import usage_of
from learnloop.traces.conversation.messages import Message, message, messages_of, read_message, text_part

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


class Responses:
    """``POST /responses``."""

    operation = "chat"

    def asked(self, body: Body) -> Asked:
        """Returns what a request says; where it goes on with an earlier response, only what it adds."""
        instructions = body.get("instructions")
        messages = [message("system", text_part(instructions))] if isinstance(instructions, str) else []
        messages += _joined(messages_of(body.get("input")))
        attributes = request_attributes(body)
        attributes |= present(
            previous_response_id=body.get("previous_response_id"), conversation_id=_conversation(body)
        )
        return Asked(named(body.get("model")), messages, attributes, bool(body.get("stream")))

    def answer(self, body: Body) -> Answer:
        """Returns what a response says; its items are one answer."""
        output = [read_message({"role": "assistant", **mapping(item)}) for item in map(_without_role, _items(body))]
        parts = [part for each in output for part in each["parts"]]
        status = named(body.get("status"))
        incomplete = mapping(body.get("incomplete_details")).get("reason")
        error = mapping(body.get("error")).get("message")
        return Answer([message("assistant", *parts)] if parts else [], present(
            finish_reasons=[incomplete or status] if status else None,
            response_id=body.get("id"),
            model=body.get("model"),
            usage=usage_of(mapping(body.get("usage"))) or None,
            error=error,
        ))  # fmt: skip

    def assembled(self, chunks: Sequence[Body]) -> Body:
        """Returns the response of the last event; where the stream broke off, the items and texts that came."""
        begun: dict[str, Any] = {}
        items: dict[int, dict[str, Any]] = {}
        for chunk in chunks:
            kind = named(chunk.get("type"))
            if kind in _ENDS:
                return mapping(chunk.get("response"))
            if isinstance(chunk.get("response"), dict):
                begun = dict(chunk["response"])
            place = chunk.get("output_index")
            if isinstance(place, int):
                _take(items, place, kind, chunk)
        return {**begun, "output": [_whole(items[place]) for place in sorted(items)]}


def _joined(messages: Sequence[Message]) -> list[Message]:
    """Returns messages with the items of each answer in one, as ``answer`` reads them: text, calls, reasoning."""
    joined: list[Message] = []
    for each in messages:
        if joined and joined[-1]["role"] == each["role"] == "assistant":
            joined[-1] = {**joined[-1], "parts": [*joined[-1]["parts"], *each["parts"]]}
        else:
            joined.append(each)
    return joined


def _take(items: dict[int, dict[str, Any]], place: int, kind: str, chunk: Body) -> None:
    if kind in ("response.output_item.added", "response.output_item.done"):
        items[place] = dict(mapping(chunk.get("item")))
        return
    item = items.setdefault(place, {})
    delta = chunk.get("delta")
    if not isinstance(delta, str):
        return
    if kind == "response.output_text.delta":
        item.setdefault("type", "message")
        add_text(item, "_text", delta)
    elif kind == "response.function_call_arguments.delta":
        add_text(item, "arguments", delta)


def _whole(item: dict[str, Any]) -> dict[str, Any]:
    text = join_texts(item).pop("_text", None)
    return item if text is None else {**item, "content": [{"type": "output_text", "text": text}]}


def _items(body: Body) -> Sequence[Any]:
    return sequence(body.get("output"))


def _without_role(item: Any) -> Any:
    """Returns an item as ``read_message`` knows it: calls and reasoning have no role, messages have."""
    if isinstance(item, dict) and item.get("type") not in (None, "message"):
        return read_message({key: value for key, value in item.items() if key != "role"})
    return item


def _conversation(body: Body) -> str | None:
    conversation = body.get("conversation")
    found = conversation if isinstance(conversation, str) else mapping(conversation).get("id")
    return found if isinstance(found, str) else None
