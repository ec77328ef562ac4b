"""Watches streams without becoming one: the program gets the client's own stream, of its own type."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from learnloop.traces.recording.clients.calls import ModelCall


def watch(stream: Any, call: ModelCall) -> Any:
    """Returns ``stream`` with its chunks noted as they are read.

    The call ends when the stream does, when it is closed, or when it is forgotten unread. A generator comes back as a
    generator; a client's stream comes back itself.
    """
    if inspect.isgenerator(stream):
        return _each(stream, call)
    if inspect.isasyncgen(stream):
        return _each_async(stream, call)
    inner = getattr(stream, "_iterator", None)  # the streams of OpenAI's and Anthropic's clients, and of their kin
    try:
        weakref.finalize(stream, call.end_stream, is_complete=False)
        if isinstance(inner, AsyncIterator):
            stream._iterator = _each_async(inner, call)
        elif isinstance(inner, Iterator):
            stream._iterator = _each(inner, call)
        else:
            return _outside(stream, call)
        _end_when_closed(stream, call)
    except (AttributeError, TypeError):  # it takes no attributes
        return _outside(stream, call)
    return stream


def _outside(stream: Any, call: ModelCall) -> Any:
    """Returns a stream that looks as ``stream`` does, where that one cannot be watched from inside."""
    if isinstance(stream, AsyncIterator) or callable(getattr(stream, "__aiter__", None)):
        return _AsyncStream(stream, _each_async(stream.__aiter__(), call), call)
    if callable(getattr(stream, "__iter__", None)):
        return _Stream(stream, _each(iter(stream), call), call)
    call.end(None)
    return stream


@contextmanager
def _reading(call: ModelCall) -> Iterator[None]:
    """Ends a call when its stream has been read, with what broke it; one that is left is not complete."""
    try:
        yield
    except BaseException as error:
        call.end_stream(None if isinstance(error, GeneratorExit) else error, is_complete=False)
        raise
    call.end_stream()


def _each(inner: Iterator[Any], call: ModelCall) -> Iterator[Any]:
    try:
        with _reading(call):
            for chunk in inner:
                call.chunk(chunk)
                yield chunk
    finally:
        if isinstance(inner, Generator):
            inner.close()


async def _each_async(inner: AsyncIterator[Any], call: ModelCall) -> AsyncIterator[Any]:
    try:
        with _reading(call):
            async for chunk in inner:
                call.chunk(chunk)
                yield chunk
    finally:
        if isinstance(inner, AsyncGenerator):
            await inner.aclose()


def _end_when_closed(stream: Any, call: ModelCall) -> None:
    """Ends the call when the stream is closed; ``close`` stays what it was, awaitable where it was."""
    method = _method(stream, "close")
    if method is None:
        return
    reference = weakref.ref(stream)  # the stream must not hold itself, or it would not be missed when it is forgotten

    def closing() -> Any:
        call.end_stream(is_complete=False)
        target = reference()
        return None if target is None else method(target)

    stream.close = closing


def watch_response(response: Any, call: ModelCall, *, is_streamed: bool) -> Any:
    """Returns a response that the program reads later, as it likes: the call ends with what it read, or unread.

    Its ``parse``, ``read`` and ``close`` are replaced on this one object; all that gives the whole body reads by these.
    """
    methods = {name: _method(response, name) for name in ("parse", "read", "close")}
    reference = weakref.ref(response)
    finalizer = weakref.finalize(response, call.end_stream, is_complete=False)

    def note(name: str, result: Any) -> Any:
        if name == "read" and isinstance(result, bytes):
            call.end_bytes(result, is_streamed=is_streamed)
        elif name == "parse" and is_streamed:
            finalizer.detach()  # from here on the stream is what may be forgotten
            return watch(result, call)
        elif name == "parse":
            call.end(result)
        elif name == "close":
            call.end_stream(is_complete=False)
        return result

    for name, method in methods.items():
        if method is not None:
            setattr(response, name, _noting(name, method, reference, note))
    return response


def _noting(name: str, method: Any, reference: Any, note: Callable[[str, Any], Any]) -> Any:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def read_async(*args: Any, **kwargs: Any) -> Any:
            return note(name, await method(reference(), *args, **kwargs))

        return read_async

    @functools.wraps(method)
    def read(*args: Any, **kwargs: Any) -> Any:
        return note(name, method(reference(), *args, **kwargs))

    return read


def _method(owner: Any, name: str) -> Any:
    """Returns a method without its object; None where it has none."""
    found = getattr(type(owner), name, None)
    return found if callable(found) else None


class _Outside:
    """A stream of another library, watched from outside."""

    def __init__(self, stream: Any, chunks: Any, call: ModelCall) -> None:
        self._stream = stream
        self._watched = chunks
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # isinstance sees the stream that it stands for
        return type(self._stream)


class _Stream(_Outside):
    """A stream that is read at once."""

    def __iter__(self) -> Iterator[Any]:
        return self._watched  # type: ignore[no-any-return]

    def __next__(self) -> Any:
        return next(self._watched)

    def __enter__(self) -> Any:
        enter = getattr(self._stream, "__enter__", None)
        if callable(enter):
            enter()
        return self

    def __exit__(self, *details: Any) -> Any:
        leave = getattr(self._stream, "__exit__", None)
        self._call.end_stream(is_complete=False)
        return leave(*details) if callable(leave) else None


class _AsyncStream(_Outside):
    """A stream that is awaited."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._watched  # type: ignore[no-any-return]

    async def __anext__(self) -> Any:
        return await anext(self._watched)

    async def __aenter__(self) -> Any:
        enter = getattr(self._stream, "__aenter__", None)
        if callable(enter):
            await enter()
        return self

    async def __aexit__(self, *details: Any) -> Any:
        leave = getattr(self._stream, "__aexit__", None)
        self._call.end_stream(is_complete=False)
        return await leave(*details) if callable(leave) else None
