"""Chat messages in one shape, that of OpenTelemetry GenAI, whichever API they came from.

A message is a JSON object: ``role`` (``system``, ``user``, ``assistant``, ``tool``), ``parts``, and, where known,
``name``.
A part is a JSON object with a ``type``: ``text`` (``content``), ``tool_call`` (``id``, ``name``, ``arguments``),
``tool_call_response`` (``id``, ``response``), ``reasoning`` (``content``), or any other one, kept as it came.

Source: OpenTelemetry semantic conventions for generative AI, "GenAI messages".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from learnloop.core.decoding import json_or
from learnloop.traces.json_values import known_list

Message = dict[str, Any]
Part = dict[str, Any]

_TEXT_TYPES = ("text", "input_text", "output_text", "refusal")
_ROLES = {"developer": "system", "function": "tool", "human": "user", "ai": "assistant", "model": "assistant"}
_JOINED = "\n"


def text_part(content: str) -> Part:
    """Returns a part of plain text."""
    return {"type": "text", "content": content}


def tool_call_part(call_id: str | None, name: str, arguments: Any) -> Part:
    """Returns a part that asks for a tool; arguments in JSON text are read."""
    return {"type": "tool_call", "id": _id_text(call_id), "name": name, "arguments": parsed(arguments)}


def tool_response_part(call_id: str | None, response: Any) -> Part:
    """Returns a part with what a tool gave back."""
    return {"type": "tool_call_response", "id": _id_text(call_id), "response": response}


def message(role: str, *parts: Part, name: str | None = None) -> Message:
    """Returns a message of ``parts``; other APIs' words for a role become ours."""
    made: Message = {"role": _ROLES.get(role, role), "parts": list(parts)}
    if name and isinstance(name, str):
        made["name"] = name
    return made


