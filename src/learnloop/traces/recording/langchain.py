"""A callback for LangChain and LangGraph that records their runs.

Each run of theirs is known by its ``run_id`` and names its parent, so runs at the same time never mix, whichever
thread or task they are in. A run without a parent is an episode of its own, unless it begins inside of one. While a run
goes on it is the current span, so that what its code records by other means (wrapped clients, tools) lies in it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from learnloop.core.errors import needs_extra
from learnloop.traces.conversation.messages import Message, message, read_message, text_part
from learnloop.traces.json_values import find, known_object, known_text, present, token_usage
from learnloop.traces.recording.clients.calls import note_answer, note_messages
from learnloop.traces.recording.recorder import ActiveEpisode, ActiveSpan, Recorder

if TYPE_CHECKING:
    from langchain_core.callbacks import BaseCallbackHandler

MAX_OPEN = 10_000
"""Runs of one recorder that go on at once; beyond that the oldest one is taken as abandoned."""
_LOCK = threading.Lock()
_CONTROL_FLOW = "GraphBubbleUp"
"""What LangGraph raises to interrupt a graph or to hand over to another: no failure."""


def make_callback(recorder: Recorder, *, content: bool = True) -> BaseCallbackHandler:
    """Returns a handler for ``config={"callbacks": [handler]}``; one is enough for any number of runs at once.

    Args:
        recorder: where the spans go.
        content: whether what is said is recorded, or only names, times, tokens.

    Raises:
        MissingExtraError: LangChain is not installed.
    """
    with needs_extra("the LangChain callback", "langchain"):
        from langchain_core.callbacks import BaseCallbackHandler
    runs = _Runs(recorder, content)

    class LearnloopCallback(BaseCallbackHandler):
        """Records the runs that it is told of."""

        run_inline = True  # in the order and in the context of the run, also in asynchronous programs
        raise_error = False

        def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
            runs.begin(kwargs, "custom", _name(serialized, kwargs, "chain"), inputs)

        def on_chain_end(self, outputs: Any, **kwargs: Any) -> None:
            runs.end(kwargs, outputs)

        def on_chain_error(self, error: BaseException, **kwargs: Any) -> None:
            runs.fail(kwargs, error)

        def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
            runs.ask(kwargs, "chat", _model(serialized, kwargs), lambda: [_message_of(each) for each in messages[0]])

        def on_llm_start(self, serialized: Any, prompts: Any, **kwargs: Any) -> None:
            model = _model(serialized, kwargs)
            runs.ask(kwargs, "text_completion", model, lambda: [message("user", text_part(str(p))) for p in prompts])

        def on_llm_end(self, response: Any, **kwargs: Any) -> None:
            runs.answer(kwargs, response)

        def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
            given = kwargs.get("inputs")
            name = _name(serialized, kwargs, "tool")
            runs.begin(kwargs, "execute_tool", name, input_str if given is None else given)

        def on_tool_end(self, output: Any, **kwargs: Any) -> None:
            runs.end_tool(kwargs, output)

        def on_retriever_start(self, serialized: Any, query: str, **kwargs: Any) -> None:
            runs.begin(kwargs, "retrieval", _name(serialized, kwargs, "retriever"), query)

        def on_retriever_end(self, documents: Any, **kwargs: Any) -> None:
            runs.end(kwargs, documents)

        on_llm_error = on_tool_error = on_retriever_error = on_chain_error

    return LearnloopCallback()


class _Open(NamedTuple):
    """A run that goes on."""

    span: ActiveSpan
    marks: list[str]
    """Of a model's: the fingerprints of what it was asked."""


