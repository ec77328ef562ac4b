"""One question to a chat model: its body, what it may cost, and where its answer is kept."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from learnloop.models.answer_cache import AnswerCache
from learnloop.models.chat import ChatRequest, Completion, Message
from learnloop.models.chat_wire import read_answer, request_body
from learnloop.models.endpoint_config import EndpointConfig
from learnloop.models.transport import Exchange, Transport

_BYTES_PER_TOKEN = 4
"""Of English text, about; only for what a budget reserves."""

Asked = str | Sequence[Message] | ChatRequest
"""A text, a conversation, or a request with all that can be said of it."""


class ChatQuestion:
    """A question as it is sent, and how its answer is read.

    Attributes:
        body: the JSON of the request.
        num_tokens: that it may use, about: of its body and of the longest answer.
    """

    def __init__(self, config: EndpointConfig, transport: Transport, cache: AnswerCache | None, asked: Asked) -> None:
        """Sends nothing."""
        request = _request(asked)
        self.transport = transport
        self._fields = request_body(config, request)
        self.body = msgspec.json.encode(self._fields)
        self.num_tokens = len(self.body) // _BYTES_PER_TOKEN + (request.max_tokens or config.max_tokens)
        self._cache = cache
        self._place = None if cache is None else cache.path(transport.name, self.body)

    def streaming_body(self) -> bytes:
        """Returns the JSON of the same request for a stream."""
        return msgspec.json.encode({**self._fields, "stream": True, "stream_options": {"include_usage": True}})

    def kept(self) -> Completion | None:
        """Returns the answer in the cache; None where there is none."""
        if self._cache is None or self._place is None:
            return None
        data = self._cache.get(self._place)
        return None if data is None else read_answer(data, f"the kept answer {self._place}")

    def read(self, exchange: Exchange) -> Completion:
        """Returns an answer that comes whole, and keeps it."""
        return self.finish(exchange, self.transport.read_json(exchange))

    def finish(self, exchange: Exchange, data: bytes) -> Completion:
        """Returns what a whole answer says, keeps it, and tells the budget what it cost."""
        completion = read_answer(data, self.transport.name)
        if completion.num_tokens is not None:
            exchange.settle(completion.num_tokens)
        exchange.close()
        if self._cache is not None and self._place is not None:
            self._cache.put(self._place, data)
        return completion


def _request(asked: Asked) -> ChatRequest:
    if isinstance(asked, ChatRequest):
        return asked
    return ChatRequest(messages=[Message(role="user", content=asked)] if isinstance(asked, str) else asked)
