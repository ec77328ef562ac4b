"""One call of a model while it runs: its span, what was new in it, and the chunks of its answer.

Nothing in here raises into the program that calls the model: what cannot be recorded is counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from learnloop.traces.conversation.dialects import Dialect, ModelResponse
from learnloop.traces.conversation.messages import Message, fingerprint
from learnloop.traces.recording.clients.bodies import body_of, decoded, events_of
from learnloop.traces.recording.recorder import ActiveSpan, Recorder

MAX_CHUNKS = 100_000
"""Of one stream; a longer one is recorded as far as that."""


class ModelCall:
    """A call from its request to the end of its answer; ending it twice changes nothing."""

    def __init__(self, recorder: Recorder, dialect: Dialect, body: Mapping[str, Any], *, content: bool = True) -> None:
        """Begins the span below the one that is current here.

        Args:
            recorder: where the span goes.
            dialect: what the request is in.
            body: the request.
            content: whether what was said is kept, or only how much it was.
        """
        self._recorder = recorder
        self._dialect = dialect
        self._content = content
        self._lock = threading.Lock()
        self._ended = False
        self._begun_ns = time.perf_counter_ns()
        self._first_chunk_ns: int | None = None
        self._chunks: list[Mapping[str, Any]] = []
        self._num_chunks = 0
        self._num_left_out = 0
        self._marks: list[str] = []
        self.answer: Message | None = None
        """What the model said; None: nothing yet, or it is not known."""
        self.span = recorder.span(_model_of(body), dialect.operation)
        self.span.begin()
        self._recorder.guard(lambda: self._note_request(body))

    @property
    def said(self) -> list[str]:
        """The fingerprints of the whole conversation so far, the answer included."""
        return self._marks if self.answer is None else [*self._marks, fingerprint(self.answer)]

    def chunk(self, chunk: Any) -> None:
        """Takes a piece of a streamed answer."""
        self.note_arrival()
        self._num_chunks += 1
        self._recorder.guard(lambda: self._keep(body_of(chunk)))

    def note_arrival(self) -> None:
        """Notes that some of a streamed answer is here, whether it can be read yet or not."""
        if self._first_chunk_ns is None:
            self._first_chunk_ns = time.perf_counter_ns()

    def end(self, response: Any) -> None:
        """Ends the call with a whole response; None: it was not read."""
        if self._begin_end():
            self._recorder.guard(lambda: self._note_response(body_of(response)))
            self.span.end()

    def end_stream(self, error: BaseException | None = None, *, is_complete: bool = True) -> None:
        """Ends the call with the chunks that came.

        Args:
            error: what broke the stream.
            is_complete: whether the stream came to its end; False: nobody read the rest.
        """
        if self._begin_end():
            self._recorder.guard(lambda: self._note_stream(is_complete and error is None))
            self.span.end(error)

    def end_bytes(self, data: bytes, *, is_streamed: bool) -> None:
        """Ends the call with the whole body of a response: a JSON object, or the events of a stream."""
        if not is_streamed:
            self.end(decoded(data))
            return
        for event in events_of(data):
            self.chunk(event)
        self.end_stream()

    def fail(self, error: BaseException) -> None:
        """Ends the call with what the client raised."""
        if self._begin_end():
            self._recorder.guard(lambda: self._note_said(None))
            self.span.end(error)

    def _begin_end(self) -> bool:
        with self._lock:
            is_first, self._ended = not self._ended, True
        return is_first

    def _keep(self, body: Mapping[str, Any] | None) -> None:
        if body is not None:
            if len(self._chunks) >= MAX_CHUNKS:  # the last one stays: it says how many tokens there were
                self._chunks.pop()
                self._num_left_out += 1
            self._chunks.append(body)

    def _note_request(self, body: Mapping[str, Any]) -> None:
        asked = self._dialect.read_request(body)
        attributes = dict(asked.attributes)
        if not self._content:
            attributes.pop("tools", None)
        self.span.set(**attributes)
        self._marks = note_messages(self.span, asked.messages, content=self._content)

    def _note_response(self, body: Mapping[str, Any] | None) -> None:
        if body is None:
            self._note_said(None)
            return
        answer = self._dialect.read_response(body)
        self._note_said(answer.output[0] if answer.output else None)
        self._note_answer(answer)

    def _note_stream(self, is_complete: bool) -> None:
        bodies, self._chunks = self._chunks, []
        self._note_response(self._dialect.join_chunks(bodies) if bodies else None)
        if self._num_left_out:
            self.span.set(num_chunks_left_out=self._num_left_out)
        first = self._first_chunk_ns
        self.span.set(
            num_chunks=self._num_chunks,
            **({} if first is None else {"time_to_first_chunk_ms": (first - self._begun_ns) / 1e6}),
            **({} if is_complete else {"incomplete": True}),
        )

    def _note_answer(self, answer: ModelResponse) -> None:
        attributes = dict(answer.attributes)
        if attributes.get("model") == self.span.name:
            del attributes["model"]
        if self._content and answer.output:
            attributes["output"] = answer.output
        error = attributes.pop("error", None)
        self.span.set(**attributes)
        if isinstance(error, str):
            self.span.error = error

    def _note_said(self, answer: Message | None) -> None:
        self.answer = answer
        note_answer(self.span, self._marks, answer)


def note_messages(span: ActiveSpan, messages: Sequence[Message], *, content: bool) -> list[str]:
    """Adds to a call's span what is new in its messages; returns the fingerprints of all of them."""
    marks = [fingerprint(each) for each in messages]
    offset = 0 if span.episode is None else span.episode.conversations.begin(marks)
    if offset:
        span.set(input_offset=offset)
    if content:
        span.set(input=messages[offset:])
    return marks


def note_answer(span: ActiveSpan, marks: Sequence[str], answer: Message | None) -> None:
    """Notes how a conversation went on: with the messages of these fingerprints, and an answer, None for none."""
    if span.episode is not None:
        span.episode.conversations.end(marks, None if answer is None else fingerprint(answer))


def _model_of(body: Mapping[str, Any]) -> str:
    model = body.get("model")
    return model if isinstance(model, str) and model else "model"
