"""Clients for models: chat models behind any OpenAI-compatible address, and embedders, local or behind one."""

from learnloop.models.budget import Budget
from learnloop.models.chat import ChatRequest, Completion, Message, TokenLogprob, Tool, ToolRequest
from learnloop.models.chat_stream import ChatStream
from learnloop.models.embedders import EmbedderConfig, make_embedder
from learnloop.models.endpoint import ChatEndpoint
from learnloop.models.endpoint_config import EndpointConfig
from learnloop.models.endpoint_embedder import EndpointEmbedder, EndpointEmbedderConfig
from learnloop.models.local_embedder import LocalEmbedder
from learnloop.models.vector_cache import CachedEmbedder, VectorCache

__all__ = [
    "Budget",
    "CachedEmbedder",
    "ChatEndpoint",
    "ChatRequest",
    "ChatStream",
    "Completion",
    "EmbedderConfig",
    "EndpointConfig",
    "EndpointEmbedder",
    "EndpointEmbedderConfig",
    "LocalEmbedder",
    "Message",
    "TokenLogprob",
    "Tool",
    "ToolRequest",
    "VectorCache",
    "make_embedder",
]
