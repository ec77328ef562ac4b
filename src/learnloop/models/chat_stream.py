"""An answer as it is made: pieces of text, and the whole at the end."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from learnloop.core.errors import ConflictError, UnreachableError
from learnloop.core.lifecycles import Closing
from learnloop.models.chat import Completion
from learnloop.models.chat_wire import StreamedAnswer, event_data
from learnloop.models.question import ChatQuestion
from learnloop.models.transport import Exchange, PassingError

_END = b"[DONE]"


class ChatStream(Closing):
    """Iterates over the pieces of an answer's text, and has the whole ``completion`` at the end.

    Use it in a ``with``, so that an answer that is not read to its end is given up. For one thread.
    """

    def __init__(
        self, question: ChatQuestion | None = None, exchange: Exchange | None = None, kept: Completion | None = None
    ) -> None:
        """For ``ChatEndpoint.stream``: an answer that begins, or one that was kept, which is one piece."""
        self._exchange = exchange
        self._completion = kept
        self._pieces = _yield_kept(kept) if question is None or exchange is None else self._read(question, exchange)

    def __iter__(self) -> Iterator[str]:
        """Returns itself: the pieces are there once."""
        return self

    def __next__(self) -> str:
        """Returns the next piece of text.

        Raises:
            UnreachableError: the answer breaks off, or takes too long.
            UsageError: the endpoint streams something that is not a chat completion.
        """
        return next(self._pieces)

    @property
    def completion(self) -> Completion:
        """The whole answer, calls of tools included.

        Raises:
            ConflictError: it was not read to its end.
        """
        if self._completion is None:
            raise ConflictError("the stream is not at its end; iterate over it first")
        return self._completion

    def close(self) -> None:
        """Gives up what was not read."""
        self._pieces.close()
        if self._exchange is not None:
            self._exchange.close()

    def _read(self, question: ChatQuestion, exchange: Exchange) -> Generator[str, None, None]:
        transport = question.transport
        try:
            with transport.failures(exchange.limit_seconds):
                if "json" in (exchange.reply.header("Content-Type") or ""):  # it does not stream
                    self._completion = question.read(exchange)
                    yield from _yield_kept(self._completion)
                else:
                    yield from self._read_events(question, exchange)
        except PassingError as failure:
            raise UnreachableError(f"{transport.name} {failure}, in the middle of its answer") from failure
        finally:
            exchange.close()

    def _read_events(self, question: ChatQuestion, exchange: Exchange) -> Generator[str, None, None]:
        answer = StreamedAnswer(question.transport.name)
        is_done = False
        for data in event_data(exchange.reply.lines()):
            if data == _END:
                is_done = True
                break
            piece = answer.add(data)
            if piece:
                yield piece
        if not is_done and not answer.is_finished:
            raise PassingError("broke off")
        self._completion = question.finish(exchange, answer.encoded())


def _yield_kept(completion: Completion | None) -> Generator[str, None, None]:
    if completion is not None and completion.content:
        yield completion.content
