"""What was said to a model and by it, from each of the ways in which instruments have written it down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from learnloop.traces.conversation.messages import Message, message, messages_of, parsed, read_message, text_part
from learnloop.traces.json_values import find
from learnloop.traces.otlp.aliases import MESSAGE_EVENTS

MAX_NESTING = 64
"""How deep the attributes of a span may be nested; deeper ones are cut, value by value."""
_MAX_INDEX_DIGITS = 6

Group = Mapping[str, Any]
"""Attributes of one prefix, by what follows it."""


def genai_messages(value: Any) -> list[Message]:
    """Returns the messages of ``gen_ai.input.messages`` and the like; those in our shape already stay as they are."""
    value = parsed(value)
    if not isinstance(value, list):
        return messages_of(value)
    return [_drop_empty_name(each) if _is_message(each) else read_message(each) for each in value]


def system_message(value: Any) -> list[Message]:
    """Returns ``gen_ai.system_instructions``, which is a list of parts, as a message; none where it is empty."""
    parts = parsed(value)
    if isinstance(parts, str) and parts:
        return [message("system", text_part(parts))]
    if not isinstance(parts, list) or not parts:
        return []
    if all(isinstance(part, dict) and "role" in part for part in parts):
        return [read_message(part) for part in parts]
    return [read_message({"role": "system", "parts": parts})]


def openinference_messages(group: Group) -> list[Message]:
    """Returns the messages of ``llm.input_messages.N...``."""
    return [_openinference_message(each) for each in nested(group)]


def traceloop_messages(group: Group, role: str) -> list[Message]:
    """Returns the messages of ``gen_ai.prompt.N...``; ``role`` is that of one that does not say."""
    made = []
    for raw in nested(group):
        if isinstance(raw, dict):
            content = raw.get("content")
            blocks = parsed(content)
            is_blocks = isinstance(blocks, list) and all(isinstance(each, dict) and "type" in each for each in blocks)
            made.append(read_message({"role": role, **raw, "content": blocks if is_blocks else content}))
        else:
            made.append(message(role, text_part(str(raw))))
    return made


def plain_texts(group: Group, role: str) -> list[Message]:
    """Returns the messages of ``llm.prompts.N.prompt.text`` and ``llm.choices.N.completion.text``."""
    texts: list[Message] = []
    for raw in nested(group):
        inner = next(iter(raw.values()), None) if isinstance(raw, dict) else None
        text = inner.get("text") if isinstance(inner, dict) else None
        if isinstance(text, str):
            texts.append(message(role, text_part(text)))
    return texts


def tool_definitions(group: Group) -> list[Any]:
    """Returns the tools of ``llm.tools.N.tool.json_schema``, or of ``llm.request.functions.N...``."""
    found = []
    for raw in nested(group):
        schema = find(raw, "tool", "json_schema")
        if schema is not None:
            found.append(parsed(schema))
        elif isinstance(raw, dict):
            found.append({name: parsed(value) for name, value in raw.items()})
    return found


def event_messages(events: Iterable[tuple[str, Any]]) -> tuple[list[Message], list[Message]]:
    """Returns input and output that message events say, each given by its name and its body or attributes."""
    said: list[Message] = []
    answered: list[Message] = []
    for name, raw in events:
        role = MESSAGE_EVENTS[name]
        body = _event_body(raw)
        if role == "choice":
            inner = parsed(body.get("message", body))
            answer = inner if isinstance(inner, dict) else {"content": inner}
            answered.append(read_message(_with_calls({**answer, "role": "assistant"})))
        else:
            given = {"role": role, **body}
            if role == "tool":
                given.setdefault("tool_call_id", body.get("id"))
            said.append(read_message(_with_calls(given)))
    return said, answered


def nested(group: Group) -> list[Any]:
    """Returns the list that attributes such as ``0.message.role`` are spread from, in the order of its indices."""
    root: dict[str, Any] = {}
    for path, value in group.items():
        keys = path.split(".")
        if len(keys) > MAX_NESTING:
            continue
        place = root
        for key in keys[:-1]:
            inner = place.get(key)
            if not isinstance(inner, dict):
                inner = place[key] = {}
            place = inner
        if not isinstance(place.get(keys[-1]), dict):
            place[keys[-1]] = value
    made = _with_lists(root)
    return made if isinstance(made, list) else []


def _with_lists(value: dict[str, Any]) -> Any:
    """Returns ``value`` with each object whose keys are all numbers as a list."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            value[key] = _with_lists(inner)
    if next(iter(value), "").isdecimal() and all(map(_is_index, value)):
        return [value[key] for key in sorted(value, key=int)]
    return value


def _is_index(key: str) -> bool:
    return key.isdecimal() and key.isascii() and len(key) <= _MAX_INDEX_DIGITS


def _openinference_message(raw: Any) -> Message:
    said = raw.get("message") if isinstance(raw, dict) else None
    if not isinstance(said, dict):
        return read_message(raw)
    given = {**said}
    contents = given.pop("contents", None)
    if isinstance(contents, list):
        blocks = [_unwrap(each, "message_content") for each in contents]
        text = given.get("content")
        given["content"] = [text_part(text), *blocks] if isinstance(text, str) and text else blocks
    calls = given.get("tool_calls")
    if isinstance(calls, list):
        given["tool_calls"] = [_unwrap(each, "tool_call") for each in calls]
    name = given.pop("function_call_name", None)
    if isinstance(name, str):
        given["function_call"] = {"name": name, "arguments": given.pop("function_call_arguments_json", None)}
    return read_message(given)


def _unwrap(raw: Any, name: str) -> Any:
    return raw.get(name, raw) if isinstance(raw, dict) else raw


def _event_body(raw: Any) -> dict[str, Any]:
    if isinstance(raw, Mapping):
        raw = raw.get("gen_ai.event.content", raw)
    raw = parsed(raw)
    return dict(raw) if isinstance(raw, Mapping) else {"content": raw}


def _with_calls(raw: dict[str, Any]) -> dict[str, Any]:
    """Returns a message whose calls of tools are a list, also where an event attribute holds them as text."""
    calls = parsed(raw.get("tool_calls"))
    return {**raw, "tool_calls": calls if isinstance(calls, list) else []}


def _drop_empty_name(said: Message) -> Message:
    """Returns a message of our shape without a name that says nothing."""
    return {key: value for key, value in said.items() if value is not None} if said.get("name", "") is None else said


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("role"), str)
        and isinstance(value.get("parts"), list)
        and all(isinstance(part, dict) and "type" in part for part in value["parts"])
    )


def _depth_over(value: Any, limit: int) -> bool:
    """Returns whether ``value`` is nested deeper than ``limit``; looks at each of its parts once, without recursion."""
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def is_storable(value: Any) -> bool:
    """Returns whether a JSON value can be written, and read again: its numbers fit, and it is not nested too deep.

    That no number is NaN or infinite is seen to where the request is read.
    """
    try:
        data = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    return data.count(b"{") + data.count(b"[") <= MAX_NESTING or not _depth_over(value, MAX_NESTING)
