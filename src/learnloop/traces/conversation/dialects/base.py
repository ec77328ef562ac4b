"""What every API's calls have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from learnloop.traces.conversation.messages import Message

Body = Mapping[str, Any]

_REQUEST_OPTIONS = (
    "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "seed", "stop",
    "stop_sequences", "frequency_penalty", "presence_penalty", "response_format", "tool_choice", "reasoning_effort",
    "reasoning", "thinking", "logprobs", "top_logprobs", "parallel_tool_calls", "service_tier", "stream",
)  # fmt: skip


_PIECES = "_pieces"


class Asked(NamedTuple):
    """A request, read."""

    model: str
    messages: list[Message]
    """All that the request says to the model, instructions first."""
    attributes: dict[str, Any]
    """Of the span: ``request``, ``tools`` ..."""
    is_streamed: bool = False


class Answer(NamedTuple):
    """A response, read."""

    output: list[Message]
    """The answers: usually one, several where several were asked for."""
    attributes: dict[str, Any]
    """Of the span: ``usage``, ``finish_reasons``, ``response_id`` ..."""


class Dialect(Protocol):
    """How one API asks and answers. What a body does not hold is left out, never guessed."""

    operation: str
    """The operation of the span (OpenTelemetry GenAI)."""

    def asked(self, body: Body) -> Asked:
        """Returns what a request says."""
        ...

    def answer(self, body: Body) -> Answer:
        """Returns what a response says."""
        ...

    def assembled(self, chunks: Sequence[Body]) -> Body:
        """Returns the response that a stream's chunks make together, as far as it came."""
        ...


def request_attributes(body: Body) -> dict[str, Any]:
    """Returns the attributes that a request has in every API."""
    options = {name: body[name] for name in _REQUEST_OPTIONS if body.get(name) is not None}
    return present(request=options or None, tools=body.get("tools"), user=body.get("user"))


def present(**values: Any) -> dict[str, Any]:
    """Returns the values that are known."""
    return {name: value for name, value in values.items() if value is not None}


def add_text(made: dict[str, Any], name: str, piece: object) -> None:
    """Adds a piece of a streamed text, to be joined by ``join_texts``: adding to a text would copy it each time."""
    if isinstance(piece, str):
        pieces = made.setdefault(_PIECES, {}).setdefault(name, [])
        pieces.append(piece)


def join_texts(made: dict[str, Any]) -> dict[str, Any]:
    """Returns ``made`` with its texts whole, after what it had of them."""
    for name, pieces in made.pop(_PIECES, {}).items():
        made[name] = named(made.get(name)) + "".join(pieces)
    return made


def mapping(value: object) -> Mapping[str, Any]:
    """Returns ``value`` where it is an object, else an empty one."""
    return value if isinstance(value, dict | Mapping) else {}


def sequence(value: object) -> Sequence[Any]:
    """Returns ``value`` where it is a list, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


def named(value: object) -> str:
    """Returns ``value`` where it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def integer(value: object) -> int | None:
    """Returns ``value`` where it is a count, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
