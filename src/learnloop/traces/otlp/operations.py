"""Which operation a span is, what it is called, and what its attributes are in our words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from learnloop.traces.conversation.messages import as_text, messages_of, parsed
from learnloop.traces.conversation.steps import MODEL_OPERATIONS, TOOL_OPERATION
from learnloop.traces.json_values import present
from learnloop.traces.otlp import aliases, content
from learnloop.traces.otlp.wire import WireEvent

Groups = dict[str, dict[str, Any]]
"""Attributes that are spread over several names, by ``aliases.GROUPS``."""

_AGENT_OPERATIONS = frozenset({"invoke_agent", "create_agent"})
_MAX_NAME = 256
_COPIED = ("provider", "response_id", "conversation_id", "user_id")
_MODEL_GROUPS = ("llm_input", "llm_output", "prompt", "completion")


class Found(dict[str, tuple[int, str, Any]]):
    """The attributes that we know, by what they are: the rank of the name that was used, that name, the value."""

    def take(self, *slots: str) -> Any:
        """Removes the first of ``slots`` that is there, and returns its value; None: there is none."""
        for slot in slots:
            if slot in self:
                return self.pop(slot)[2]
        return None

    def take_name(self, slot: str) -> str:
        """Removes a short text and returns it; empty: there is none."""
        return as_text(self.pop(slot)[2])[:_MAX_NAME] if slot in self else ""


def operation_of(
    span_name: str, found: Found, groups: Groups, attributes: dict[str, Any], messages: Sequence[WireEvent]
) -> tuple[str, str]:
    """Returns operation and name of a span, and writes to ``attributes`` what it says in our words.

    What is taken is removed from ``found`` and ``groups``; what stays there is to be kept as it came.
    """
    if not (found or groups or messages):  # most spans of a program are of no model's or tool's
        return "custom", span_name
    operation = _operation(found, groups, messages)
    agent = found.take_name("agent")
    if agent:
        attributes["agent"] = agent
    for slot in _COPIED:
        if slot in found and (value := found.take(slot)) not in (None, ""):
            attributes[slot] = as_text(value)
    _note_task(found, attributes)
    if operation in MODEL_OPERATIONS:
        return operation, _model(span_name, found, groups, attributes, messages)
    if operation == TOOL_OPERATION:
        return operation, _tool(span_name, found, attributes)
    _note_usage(found, attributes)
    _note_values(found, attributes)
    if operation in _AGENT_OPERATIONS:
        return operation, agent or _suffix(span_name, operation)
    if operation == "invoke_workflow":
        return operation, found.take_name("workflow") or _suffix(span_name, operation)
    name = found.take_name("model") if operation in ("embeddings", "rerank") else None
    return operation, name or span_name


def _operation(found: Found, groups: Groups, messages: Sequence[WireEvent]) -> str:
    given = found.take("operation")
    if isinstance(given, str) and given:
        return given[:_MAX_NAME]
    if "span_kind" in found:
        return aliases.OPENINFERENCE_KINDS.get(str(found.take("span_kind")).upper(), "custom")
    for slot, table in (("request_type", aliases.REQUEST_TYPES), ("traceloop_kind", aliases.TRACELOOP_KINDS)):
        if slot in found and (kind := str(found[slot][2])) in table:
            del found[slot]
            return table[kind]
    names_model = "model" in found or "request_model" in found
    says = messages or any(name in groups for name in _MODEL_GROUPS) or "input" in found or "output" in found
    if says or (names_model and "output_tokens" in found):
        return "chat"
    return TOOL_OPERATION if "tool" in found and "tool_input" in found else "custom"


def _model(
    span_name: str, found: Found, groups: Groups, attributes: dict[str, Any], messages: Sequence[WireEvent]
) -> str:
    """Writes what a call of a model says, and returns the model."""
    said, answered = content.event_messages((each.name, each.attributes) for each in messages)
    inputs = _first_input(found, groups) or said
    if "system" in found:
        inputs = [*content.system_message(found.take("system")), *inputs]
    outputs = _first_output(found, groups) or answered
    if inputs:
        attributes["input"] = inputs
    if outputs:
        attributes["output"] = outputs
    _note_usage(found, attributes)
    _note_request(found, groups, attributes)
    requested = found.take_name("request_model")
    model = found.take_name("model")
    if model and requested and requested != model:
        attributes.setdefault("request", {})["model"] = requested
    _note_finish(found, attributes)
    _note_tokens(found, attributes)
    return model or requested or span_name


def _first_input(found: Found, groups: Groups) -> list[Any]:
    """Returns the input from the best of the ways in which it was written."""
    if "input" in found:
        return content.genai_messages(found.take("input"))
    if "llm_input" in groups:
        return content.openinference_messages(groups.pop("llm_input"))
    if "prompt" in groups:
        return content.traceloop_messages(groups.pop("prompt"), "user")
    if "llm_prompts" in groups:
        return content.plain_texts(groups.pop("llm_prompts"), "user")
    return messages_of(parsed(found.take("prompt_text", "input_value")))


def _first_output(found: Found, groups: Groups) -> list[Any]:
    if "output" in found:
        return content.genai_messages(found.take("output"))
    if "llm_output" in groups:
        return content.openinference_messages(groups.pop("llm_output"))
    if "completion" in groups:
        return content.traceloop_messages(groups.pop("completion"), "assistant")
    if "llm_choices" in groups:
        return content.plain_texts(groups.pop("llm_choices"), "assistant")
    said = parsed(found.take("completion_text", "output_value"))
    if isinstance(said, dict) and isinstance(said.get("choices"), list):  # the answer of a chat API, as it came
        said = [each.get("message", each) if isinstance(each, dict) else each for each in said["choices"]]
    return [{**each, "role": "assistant"} for each in messages_of(said)]


def _tool(span_name: str, found: Found, attributes: dict[str, Any]) -> str:
    result = found.take("tool_output", "output_value")
    known = {
        "input": parsed(found.take("tool_input", "input_value")),
        # A text stays one: it is what the model was given.
        "output": result if isinstance(result, str) else parsed(result),
        "call_id": as_text(found.take("call_id")) or None,
    }
    attributes.update(present(known))
    return found.take_name("tool") or found.take_name("entity") or _suffix(span_name, TOOL_OPERATION)


def _note_values(found: Found, attributes: dict[str, Any]) -> None:
    """Writes input and output of what is neither a model nor a tool."""
    for name in ("input", "output"):
        if name in found:
            attributes[name] = content.genai_messages(found.take(name))
        elif (value := found.take(f"{name}_value")) is not None:
            attributes[name] = parsed(value)


def _note_usage(found: Found, attributes: dict[str, Any]) -> None:
    usage = present({name: _count(found[name][2]) for name in aliases.USAGE if name in found})
    for name in usage:
        del found[name]
    if usage:
        attributes["usage"] = usage
    if "cost_usd" in found and type(found["cost_usd"][2]) in (int, float):
        attributes["cost_usd"] = found.take("cost_usd")


def _note_request(found: Found, groups: Groups, attributes: dict[str, Any]) -> None:
    request: dict[str, Any] = {}
    said = parsed(found["parameters"][2]) if "parameters" in found else None
    if isinstance(said, dict):
        request = {name: value for name, value in said.items() if name not in ("model", "messages", "tools")}
        del found["parameters"]
    request.update({name: parsed(value) for name, value in groups.pop("request", {}).items()})
    if request:
        attributes["request"] = request
    if "tools" in found:
        attributes["tools"] = parsed(found.take("tools"))
        return
    group = groups.pop("llm_tools", {})
    for name in [name for name in groups.get("functions", {}) if name.startswith("functions.")]:
        group[name.removeprefix("functions.")] = groups["functions"].pop(name)
    if group:
        attributes["tools"] = content.tool_definitions(group)


def _note_finish(found: Found, attributes: dict[str, Any]) -> None:
    if "finish_reasons" in found:
        given = parsed(found.take("finish_reasons"))
        attributes["finish_reasons"] = [as_text(each) for each in (given if isinstance(given, list) else [given])]
        return
    reasons = [
        each["finish_reason"]
        for each in attributes.get("output", ())
        if isinstance(each, dict) and isinstance(each.get("finish_reason"), str)
    ]
    if reasons:
        attributes["finish_reasons"] = reasons


def _note_tokens(found: Found, attributes: dict[str, Any]) -> None:
    ids = {}
    for name, slot in (("prompt", "prompt_token_ids"), ("completion", "completion_token_ids")):
        listed = parsed(found[slot][2]) if slot in found else None
        if isinstance(listed, list) and listed and all(type(each) is int for each in listed):
            ids[name] = listed
            del found[slot]
    if ids:
        attributes["token_ids"] = ids


def _note_task(found: Found, attributes: dict[str, Any]) -> None:
    """Writes which task and which attempt a span names, itself or in OpenInference's ``metadata``."""
    details = parsed(found["metadata"][2]) if "metadata" in found else None
    if isinstance(details, dict):
        for name, value in details.items():
            slot, _ = aliases.NAMES.get(name, (name, 0))
            if slot in (aliases.TASK, aliases.ATTEMPT):
                found.setdefault(slot, (0, f"metadata.{name}", value))
    if aliases.TASK in found and isinstance(task := found[aliases.TASK][2], str | int) and str(task):
        attributes["task_id"] = str(found.take(aliases.TASK))[:_MAX_NAME]
    if aliases.ATTEMPT in found and (number := _count(found[aliases.ATTEMPT][2])) is not None:
        attributes["attempt"] = number
        del found[aliases.ATTEMPT]


def _count(value: Any) -> int | None:
    """Returns a number that counts something, which some write as text; None: it is not one."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < 2**62 and (not isinstance(value, float) or number == value) else None


def _suffix(span_name: str, operation: str) -> str:
    """Returns the name of a span without the operation that it begins with."""
    return span_name.removeprefix(operation).strip() or span_name
