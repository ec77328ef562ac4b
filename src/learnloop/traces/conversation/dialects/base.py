"""What every API's calls have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from learnloop.traces.conversation.messages import Message
from learnloop.traces.json_values import known_text, present, token_usage

Body = Mapping[str, Any]

_REQUEST_OPTIONS = (
    "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "seed", "stop",
    "stop_sequences", "frequency_penalty", "presence_penalty", "response_format", "tool_choice", "reasoning_effort",
    "reasoning", "thinking", "logprobs", "top_logprobs", "parallel_tool_calls", "service_tier", "stream",
)  # fmt: skip


_PIECES = "_pieces"


class ModelRequest(NamedTuple):
    """What is asked of a model."""

    model: str
    messages: list[Message]
    """All that the request says to the model, instructions first."""
    attributes: dict[str, Any]
    """Of the span: ``request``, ``tools`` ..."""


class ModelResponse(NamedTuple):
    """What a model answers."""

    output: list[Message]
    """The answers: usually one, several where several were asked for."""
    attributes: dict[str, Any]
    """Of the span: ``usage``, ``finish_reasons``, ``response_id`` ..."""


class Dialect(ABC):
    """How one API asks and answers. What a body does not hold is left out, never guessed."""

    operation = "chat"
    """The operation of the span (OpenTelemetry GenAI)."""

    @abstractmethod
    def read_request(self, body: Body) -> ModelRequest:
        """Returns what a request says."""

    @abstractmethod
    def read_response(self, body: Body) -> ModelResponse:
        """Returns what a response says."""

    @abstractmethod
    def join_chunks(self, chunks: Sequence[Body]) -> Body:
        """Returns the response that a stream's chunks make together, as far as it came."""


def request_of(body: Body, messages: list[Message], **more: Any) -> ModelRequest:
    """Returns a request with the attributes that it has in every API, and ``more`` of them, as far as known."""
    options = {name: body[name] for name in _REQUEST_OPTIONS if body.get(name) is not None}
    attributes = {"request": options or None, "tools": body.get("tools"), "user": body.get("user"), **more}
    return ModelRequest(known_text(body.get("model")) or "", messages, present(attributes))


def response_of(body: Body, output: list[Message], reasons: Sequence[Any] = (), **more: Any) -> ModelResponse:
    """Returns a response with the attributes that it has in every API, and ``more`` of them, as far as known."""
    attributes = {
        "finish_reasons": [each for each in reasons if each] or None,
        "response_id": body.get("id"),
        "model": body.get("model"),
        "usage": token_usage(body.get("usage")),
        **more,
    }
    return ModelResponse(output, present(attributes))


def add_text(made: dict[str, Any], name: str, piece: object) -> None:
    """Adds a piece of a streamed text, to be joined by ``join_texts``: adding to a text would copy it each time."""
    if isinstance(piece, str):
        pieces = made.setdefault(_PIECES, {}).setdefault(name, [])
        pieces.append(piece)


def join_texts(made: dict[str, Any]) -> dict[str, Any]:
    """Returns ``made`` with its texts whole, after what it had of them."""
    for name, pieces in made.pop(_PIECES, {}).items():
        made[name] = (known_text(made.get(name)) or "") + "".join(pieces)
    return made
