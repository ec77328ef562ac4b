"""Chat completions as OpenAI's API writes them: the body of a request, an answer, the events of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from learnloop.core.decoding import decode_json
from learnloop.core.errors import UnreachableError, UsageError
from learnloop.models.chat import ChatRequest, Completion, Message, TokenLogprob, Tool, ToolRequest
from learnloop.models.endpoint_config import EndpointConfig

_SHOWN = 200


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None
    type: str = "function"
    index: int | None = None


class _TopLogprob(msgspec.Struct):
    token: str
    logprob: float


class _Logprob(_TopLogprob):
    top_logprobs: list[_TopLogprob] = []


class _Logprobs(msgspec.Struct):
    content: list[_Logprob] | None = None


class _Message(msgspec.Struct):
    """Of an answer, or the new part of one in a stream."""

    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None
    model: str | None = None


class _Delta(msgspec.Struct):
    delta: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Delta] = []
    usage: _Usage | None = None
    model: str | None = None
    error: Any = None


# Requests ------------------------------------------------------------------------------------------------------------


def request_body(config: EndpointConfig, request: ChatRequest) -> dict[str, Any]:
    """Returns the body of a request; fields that nobody set are left out."""
    temperature = config.temperature if request.temperature is None else request.temperature
    body: dict[str, Any] = {
        "model": config.model,
        "messages": [_message(message) for message in request.messages],
        config.max_tokens_field: request.max_tokens or config.max_tokens,
        "temperature": temperature,
        "tools": [_tool(tool) for tool in request.tools] or None,
        "tool_choice": _tool_choice(request.tool_choice),
        "response_format": request.response_format,
        "logprobs": True if request.logprobs else None,
        "top_logprobs": request.top_logprobs,
        "seed": request.seed,
        "stop": list(request.stop) or None,
        **config.extra_body,
    }
    return {name: value for name, value in body.items() if value is not None}


def _message(message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name is not None:
        written["name"] = message.name
    if message.tool_call_id is not None:
        written["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        written["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return written


def _tool(tool: Tool) -> dict[str, Any]:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _tool_choice(choice: str | None) -> object:
    if choice is None or choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


# Answers -------------------------------------------------------------------------------------------------------------


def read_answer(data: bytes, where: str) -> Completion:
    """Returns the first choice of an answer; ``where`` names it in messages.

    Raises:
        UsageError: this is not a chat completion, or one without text and calls.
    """
    what = f"{where} is not a chat completion"
    answer = decode_json(data, what, _Answer, error=UsageError, hint=f": {shortened(data)}")
    choice = answer.choices[0] if answer.choices else None
    if choice is None or (choice.message.content is None and not choice.message.tool_calls):
        raise UsageError(f"{where} is a chat completion without a text: {shortened(data)}")
    usage = answer.usage or _Usage()
    total = usage.total_tokens
    if total is None and usage.prompt_tokens is not None and usage.completion_tokens is not None:
        total = usage.prompt_tokens + usage.completion_tokens
    return Completion(
        content=choice.message.content,
        tool_calls=tuple(_tool_call(call, number) for number, call in enumerate(choice.message.tool_calls or ())),
        finish_reason=choice.finish_reason,
        num_prompt_tokens=usage.prompt_tokens,
        num_completion_tokens=usage.completion_tokens,
        num_tokens=total,
        logprobs=_logprobs(choice.logprobs),
        model=answer.model,
    )


def _tool_call(call: _Call, number: int) -> ToolRequest:
    function = call.function
    return ToolRequest(id=call.id or f"call_{number}", name=function.name or "", arguments=function.arguments or "")


def _logprobs(found: _Logprobs | None) -> tuple[TokenLogprob, ...] | None:
    if found is None or not found.content:
        return None
    return tuple(
        TokenLogprob(
            token=each.token,
            logprob=each.logprob,
            top=tuple((other.token, other.logprob) for other in each.top_logprobs),
        )
        for each in found.content
    )


def shortened(data: bytes) -> str:
    """Returns the start of an answer as one line of text."""
    text = " ".join(data[: 4 * _SHOWN].decode("utf-8", "replace").split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


# Streams -------------------------------------------------------------------------------------------------------------


def event_data(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the data of each server-sent event; other fields and comments are passed over.

    Source: HTML Living Standard, 9.2.6 (interpreting an event stream).
    """
    data: list[bytes] = []
    for line in lines:
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data)
            data = []
    if data:
        yield b"\n".join(data)


class StreamedAnswer:
    """Puts the chunks of a stream together to the answer that would have come without it."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._choice = _Choice(message=_Message())
        self._answer = _Answer(choices=[self._choice])
        self._calls: dict[int, _Call] = {}
        self._texts: list[str] = []
        self._has_text = False

    @property
    def is_finished(self) -> bool:
        """Whether the model said why it ended."""
        return self._choice.finish_reason is not None

    def add(self, data: bytes) -> str:
        """Returns the new text of a chunk; empty where it has none.

        Raises:
            UsageError: this is no chunk of a chat completion.
            UnreachableError: the endpoint says in the middle of its answer that it failed.
        """
        what = f"{self._where} streams what is not a chunk"
        chunk = decode_json(data, what, _Chunk, error=UsageError, hint=f": {shortened(data)}")
        if chunk.error is not None:
            raise UnreachableError(f"{self._where} failed in the middle of its answer: {shortened(data)}")
        self._answer.usage = chunk.usage or self._answer.usage
        self._answer.model = chunk.model or self._answer.model
        return self._add_delta(chunk.choices[0]) if chunk.choices else ""

    def _add_delta(self, delta: _Delta) -> str:
        choice = self._choice
        choice.finish_reason = delta.finish_reason or choice.finish_reason
        if delta.logprobs is not None and delta.logprobs.content:
            known = choice.logprobs.content if choice.logprobs is not None else None
            choice.logprobs = _Logprobs(content=[*(known or ()), *delta.logprobs.content])
        for call in delta.delta.tool_calls or ():
            self._add_call(call)
        if delta.delta.content is None:
            return ""
        self._has_text = True
        self._texts.append(delta.delta.content)
        return delta.delta.content

    def _add_call(self, piece: _Call) -> None:
        place = len(self._calls) if piece.index is None else piece.index
        known = self._calls.setdefault(place, _Call(function=_Function()))
        known.id = piece.id or known.id
        known.function.name = piece.function.name or known.function.name
        known.function.arguments = (known.function.arguments or "") + (piece.function.arguments or "")

    def encoded(self) -> bytes:
        """Returns the whole answer, as it would have come without a stream."""
        self._choice.message.tool_calls = [self._calls[place] for place in sorted(self._calls)] or None
        text = "".join(self._texts)
        is_text = text or (self._has_text and not self._calls)  # some begin calls with an empty text
        self._choice.message.content = text if is_text else None
        return msgspec.json.encode(self._answer)