class _Runs:
    """The runs that are going on, by their ids."""

    def __init__(self, recorder: Recorder, content: bool) -> None:
        self._recorder = recorder
        self._content = content
        self._open: OrderedDict[UUID, _Open] = recorder.open_runs

    def begin(self, kwargs: Mapping[str, Any], operation: str, name: str, given: Any) -> None:
        self._recorder.guard(lambda: self._begin(kwargs, operation, name, given))

    def ask(self, kwargs: Mapping[str, Any], operation: str, model: str, said: Callable[[], list[Message]]) -> None:
        def note() -> None:
            begun = self._begin(kwargs, operation, model, None)
            if begun is None:
                return
            span, marks = begun
            options = known_object(kwargs.get("invocation_params"))
            if self._content and options.get("tools"):
                span.set(tools=options["tools"])
            request = {key: options[key] for key in ("temperature", "max_tokens", "top_p", "stop") if options.get(key)}
            if request:
                span.set(request=request)
            marks.extend(note_messages(span, said(), content=self._content))

        self._recorder.guard(note)

    def end(self, kwargs: Mapping[str, Any], output: Any) -> None:
        self._recorder.guard(lambda: self._end(kwargs, lambda span, _: self._note_output(span, output)))

    def end_tool(self, kwargs: Mapping[str, Any], output: Any) -> None:
        def note(span: ActiveSpan, _: list[str]) -> None:
            call_id = getattr(output, "tool_call_id", None)
            if isinstance(call_id, str):
                span.set(call_id=call_id)
            self._note_output(span, getattr(output, "content", output))
            if getattr(output, "status", None) == "error":
                span.error = str(getattr(output, "content", "the tool reported an error"))

        self._recorder.guard(lambda: self._end(kwargs, note))

    def answer(self, kwargs: Mapping[str, Any], response: Any) -> None:
        def note(span: ActiveSpan, marks: list[str]) -> None:
            generations = response.generations[0] if response.generations else []
            said = [_message_of_generation(each) for each in generations]
            note_answer(span, marks, said[0] if said else None)
            if self._content and said:
                span.set(output=said)
            span.set(**_details(generations, response.llm_output))

        self._recorder.guard(lambda: self._end(kwargs, note))

    def fail(self, kwargs: Mapping[str, Any], error: BaseException) -> None:
        def note(span: ActiveSpan, marks: list[str]) -> None:
            if marks:
                note_answer(span, marks, None)

        is_flow = any(base.__name__ == _CONTROL_FLOW for base in type(error).__mro__)
        self._recorder.guard(lambda: self._end(kwargs, note, None if is_flow else error, interrupted=is_flow))

    def _begin(self, kwargs: Mapping[str, Any], operation: str, name: str, given: Any) -> _Open | None:
        """Returns the new run; None where another callback of the same recorder has begun it."""
        run_id = kwargs["run_id"]
        if run_id in self._open:
            return None
        span = self._span(kwargs.get("parent_run_id"), operation, name)
        opened = _Open(span, [])
        with _LOCK:
            self._open[run_id] = opened
        self._recorder.follow(span)
        metadata = kwargs.get("metadata")
        if isinstance(metadata, Mapping) and metadata:
            span.set(metadata=metadata)
            if isinstance(metadata.get("thread_id"), str):
                span.set(conversation_id=metadata["thread_id"])
        if self._content and given is not None:
            span.set(input=_describe(given))
        self._forget_abandoned()
        return opened

    def _span(self, parent_id: Any, operation: str, name: str) -> ActiveSpan:
        """Returns a begun span: below its parent, else below what is current; one without either is an episode."""
        known = self._open.get(parent_id)
        if known is not None:
            parent: ActiveSpan | None = known.span
        else:
            parent = self._recorder.outside if parent_id is None else self._recorder.current
        operation = "invoke_agent" if known is None and operation == "custom" else operation
        made = ActiveSpan if parent is not None else ActiveEpisode
        span = made(self._recorder, name, operation=operation)
        span.begin(parent)
        return span

    def _forget_abandoned(self) -> None:
        """Ends the oldest runs where there are too many: their library never told their end."""
        while len(self._open) > MAX_OPEN:
            with _LOCK:
                _, (span, _) = self._open.popitem(last=False)
            span.set(incomplete=True).end()

    def _end(
        self,
        kwargs: Mapping[str, Any],
        note: Callable[[ActiveSpan, list[str]], None],
        error: BaseException | None = None,
        *,
        interrupted: bool = False,
    ) -> None:
        with _LOCK:
            opened = self._open.pop(kwargs["run_id"], None)
        if opened is None:
            return
        span, marks = opened
        self._recorder.unfollow(span)
        self._recorder.guard(lambda: note(span, marks))
        if interrupted:
            span.set(interrupted=True)
        span.end(error)

    def _note_output(self, span: ActiveSpan, output: Any) -> None:
        if self._content and output is not None:
            span.set(output=_describe(output))


def _name(serialized: Any, kwargs: Mapping[str, Any], otherwise: str) -> str:
    return known_text(kwargs.get("name")) or known_text(find(serialized, "name")) or otherwise


def _model(serialized: Any, kwargs: Mapping[str, Any]) -> str:
    for place in (kwargs.get("metadata"), kwargs.get("invocation_params")):
        for key in ("ls_model_name", "model", "model_name"):
            if model := known_text(find(place, key)):
                return model
    return _name(serialized, kwargs, "model")


def _message_of(each: Any) -> Message:
    """Returns one of LangChain's messages as one of ours."""
    content, calls = getattr(each, "content", None), getattr(each, "tool_calls", None)
    if isinstance(content, list) and calls:  # Anthropic's blocks name the calls, which stand beside them too
        content = [part for part in content if not (isinstance(part, dict) and part.get("type") == "tool_use")]
    raw = {"role": getattr(each, "type", "user"), "content": content, "name": getattr(each, "name", None)}
    if calls:
        raw["tool_calls"] = calls
    if getattr(each, "tool_call_id", None):
        raw["tool_call_id"] = each.tool_call_id
    return read_message(raw)


def _message_of_generation(generation: Any) -> Message:
    said = getattr(generation, "message", None)
    return message("assistant", text_part(str(getattr(generation, "text", "")))) if said is None else _message_of(said)


def _details(generations: Sequence[Any], llm_output: Any) -> dict[str, Any]:
    """Returns the tokens, the ends and the id of an answer, as far as the model's client tells them."""
    said = getattr(generations[0], "message", None) if generations else None
    told = (
        getattr(said, "response_metadata", None) or getattr(generations[0], "generation_info", None) if said else None
    )
    told = known_object(told)
    reason = told.get("finish_reason") or told.get("stop_reason")
    details = {
        "usage": token_usage(getattr(said, "usage_metadata", None)) or token_usage(find(llm_output, "token_usage")),
        "finish_reasons": [reason] if reason else None,
        "response_id": told.get("id") or getattr(said, "id", None),
    }
    return present(details)


def _describe(value: Any) -> Any:
    """Returns what a run was given or gave, its messages as ours."""
    if isinstance(value, Mapping):
        return {str(key): _describe(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_describe(each) for each in value]
    if isinstance(getattr(value, "type", None), str) and getattr(value, "content", None) is not None:
        return _message_of(value)
    page = getattr(value, "page_content", None)
    return value if page is None else {"page_content": page, "metadata": getattr(value, "metadata", None)}
