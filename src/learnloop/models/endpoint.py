"""A client of any OpenAI-compatible chat model: answers, streams, calls of tools; from any number of threads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from learnloop.models.answer_cache import AnswerCache
from learnloop.models.budget import Budget
from learnloop.models.chat import Completion
from learnloop.models.chat_stream import ChatStream
from learnloop.models.endpoint_config import EndpointConfig
from learnloop.models.question import Asked, ChatQuestion
from learnloop.models.transport import Client, Transport


class ChatEndpoint(Client):
    """A client of one model. For any number of threads; ``max_in_flight`` of their requests run at the same time.

    Attributes:
        name: the address that is asked, without user and password.
        num_cached: questions that were answered from the cache.
    """

    def __init__(self, config: EndpointConfig, budget: Budget | None = None) -> None:
        """Connects to nothing yet; ``budget`` takes the place of the one that the configuration describes.

        Raises:
            UsageError: the address is not a valid one, or the variable with the key is not set.
        """
        self._config = config
        super().__init__(Transport(config, "/chat/completions", budget))
        self._cache = None if config.cache is None else AnswerCache(config.cache)
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self.name = self._transport.name
        self.num_cached = 0

    def complete(self, asked: Asked, deadline_seconds: float | None = None) -> Completion:
        """Returns what the model answers; ``deadline_seconds`` counts where it is shorter than the configuration's.

        Raises:
            AuthError: the endpoint refuses the key (401, 403).
            NotFoundError: it has no such model or path (404).
            UsageError: it refuses the request, or answers something that is not a chat completion.
            UnreachableError: it does not answer, or not usefully, after all repetitions or in time.
            ConflictError: ``max_requests`` or ``max_total_tokens`` are used up.
        """
        question = self._question(asked)
        kept = self._find_kept(question)
        if kept is not None:
            return kept
        return self._transport.ask(question.body, question.num_tokens, question.read, deadline_seconds)

    async def acomplete(self, asked: Asked) -> Completion:
        """Returns what the model answers, and lets other tasks run until it is there; raises as ``complete`` does.

        It waits in one of ``max_in_flight`` threads of this client. A task that is cancelled stops waiting; its request
        ends by itself, within its deadline.
        """
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._config.max_in_flight, thread_name_prefix="learnloop-chat")
            threads = self._threads
        return await asyncio.get_running_loop().run_in_executor(threads, self.complete, asked)

    def stream(self, asked: Asked) -> ChatStream:
        """Returns the answer piece by piece, as it is made; the request is sent now. Raises as ``complete`` does.

        An answer that has begun is not asked for again when it breaks off.
        """
        question = self._question(asked)
        kept = self._find_kept(question)
        if kept is not None:
            return ChatStream(kept=kept)
        exchange = self._transport.ask(question.streaming_body(), question.num_tokens, lambda begun: begun)
        return ChatStream(question=question, exchange=exchange)

    def _question(self, asked: Asked) -> ChatQuestion:
        return ChatQuestion(self._config, self._transport, self._cache, asked)

    def _find_kept(self, question: ChatQuestion) -> Completion | None:
        kept = question.kept()
        if kept is not None:
            with self._lock:
                self.num_cached += 1
        return kept

    def close(self) -> None:
        """Closes connections and threads that are not in use; the next question opens others."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()
        super().close()
