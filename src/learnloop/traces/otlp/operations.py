"""Which operation a span is, what it is called, and what its attributes are in our words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from learnloop.traces.conversation.messages import as_text, messages_of, parsed
from learnloop.traces.conversation.steps import MODEL_OPERATIONS, TOOL_OPERATION
from learnloop.traces.otlp import aliases, content
from learnloop.traces.otlp.wire import WireEvent

Found = dict[str, tuple[int, str, Any]]
"""The attributes that we know, by what they are: the rank of the name that was used, that name, the value."""
Groups = dict[str, dict[str, Any]]
"""Attributes that are spread over several names, by ``aliases.GROUPS``."""

_AGENT_OPERATIONS = frozenset({"invoke_agent", "create_agent"})
_MAX_NAME = 256
_COPIED = ("provider", "response_id", "conversation_id", "user_id")
_MODEL_GROUPS = ("llm_input", "llm_output", "prompt", "completion")


def operation_of(
    span_name: str, found: Found, groups: Groups, attributes: dict[str, Any], messages: Sequence[WireEvent]
) -> tuple[str, str]:
    """Returns operation and name of a span, and writes to ``attributes`` what it says in our words.

    What is taken is removed from ``found`` and ``groups``; what stays there is to be kept as it came.
    """
    operation = _operation(span_name, found, groups, messages)
    agent = _short(found.pop("agent", None))
    if agent:
        attributes["agent"] = agent
    for slot in _COPIED:
        value = found.pop(slot, None)
        if value is not None and value[2] not in (None, ""):
            attributes[slot] = as_text(value[2])
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
        return operation, _short(found.pop("workflow", None)) or _suffix(span_name, operation)
    name = _short(found.pop("model", None)) if operation in ("embeddings", "rerank") else None
    return operation, name or span_name


def _operation(span_name: str, found: Found, groups: Groups, messages: Sequence[WireEvent]) -> str:
    given = found.pop("operation", None)
    if given is not None and isinstance(given[2], str) and given[2]:
        return given[2][:_MAX_NAME]
    kind = found.pop("span_kind", None)
    if kind is not None:
        return aliases.OPENINFERENCE_KINDS.get(str(kind[2]).upper(), "custom")
    for slot, table in (("request_type", aliases.REQUEST_TYPES), ("traceloop_kind", aliases.TRACELOOP_KINDS)):
        value = found.get(slot)
        if value is not None and str(value[2]) in table:
            return table[str(found.pop(slot)[2])]
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
    system = found.pop("system", None)
    if system is not None:
        inputs = [*content.system_message(system[2]), *inputs]
    outputs = _first_output(found, groups) or answered
    if inputs:
        attributes["input"] = inputs
    if outputs:
        attributes["output"] = outputs
    _note_usage(found, attributes)
    _note_request(found, groups, attributes)
    requested = _short(found.pop("request_model", None))
    model = _short(found.pop("model", None))
    if model and requested and requested != model:
        attributes.setdefault("request", {})["model"] = requested
    _note_finish(found, attributes)
    _note_tokens(found, attributes)
    return model or requested or span_name


def _first_input(found: Found, groups: Groups) -> list[Any]:
    """Returns the input from the best of the ways in which it was written."""
    value = found.pop("input", None)
    if value is not None:
        return content.genai_messages(value[2])
    if "llm_input" in groups:
        return content.openinference_messages(groups.pop("llm_input"))
    if "prompt" in groups:
        return content.traceloop_messages(groups.pop("prompt"), "user")
    if "llm_prompts" in groups:
        return content.plain_texts(groups.pop("llm_prompts"), "user")
    value = found.pop("prompt_text", None) or found.pop("input_value", None)
    return [] if value is None else messages_of(parsed(value[2]))


def _first_output(found: Found, groups: Groups) -> list[Any]:
    value = found.pop("output", None)
    if value is not None:
        return content.genai_messages(value[2])
    if "llm_output" in groups:
        return content.openinference_messages(groups.pop("llm_output"))
    if "completion" in groups:
        return content.traceloop_messages(groups.pop("completion"), "assistant")
    if "llm_choices" in groups:
        return content.plain_texts(groups.pop("llm_choices"), "assistant")
    value = found.pop("completion_text", None) or found.pop("output_value", None)
    if value is None:
        return []
    said = parsed(value[2])
    if isinstance(said, dict) and isinstance(said.get("choices"), list):  # the answer of a chat API, as it came
        said = [each.get("message", each) if isinstance(each, dict) else each for each in said["choices"]]
    return [{**each, "role": "assistant"} for each in messages_of(said)]


def _tool(span_name: str, found: Found, attributes: dict[str, Any]) -> str:
    arguments = found.pop("tool_input", None) or found.pop("input_value", None)
    if arguments is not None and arguments[2] is not None:
        attributes["input"] = parsed(arguments[2])
    result = found.pop("tool_output", None) or found.pop("output_value", None)
    if result is not None and result[2] is not None:
        # A text stays one: it is what the model was given.
        attributes["output"] = result[2] if isinstance(result[2], str) else parsed(result[2])
    call_id = found.pop("call_id", None)
    if call_id is not None and call_id[2] not in (None, ""):
        attributes["call_id"] = as_text(call_id[2])
    name = _short(found.pop("tool", None)) or _short(found.pop("entity", None))
    return name or _suffix(span_name, TOOL_OPERATION)


def _note_values(found: Found, attributes: dict[str, Any]) -> None:
    """Writes input and output of what is neither a model nor a tool."""
    for slot, other, name in (("input", "input_value", "input"), ("output", "output_value", "output")):
        value = found.pop(slot, None)
        if value is not None:
            attributes[name] = content.genai_messages(value[2])
            continue
        value = found.pop(other, None)
        if value is not None and value[2] is not None:
            attributes[name] = parsed(value[2])


def _note_usage(found: Found, attributes: dict[str, Any]) -> None:
    usage = {}
    for name in aliases.USAGE:
        value = found.get(name)
        if value is not None:
            number = _count(value[2])
            if number is not None:
                usage[name] = number
                del found[name]
    if usage:
        attributes["usage"] = usage
    cost = found.get("cost_usd")
    if cost is not None and type(cost[2]) in (int, float):
        attributes["cost_usd"] = found.pop("cost_usd")[2]


def _note_request(found: Found, groups: Groups, attributes: dict[str, Any]) -> None:
    request: dict[str, Any] = {}
    parameters = found.get("parameters")
    if parameters is not None:
        said = parsed(parameters[2])
        if isinstance(said, dict):
            request = {name: value for name, value in said.items() if name not in ("model", "messages", "tools")}
            del found["parameters"]
    request.update({name: parsed(value) for name, value in groups.pop("request", {}).items()})
    if request:
        attributes["request"] = request
    tools = found.pop("tools", None)
    if tools is not None:
        attributes["tools"] = parsed(tools[2])
        return
    group = groups.pop("llm_tools", {})
    for name in [name for name in groups.get("functions", {}) if name.startswith("functions.")]:
        group[name.removeprefix("functions.")] = groups["functions"].pop(name)
    if group:
        attributes["tools"] = content.tool_definitions(group)


def _note_finish(found: Found, attributes: dict[str, Any]) -> None:
    value = found.pop("finish_reasons", None)
    if value is not None:
        given = parsed(value[2])
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
        value = found.get(slot)
        listed = parsed(value[2]) if value is not None else None
        if isinstance(listed, list) and listed and all(type(each) is int for each in listed):
            ids[name] = listed
            del found[slot]
    if ids:
        attributes["token_ids"] = ids


def _note_task(found: Found, attributes: dict[str, Any]) -> None:
    """Writes which task and which attempt a span names, itself or in OpenInference's ``metadata``."""
    said = found.get("metadata")
    details = parsed(said[2]) if said is not None else None
    if isinstance(details, dict):
        for name, value in details.items():
            slot, _ = aliases.NAMES.get(name, (name, 0))
            if slot in (aliases.TASK, aliases.ATTEMPT):
                found.setdefault(slot, (0, f"metadata.{name}", value))
    task = found.get(aliases.TASK)
    if task is not None and isinstance(task[2], str | int) and str(task[2]):
        attributes["task_id"] = str(found.pop(aliases.TASK)[2])[:_MAX_NAME]
    attempt = found.get(aliases.ATTEMPT)
    number = _count(attempt[2]) if attempt is not None else None
    if number is not None:
        attributes["attempt"] = number
        del found[aliases.ATTEMPT]


def _count(value: Any) -> int | None:
    """Returns a number that counts something, which some write as text; None: it is none."""
    if isinstance(value, bool):
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < 2**62 and (not isinstance(value, float) or number == value) else None


def _short(value: tuple[int, str, Any] | None) -> str:
    return as_text(value[2])[:_MAX_NAME] if value is not None and value[2] is not None else ""


def _suffix(span_name: str, operation: str) -> str:
    """Returns the name of a span without the operation that it begins with."""
    return span_name.removeprefix(operation).strip() or span_name
