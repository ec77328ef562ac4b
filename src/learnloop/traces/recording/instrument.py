"""Decorates functions, coroutines and generators of both kinds so that each call is a span.

A generator's span lasts from its first step to its end. It is the current span only while the generator itself runs,
so what its consumer does between two steps is not recorded below it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, Self, TypeVar, cast

from learnloop.core.errors import UsageError
from learnloop.traces.recording.recorder import ActiveSpan, Recorder
from learnloop.traces.recording.values import MAX_ITEMS

P = ParamSpec("P")
R = TypeVar("R")


Reading = Callable[[tuple[Any, ...], dict[str, Any]], tuple[str, Any]]
"""Tells the name and the input of a call's span from its arguments."""


def instrument(
    recorder: Recorder,
    function: Callable[P, R],
    *,
    operation: str,
    name: str | None = None,
    content: bool = True,
    reading: Reading | None = None,
) -> Callable[P, R]:
    """Returns ``function`` with each call recorded as a span.

    Args:
        recorder: where the spans go.
        function: a function, coroutine function, generator function or async generator function.
        operation: the span's operation, such as ``execute_tool``.
        name: the span's name; the function's name where None.
        content: whether arguments and result are recorded too.
        reading: tells name and input of each call's span; the function's own name and arguments where None.

    Raises:
        UsageError: ``function`` is none of these (an instance, a class, the result of a call).
    """
    if not inspect.isroutine(function):
        raise UsageError(f"{function!r} is no function; put the decorator directly above a def or an async def")
    parameters = _positional_names(function)
    call = _Call(recorder, operation, name or function.__name__, content, parameters, reading)
    if inspect.isasyncgenfunction(function):
        wrapper = _wrap_async_generator(call, function)
    elif inspect.isgeneratorfunction(function):
        wrapper = _wrap_generator(call, function)
    elif inspect.iscoroutinefunction(function):
        wrapper = _wrap_coroutine(call, function)
    else:
        wrapper = _wrap_function(call, function)
    return cast(Callable[P, R], functools.update_wrapper(wrapper, function))


@dataclass(frozen=True, slots=True)
class _Call:
    """What all calls of one instrumented function have in common."""

    recorder: Recorder
    operation: str
    name: str
    content: bool
    parameters: list[str]
    reading: Reading | None

    def span(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ActiveSpan:
        if self.reading is None:
            span = self.recorder.span(self.name, self.operation)
            if self.content:
                span.attributes["input"] = self.recorder.describe(self._input(args, kwargs))
            return span
        name, given = self.reading(args, kwargs)
        span = self.recorder.span(name, self.operation)
        return span.set(input=given) if self.content else span

    def note_output(self, span: ActiveSpan, output: Any) -> Any:
        if self.content:
            span.set(output=output)
        return output

    def _input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        values = dict(zip(self.parameters, args, strict=False))
        if self.parameters and self.parameters[0] in ("self", "cls"):
            values.pop(self.parameters[0], None)
        if len(args) > len(self.parameters):
            values["args"] = args[len(self.parameters) :]
        return {**values, **kwargs}


def _positional_names(function: Callable[..., Any]) -> list[str]:
    """Returns the names of the positional parameters; none for a builtin that does not tell them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return []
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in named]


def _wrap_function(call: _Call, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with call.span(args, kwargs) as span:
            return call.note_output(span, function(*args, **kwargs))

    return wrapper


def _wrap_coroutine(call: _Call, function: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with call.span(args, kwargs) as span:
            return call.note_output(span, await function(*args, **kwargs))

    return wrapper


def _wrap_generator(call: _Call, function: Callable[..., Generator[Any, Any, Any]]) -> Callable[..., Any]:
    """Steps the generator with its span current, and hands on what is sent, thrown and returned."""

    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        with _Streaming(call, args, kwargs) as streaming:
            step: Callable[[], Any] = functools.partial(next, generator)
            while True:
                try:
                    with streaming.running():
                        item = step()
                except StopIteration as stop:
                    return stop.value
                streaming.note(item)
                try:
                    sent = yield item
                except GeneratorExit:
                    generator.close()
                    raise
                except BaseException as thrown:  # noqa: BLE001 - handed to the generator that it was thrown at
                    step = functools.partial(generator.throw, thrown)
                else:
                    step = functools.partial(generator.send, sent)

    return wrapper


def _wrap_async_generator(call: _Call, function: Callable[..., AsyncGenerator[Any, Any]]) -> Callable[..., Any]:
    """The asynchronous form of ``_wrap_generator``."""

    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        generator = function(*args, **kwargs)
        with _Streaming(call, args, kwargs) as streaming:
            step: Callable[[], Awaitable[Any]] = functools.partial(anext, generator)
            while True:
                try:
                    with streaming.running():
                        item = await step()
                except StopAsyncIteration:
                    return
                streaming.note(item)
                try:
                    sent = yield item
                except GeneratorExit:
                    await generator.aclose()
                    raise
                except BaseException as thrown:  # noqa: BLE001 - handed to the generator that it was thrown at
                    step = functools.partial(generator.athrow, thrown)
                else:
                    step = functools.partial(generator.asend, sent)

    return wrapper


class _Streaming:
    """The span of one generator: open from its first step to its end, current only while the generator runs."""

    __slots__ = ("_call", "_items", "_span")

    def __init__(self, call: _Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._call = call
        self._items: list[Any] = []
        self._span = call.span(args, kwargs)

    def __enter__(self) -> Self:
        self._span.begin()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._call.note_output(self._span, self._items)
        self._span.end(error)

    @contextmanager
    def running(self) -> Iterator[None]:
        token = self._call.recorder.enter(self._span)
        try:
            yield
        finally:
            self._call.recorder.leave(token)

    def note(self, item: Any) -> None:
        if self._call.content and len(self._items) < MAX_ITEMS:
            self._items.append(self._call.recorder.describe({"item": item})["item"])
