"""Makes a client of models that records its calls, out of a copy of one: no class is patched, the client itself stays.

OpenAI's, Anthropic's and their kin's clients send every request through one method, ``post``; it is replaced on the
copy, so that all that is built on it (parsed answers, streams, raw responses, beta interfaces) is recorded too. Of
other clients that have the same methods (``client.chat.completions.create`` ...) these methods are replaced, on copies.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from learnloop.core.errors import ConflictError, UsageError, one_of
from learnloop.traces.conversation.dialects import DIALECTS, Dialect, dialect_of
from learnloop.traces.recording.clients.bodies import body_of
from learnloop.traces.recording.clients.calls import ModelCall
from learnloop.traces.recording.clients.streams import watch, watch_response
from learnloop.traces.recording.recorder import Recorder

C = TypeVar("C")

METHODS: Mapping[str, str] = {
    "chat.completions.create": "/chat/completions",
    "chat.completions.parse": "/chat/completions",
    "beta.chat.completions.parse": "/chat/completions",
    "responses.create": "/responses",
    "messages.create": "/messages",
    "beta.messages.create": "/messages",
    "completions.create": "/completions",
    "embeddings.create": "/embeddings",
}
"""What is looked for on clients without a ``post``, and what it speaks."""

_RAW_HEADER = "x-stainless-raw-response"
_MAKES_CLIENT = ("with_options", "copy")
_VIEWS = ("with_raw_response", "with_streaming_response")
_MARK = "__learnloop_wrapped__"


def wrap(recorder: Recorder, client: C, *, content: bool = True) -> C:
    """Returns a client like ``client`` whose calls are recorded; both share their connections.

    Args:
        recorder: where the spans go.
        client: of OpenAI, Anthropic, or with methods of the same names; synchronous or not.
        content: whether what is said is recorded, or only models, times, tokens.

    Raises:
        UsageError: it is not a client, or one that cannot be copied.
        ConflictError: it is wrapped already.
    """
    if isinstance(client, type):
        raise UsageError(f"{client!r} is a class; make a client of it and wrap that")
    try:
        copied: Any = copy.copy(client)
    except Exception as error:  # the client's own __copy__ may raise anything
        raise UsageError(f"{client!r} cannot be copied ({error}); wrap the client of the model itself") from error
    try:
        is_client = _replace(recorder, client, copied, content)
    except (AttributeError, TypeError) as error:
        raise UsageError(
            f"{type(client).__name__} takes no attributes ({error}); record its calls with loop.span(model, 'chat')"
        ) from error
    if not is_client:
        raise UsageError(
            f"{type(client).__name__} is no client of a model: it has none of {one_of(METHODS)}; give a client of "
            "OpenAI, Anthropic or one with such methods"
        )
    return copied  # type: ignore[no-any-return]


def _replace(recorder: Recorder, client: Any, copied: Any, content: bool) -> bool:
    """Replaces on the copy what the requests go through; returns whether there is such a thing."""
    if not _sends_by_post(client):
        return _replace_methods(recorder, client, copied, content)
    if getattr(copied.post, _MARK, False):
        raise ConflictError(f"this {type(client).__name__} is wrapped already; its calls are recorded")
    _replace_post(recorder, client, copied, content)
    return True


def _sends_by_post(client: object) -> bool:
    """Returns whether all requests of the client go through its ``post``, as its resources'."""
    has_resource = any(inspect.getattr_static(client, name, None) is not None for name in ("chat", "messages"))
    kin = any(base.__name__ in ("SyncAPIClient", "AsyncAPIClient") for base in type(client).__mro__)
    return has_resource and kin and callable(getattr(client, "post", None))


def _replace_post(recorder: Recorder, client: Any, copied: Any, content: bool) -> None:
    copied.post = _recording_post(recorder, client.post, content)
    setattr(copied.post, _MARK, True)
    for name, value in list(vars(copied).items()):
        if isinstance(inspect.getattr_static(type(copied), name, None), functools.cached_property):
            del copied.__dict__[name]  # it holds the other client's post; it is made again when it is asked for
        elif getattr(value, "_client", None) is client:
            copied.__dict__[name] = type(value)(copied)
    for name in _VIEWS:
        if name in vars(copied):  # it leads to the resources of the client that it was made for
            copied.__dict__[name] = type(copied.__dict__[name])(copied)
    for name in _MAKES_CLIENT:
        make = getattr(client, name, None)
        if callable(make):
            setattr(copied, name, _wrapping(recorder, make, content))


def _wrapping(recorder: Recorder, make: Callable[..., Any], content: bool) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        return wrap(recorder, make(*args, **kwargs), content=content)

    return made


