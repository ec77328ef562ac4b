"""What is asked of a model, and what it answers, in the words of each API: one file an API.

A dialect reads bodies as they are on the wire, decoded from JSON: those of a client's calls, and those that pass a
gateway.
"""

from collections.abc import Mapping

from learnloop.traces.conversation.dialects.anthropic_messages import AnthropicMessages
from learnloop.traces.conversation.dialects.base import Dialect, ModelRequest, ModelResponse
from learnloop.traces.conversation.dialects.openai import ChatCompletions, Completions, Embeddings
from learnloop.traces.conversation.dialects.responses import Responses

DIALECTS: Mapping[str, Dialect] = {
    "/chat/completions": ChatCompletions(),
    "/responses": Responses(),
    "/messages": AnthropicMessages(),
    "/completions": Completions(),
    "/embeddings": Embeddings(),
}
"""By the end of the path of their requests."""


def dialect_of(path: str) -> Dialect | None:
    """Returns the dialect that requests to ``path`` are in; None: what is asked there is no model's business."""
    plain = path.partition("?")[0].rstrip("/")
    plain = plain if plain.startswith("/") else f"/{plain}"
    if "/threads/" in plain and plain.endswith("/messages"):  # what is put into a thread of OpenAI's asks no model
        return None
    return next((dialect for end, dialect in DIALECTS.items() if plain.endswith(end)), None)


__all__ = ["DIALECTS", "Dialect", "ModelRequest", "ModelResponse", "dialect_of"]
