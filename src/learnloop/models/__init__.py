"""Clients for models: chat models behind any OpenAI-compatible address."""

from learnloop.models.budget import Budget
from learnloop.models.chat import ChatRequest, Completion, Message, TokenLogprob, Tool, ToolCall
from learnloop.models.chat_stream import ChatStream
from learnloop.models.endpoint import ChatEndpoint
from learnloop.models.endpoint_config import EndpointConfig

__all__ = [
    "Budget",
    "ChatEndpoint",
    "ChatRequest",
    "ChatStream",
    "Completion",
    "EndpointConfig",
    "Message",
    "TokenLogprob",
    "Tool",
    "ToolCall",
]