def _recording_post(recorder: Recorder, post: Callable[..., Any], content: bool) -> Callable[..., Any]:
    def begin(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ModelCall | None:
        path = args[0] if args else kwargs.get("path")
        dialect = dialect_of(path) if isinstance(path, str) else None
        return None if dialect is None else _begin(recorder, dialect, kwargs.get("body"), content)

    return _recording(post, begin)


def _recording(
    send: Callable[..., Any], begin: Callable[[tuple[Any, ...], Mapping[str, Any]], ModelCall | None]
) -> Callable[..., Any]:
    """Returns ``send`` with each call recorded that ``begin`` gives one for."""

    async def awaited(call: ModelCall, result: Any, kwargs: Mapping[str, Any]) -> Any:
        with _failing(call):
            result = await result
        return _note_result(call, result, kwargs)

    if inspect.iscoroutinefunction(send):

        @functools.wraps(send)
        async def record_async(*args: Any, **kwargs: Any) -> Any:
            call = begin(args, kwargs)
            if call is None:
                return await send(*args, **kwargs)
            with _failing(call):  # also what the arguments are refused for
                result = await send(*args, **kwargs)
            return _note_result(call, result, kwargs)

        return record_async

    @functools.wraps(send)
    def record(*args: Any, **kwargs: Any) -> Any:
        call = begin(args, kwargs)
        if call is None:
            return send(*args, **kwargs)
        with _failing(call):
            result = send(*args, **kwargs)
        return awaited(call, result, kwargs) if inspect.isawaitable(result) else _note_result(call, result, kwargs)

    return record


def _note_result(call: ModelCall, result: Any, kwargs: Mapping[str, Any]) -> Any:
    """Returns a request's result, noted: an answer, a stream, or a raw response of either."""
    raw, is_streamed = _raw_kind(kwargs), bool(kwargs.get("stream"))
    if raw is None:
        if is_streamed:
            return watch(result, call)
        call.end(result)
        return result
    parsed = _parse_raw(result) if raw == "true" else None
    if parsed is None:
        return _read_later(call, result, is_streamed)
    if is_streamed:
        watch(parsed, call)  # the raw response gives this very stream to whoever parses it
    else:
        call.end(parsed)
    return result


def _read_later(call: ModelCall, result: Any, is_streamed: bool) -> Any:
    try:
        return watch_response(result, call, is_streamed=is_streamed)
    except (AttributeError, TypeError):  # it takes no attributes: the program reads the bytes itself
        call.end(None)
        return result


def _parse_raw(result: Any) -> Any:
    """Returns what a raw response holds; None where only the program may read it."""
    parse = getattr(result, "parse", None)
    if not callable(parse) or inspect.iscoroutinefunction(parse):
        return None
    try:
        return parse()
    except Exception:  # noqa: BLE001 - the program may never parse it: nothing that is wrong with it is raised here
        return None


def _raw_kind(kwargs: Mapping[str, Any]) -> str | None:
    options = kwargs.get("options")
    headers = options.get("headers") if isinstance(options, Mapping) else None
    if not isinstance(headers, Mapping):
        return None
    return next((str(value) for name, value in headers.items() if str(name).lower() == _RAW_HEADER), None)


def _begin(recorder: Recorder, dialect: Dialect, body: Any, content: bool) -> ModelCall | None:
    return recorder.guard(lambda: ModelCall(recorder, dialect, body_of(body) or {}, content=content))


@contextmanager
def _failing(call: ModelCall) -> Iterator[None]:
    """Ends the call where the client raises, and lets the error go on."""
    try:
        yield
    except BaseException as error:
        call.fail(error)
        raise


def _replace_methods(recorder: Recorder, client: Any, copied: Any, content: bool) -> bool:
    """Replaces each known method on copies of what leads to it; returns whether there was one."""
    parts: dict[str, Any] = {"": copied}
    found = False
    for path, end in METHODS.items():
        *way, name = path.split(".")
        method = _reach(client, [*way, name])
        if not callable(method):
            continue
        if getattr(method, _MARK, False):
            raise ConflictError(f"this {type(client).__name__} is wrapped already; its calls are recorded")
        place = _copied_way(parts, client, way)
        recording = _recording(method, partial(_begin_method, recorder, DIALECTS[end], content))
        setattr(recording, _MARK, True)
        setattr(place, name, recording)
        found = True
    return found


def _begin_method(
    recorder: Recorder, dialect: Dialect, content: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> ModelCall | None:
    return _begin(recorder, dialect, kwargs, content)


def _reach(client: Any, way: list[str]) -> Any:
    for step in way:
        client = getattr(client, step, None)
        if client is None:
            return None
    return client


def _copied_way(parts: dict[str, Any], client: Any, way: list[str]) -> Any:
    """Returns the copy of what ``way`` leads to, on the copy of the client; each part is copied once."""
    place = parts[""]
    for depth in range(1, len(way) + 1):
        key = ".".join(way[:depth])
        if key not in parts:
            parts[key] = copy.copy(_reach(client, way[:depth]))
            setattr(place, way[depth - 1], parts[key])
        place = parts[key]
    return place
