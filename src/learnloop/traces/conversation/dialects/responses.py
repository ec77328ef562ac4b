"""OpenAI's responses API: items in, items out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from learnloop.traces.conversation.dialects import base
from learnloop.traces.conversation.dialects.base import Body, ModelRequest, ModelResponse, add_text, join_texts
from learnloop.traces.conversation.messages import Message, message, messages_of, read_message, text_part
from learnloop.traces.json_values import find, known_list, known_object, known_text

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


class Responses(base.Dialect):
    """``POST /responses``."""

    def read_request(self, body: Body) -> ModelRequest:
        """Returns what a request says; where it goes on with an earlier response, only what it adds."""
        instructions = body.get("instructions")
        messages = [message("system", text_part(instructions))] if isinstance(instructions, str) else []
        messages += _join_answers(messages_of(body.get("input")))
        conversation = body.get("conversation")
        return base.request_of(
            body,
            messages,
            previous_response_id=body.get("previous_response_id"),
            conversation_id=known_text(conversation) or known_text(find(conversation, "id")),
        )

    def read_response(self, body: Body) -> ModelResponse:
        """Returns what a response says; its items are one answer."""
        items = map(_without_role, known_list(body.get("output")))
        parts = [part for item in items for part in read_message({"role": "assistant", **known_object(item)})["parts"]]
        status = known_text(body.get("status"))
        reasons = [find(body, "incomplete_details", "reason") or status] if status else []
        output = [message("assistant", *parts)] if parts else []
        return base.response_of(body, output, reasons, error=find(body, "error", "message"))

    def join_chunks(self, chunks: Sequence[Body]) -> Body:
        """Returns the response of the last event; where the stream broke off, the items and texts that came."""
        begun: dict[str, Any] = {}
        items: dict[int, dict[str, Any]] = {}
        for chunk in chunks:
            kind = known_text(chunk.get("type")) or ""
            if kind in _ENDS:
                return known_object(chunk.get("response"))
            if isinstance(chunk.get("response"), dict):
                begun = dict(chunk["response"])
            place = chunk.get("output_index")
            if isinstance(place, int):
                _take(items, place, kind, chunk)
        return {**begun, "output": [_whole(items[place]) for place in sorted(items)]}


def _join_answers(messages: Sequence[Message]) -> list[Message]:
    """Returns messages with the items of each answer in one, as ``read_response`` gives them."""
    joined: list[Message] = []
    for each in messages:
        if joined and joined[-1]["role"] == each["role"] == "assistant":
            joined[-1] = {**joined[-1], "parts": [*joined[-1]["parts"], *each["parts"]]}
        else:
            joined.append(each)
    return joined


def _take(items: dict[int, dict[str, Any]], place: int, kind: str, chunk: Body) -> None:
    if kind in ("response.output_item.added", "response.output_item.done"):
        items[place] = dict(known_object(chunk.get("item")))
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


def _without_role(item: Any) -> Any:
    """Returns an item as ``read_message`` knows it: calls and reasoning have no role, messages have."""
    if isinstance(item, dict) and item.get("type") not in (None, "message"):
        return read_message({key: value for key, value in item.items() if key != "role"})
    return item
