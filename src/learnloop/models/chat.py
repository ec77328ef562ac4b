"""What a chat model is asked and what it answers, apart from how that is written on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from learnloop.core.decoding import decode_json
from learnloop.core.errors import UsageError

Role = Literal["system", "developer", "user", "assistant", "tool"]


class ToolRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool that the model asks for."""

    id: str
    name: str
    arguments: str
    """JSON as the model wrote it, which may be none."""

    def parsed(self) -> dict[str, Any]:
        """Returns the arguments by name.

        Raises:
            FormatError: the model wrote something else than a JSON object.
        """
        what = f"the arguments of {self.name} are not a JSON object"
        return decode_json(self.arguments, what, dict[str, Any], hint=f": {self.arguments}")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a conversation."""

    role: Role
    content: str | list[dict[str, Any]] | None = None
    """Text, or a list of parts as the endpoint takes them; None: only calls of tools."""
    name: str | None = None
    tool_calls: tuple[ToolRequest, ...] = ()
    tool_call_id: str | None = None
    """Of a ``tool`` message: the call that this is the result of."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may ask to be called."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """A JSON schema of its arguments; empty: it takes none."""


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One question. What is None is as the endpoint's configuration says, or not sent."""

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    tool_choice: str | None = None
    """``auto``, ``none``, ``required``, or the name of the one tool that must be called."""
    response_format: dict[str, Any] | None = None
    """As the endpoint takes it: ``{"type": "json_object"}``, or ``json_schema`` with a schema."""
    logprobs: bool = False
    top_logprobs: int | None = None
    """How many other tokens are told at each place; needs ``logprobs``."""
    seed: int | None = None
    """Several answers to one question need several seeds: with a cache, the same request has the same answer."""
    stop: Sequence[str] = ()
    max_tokens: int | None = None
    temperature: float | None = None

    def __post_init__(self) -> None:
        """Refuses what contradicts itself."""
        if not self.messages:
            raise UsageError("a question has no messages; give at least one")
        if self.top_logprobs is not None and not self.logprobs:
            raise UsageError("top_logprobs is given without logprobs; set logprobs=True")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"max_tokens is {self.max_tokens}; an answer has at least one token")
        choices = {"auto", "none", "required", *(tool.name for tool in self.tools)}
        if self.tool_choice is not None and (not self.tools or self.tool_choice not in choices):
            raise UsageError(f"tool_choice is {self.tool_choice!r}; with the tools given it can be {sorted(choices)}")


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """How likely a token was where it stands."""

    token: str
    logprob: float
    """Natural logarithm of its probability."""
    top: tuple[tuple[str, float], ...] = ()
    """The likeliest tokens of that place with theirs."""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. A count that the endpoint did not tell is None."""

    content: str | None
    """None: it consists of calls of tools."""
    tool_calls: tuple[ToolRequest, ...] = ()
    finish_reason: str | None = None
    """``stop``, ``length`` (cut by ``max_tokens``), ``tool_calls``, ``content_filter`` ..."""
    num_prompt_tokens: int | None = None
    num_completion_tokens: int | None = None
    num_tokens: int | None = None
    """Of prompt and answer together."""
    logprobs: tuple[TokenLogprob, ...] | None = None
    """One for each token of the answer, where they were asked for and told."""
    model: str | None = None
    """As the endpoint names what answered."""

    @property
    def text(self) -> str:
        """The text of the answer.

        Raises:
            UsageError: there is none, only calls of tools.
        """
        if self.content is None:
            names = ", ".join(call.name for call in self.tool_calls)
            raise UsageError(f"the answer has no text, only calls of {names}; read tool_calls")
        return self.content

    def message(self) -> Message:
        """Returns the answer as a turn of the conversation, to go on with."""
        return Message(role="assistant", content=self.content, tool_calls=self.tool_calls)