def parsed(value: Any) -> Any:
    """Returns the object or list that a JSON text holds, and any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        return json_or(value, value)
    return value


def messages_of(value: Any) -> list[Message]:
    """Returns what was said as messages, whichever of the known shapes ``value`` has; nothing that it holds is lost.

    A text is what the user said. A list is one of messages (or of a Responses API's items). What is no message becomes
    a part of one, as it is.
    """
    value = parsed(value)
    if value is None:
        return []
    if isinstance(value, str):
        return [message("user", text_part(value))]
    if isinstance(value, Mapping):
        inner = value.get("messages")
        return messages_of(inner) if isinstance(inner, list) else [read_message(value)]
    if isinstance(value, Sequence):
        return [message("user", text_part(each)) if isinstance(each, str) else read_message(each) for each in value]
    return [message("user", {"type": "json", "content": value})]


def read_message(raw: Any) -> Message:
    """Returns one message, from a GenAI, an OpenAI (chat or responses) or an Anthropic one."""
    if not isinstance(raw, Mapping):
        return message("user", {"type": "json", "content": raw})
    kind = raw.get("type")
    if kind in ("function_call", "custom_tool_call", "tool_call") and "role" not in raw:
        call_id = raw.get("call_id") or raw.get("id")
        return message(
            "assistant", tool_call_part(call_id, str(raw.get("name")), raw.get("arguments", raw.get("input")))
        )
    if kind in ("function_call_output", "custom_tool_call_output"):
        return message("tool", tool_response_part(raw.get("call_id"), raw.get("output")))
    if kind == "reasoning" and "role" not in raw:
        return message("assistant", *_reasoning(raw))
    role = str(raw.get("role") or ("user" if kind is None else "assistant"))
    given = raw.get("parts")
    parts = map(_genai_part, given) if isinstance(given, list) else _openai_parts(raw, role)
    return message(role, *parts, name=raw.get("name") if role not in ("tool", "function") else None)


def text_of(said: Message) -> str:
    """Returns the text of a message without its reasoning, its parts on lines of their own."""
    return _JOINED.join(
        part["content"] for part in said["parts"] if part.get("type") == "text" and isinstance(part["content"], str)
    )


def tool_calls_of(said: Message) -> list[Part]:
    """Returns the parts of a message that ask for a tool."""
    return [part for part in said["parts"] if part.get("type") == "tool_call"]


def tool_responses_of(said: Message) -> list[Part]:
    """Returns the parts of a message that a tool gave back."""
    return [part for part in said["parts"] if part.get("type") == "tool_call_response"]


def fingerprint(said: Message) -> str:
    """Returns the same short text for messages that say the same, however their APIs write it.

    Reasoning does not count: most APIs give it once and leave it out when the message is sent again.
    """
    texts, others = [], []
    for part in said["parts"]:
        kind = part.get("type")
        if kind == "text":
            texts.append(as_text(part.get("content")))
        elif kind != "reasoning":
            others.append(_essence(part))
    data = f"{said['role']}\n{''.join(texts)}".encode("utf-8", "surrogatepass")
    if others:
        data += b"\n" + msgspec.json.encode(others, order="sorted")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def flat_text(content: Any) -> Any:
    """Returns the text of a content that consists of blocks of text alone, and any other one as it is."""
    if isinstance(content, list) and content:
        texts = [
            block.get("text") if isinstance(block, Mapping) and block.get("type") in _TEXT_TYPES else None
            for block in content
        ]
        if all(isinstance(text, str) for text in texts):
            return _JOINED.join(map(str, texts))
    return content


def as_text(value: Any) -> str:
    """Returns a value as text: text as it is, nothing as nothing, all else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _openai_parts(raw: Mapping[str, Any], role: str) -> list[Part]:
    content = raw.get("content")
    if role in ("tool", "function") and not _holds_tool_result(content):
        return [tool_response_part(raw.get("tool_call_id") or raw.get("name"), flat_text(content))]
    parts: list[Part] = []
    thought = raw.get("reasoning_content") or raw.get("reasoning")
    if isinstance(thought, str) and thought:
        parts.append({"type": "reasoning", "content": thought})
    parts += _content_parts(content)
    if isinstance(raw.get("refusal"), str):
        parts.append(text_part(raw["refusal"]))
    parts += map(_openai_call, known_list(raw.get("tool_calls")))
    old = raw.get("function_call")
    if isinstance(old, Mapping):
        parts.append(tool_call_part(None, str(old.get("name")), old.get("arguments")))
    return parts


def _id_text(value: Any) -> str | None:
    """Returns an id as text: files hold numbers, too, and ids are looked up."""
    return value if value is None or isinstance(value, str) else as_text(value)


def _openai_call(call: Any) -> Part:
    if not isinstance(call, Mapping):
        return {"type": "json", "content": call}
    function = call.get("function") or call.get("custom")
    if not isinstance(function, Mapping):
        # A bare text names the tool; other clients write the name and the arguments beside the id.
        function = {"name": function, **call} if isinstance(function, str) else call
    arguments = next((function[key] for key in ("arguments", "args", "input") if key in function), None)
    return tool_call_part(call.get("id"), str(function.get("name")), arguments)


def _holds_tool_result(content: Any) -> bool:
    """Returns whether the content says itself whose result it is."""
    return isinstance(content, list) and any(
        isinstance(part, Mapping) and part.get("type") in ("tool_result", "tool_call_response") for part in content
    )


def _content_parts(content: Any) -> list[Part]:
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [text_part(content)]
    if isinstance(content, list):
        return [text_part(part) if isinstance(part, str) else _block(part) for part in content]
    return [_block(content)]


def _block(block: Any) -> Part:
    """Returns a block of an OpenAI or Anthropic message's content as a part."""
    if not isinstance(block, Mapping):
        return {"type": "json", "content": block}
    kind = block.get("type")
    if kind in _TEXT_TYPES:
        text = next((block[key] for key in ("text", "content", "refusal") if key in block), "")
        return text_part(text if isinstance(text, str) else as_text(text))
    if kind == "tool_use":
        return tool_call_part(block.get("id"), str(block.get("name")), block.get("input"))
    if kind == "tool_result":
        part = tool_response_part(block.get("tool_use_id"), flat_text(block.get("content")))
        return {**part, "is_error": True} if block.get("is_error") else part
    if kind == "thinking":
        return {"type": "reasoning", "content": block.get("thinking", "")}
    return _genai_part(block)


def _genai_part(part: Any) -> Part:
    """Returns a part of a GenAI message; what other conventions call their blocks means nothing there, and stays."""
    if not isinstance(part, Mapping):
        return text_part(part) if isinstance(part, str) else {"type": "json", "content": part}
    kind = part.get("type")
    if kind == "tool_call":
        return tool_call_part(part.get("id"), str(part.get("name")), part.get("arguments"))
    if kind == "tool_call_response":
        # The registry's own example says "result" where its schema says "response".
        return tool_response_part(part.get("id"), part.get("response", part.get("result")))
    if kind == "text":
        return text_part(as_text(part.get("content", part.get("text"))))
    return dict(part)


def _reasoning(raw: Mapping[str, Any]) -> Iterable[Part]:
    for name in ("summary", "content"):
        for block in known_list(raw.get(name)):
            text = block.get("text") if isinstance(block, Mapping) else block
            if isinstance(text, str):
                yield {"type": "reasoning", "content": text}


def _essence(part: Part) -> list[Any]:
    """Returns what makes a part the same: ids may differ where a client writes its own."""
    kind = part.get("type")
    if kind == "tool_call":
        return ["tool_call", part.get("name"), part.get("arguments")]
    if kind == "tool_call_response":
        return ["tool_call_response", as_text(part.get("response"))]
    return ["other", {key: value for key, value in part.items() if key != "id"}]
