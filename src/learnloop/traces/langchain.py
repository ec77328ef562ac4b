"""A callback for LangChain and LangGraph that records their runs.

Each run of theirs is known by its ``run_id`` and names its parent, so runs at the same time never mix, whichever
thread or task they are in. A run without a parent is an episode of its own, unless it begins inside of one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from learnloop.core.errors import MissingExtraError
from learnloop.traces.clients.calls import note_answer, note_messages
from learnloop.traces.messages import Message, message, read_message, text_part
from learnloop.traces.recorder import ActiveSpan, Recorder

if TYPE_CHECKING:
    from langchain_core.callbacks import BaseCallbackHandler

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
    try:
        from langchain_core.callbacks import BaseCallbackHandler
    except ImportError as error:
        raise MissingExtraError("the LangChain callback", "langchain") from error
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
            said = [_said(each) for each in messages[0]] if messages else []
            runs.ask(kwargs, "chat", _model(serialized, kwargs), said)

        def on_llm_start(self, serialized: Any, prompts: Any, **kwargs: Any) -> None:
            said = [message("user", text_part(str(prompt))) for prompt in prompts]
            runs.ask(kwargs, "text_completion", _model(serialized, kwargs), said)

        def on_llm_end(self, response: Any, **kwargs: Any) -> None:
            runs.answer(kwargs, response)

        def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
            runs.fail(kwargs, error)

        def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
            given = kwargs.get("inputs")
            name = _name(serialized, kwargs, "tool")
            runs.begin(kwargs, "execute_tool", name, input_str if given is None else given)

        def on_tool_end(self, output: Any, **kwargs: Any) -> None:
            runs.end_tool(kwargs, output)

        def on_tool_error(self, error: BaseException, **kwargs: Any) -> None:
            runs.fail(kwargs, error)

        def on_retriever_start(self, serialized: Any, query: str, **kwargs: Any) -> None:
            runs.begin(kwargs, "retrieval", _name(serialized, kwargs, "retriever"), query)

        def on_retriever_end(self, documents: Any, **kwargs: Any) -> None:
            runs.end(kwargs, documents)

        def on_retriever_error(self, error: BaseException, **kwargs: Any) -> None:
            runs.fail(kwargs, error)

    return LearnloopCallback()


class _Runs:
    """The runs that are going on, by their ids."""

    def __init__(self, recorder: Recorder, content: bool) -> None:
        self._recorder = recorder
        self._content = content
        self._lock = threading.Lock()
        self._open: dict[UUID, tuple[ActiveSpan, list[str]]] = {}

    def begin(self, kwargs: Mapping[str, Any], operation: str, name: str, given: Any) -> None:
        self._guard(lambda: self._begin(kwargs, operation, name, given))

    def ask(self, kwargs: Mapping[str, Any], operation: str, model: str, messages: Sequence[Message]) -> None:
        def note() -> None:
            span, marks = self._begin(kwargs, operation, model, None)
            options = kwargs.get("invocation_params")
            options = options if isinstance(options, Mapping) else {}
            if self._content and options.get("tools"):
                span.set(tools=options["tools"])
            request = {key: options[key] for key in ("temperature", "max_tokens", "top_p", "stop") if options.get(key)}
            if request:
                span.set(request=request)
            marks.extend(note_messages(span, messages, content=self._content))

        self._guard(note)

    def end(self, kwargs: Mapping[str, Any], output: Any) -> None:
        self._guard(lambda: self._end(kwargs, lambda span, _: self._note_output(span, output)))

    def end_tool(self, kwargs: Mapping[str, Any], output: Any) -> None:
        def note(span: ActiveSpan, _: list[str]) -> None:
            call_id = getattr(output, "tool_call_id", None)
            if isinstance(call_id, str):
                span.set(call_id=call_id)
            self._note_output(span, getattr(output, "content", output))
            if getattr(output, "status", None) == "error":
                span.error = str(getattr(output, "content", "the tool reported an error"))

        self._guard(lambda: self._end(kwargs, note))

    def answer(self, kwargs: Mapping[str, Any], response: Any) -> None:
        def note(span: ActiveSpan, marks: list[str]) -> None:
            generations = response.generations[0] if response.generations else []
            said = [_generated(each) for each in generations]
            note_answer(span, marks, said[0] if said else None)
            if self._content and said:
                span.set(output=said)
            span.set(**_details(generations, response.llm_output))

        self._guard(lambda: self._end(kwargs, note))

    def fail(self, kwargs: Mapping[str, Any], error: BaseException) -> None:
        def note(span: ActiveSpan, marks: list[str]) -> None:
            if marks:
                note_answer(span, marks, None)

        is_flow = any(base.__name__ == _CONTROL_FLOW for base in type(error).__mro__)
        self._guard(lambda: self._end(kwargs, note, None if is_flow else error, interrupted=is_flow))

    def _begin(self, kwargs: Mapping[str, Any], operation: str, name: str, given: Any) -> tuple[ActiveSpan, list[str]]:
        parent = self._open.get(kwargs.get("parent_run_id"))  # type: ignore[arg-type]
        if parent is None:
            span = self._recorder.span(name, operation if operation != "custom" else "invoke_agent")
            span.begin()
        else:
            span = ActiveSpan(self._recorder, name, operation)
            span.begin(parent[0])
        metadata = kwargs.get("metadata")
        if isinstance(metadata, Mapping) and metadata:
            span.set(metadata=metadata)
            if isinstance(metadata.get("thread_id"), str):
                span.set(conversation_id=metadata["thread_id"])
        if self._content and given is not None:
            span.set(input=_described(given))
        opened: tuple[ActiveSpan, list[str]] = (span, [])
        with self._lock:
            self._open[kwargs["run_id"]] = opened
        return opened

    def _end(
        self,
        kwargs: Mapping[str, Any],
        note: Callable[[ActiveSpan, list[str]], None],
        error: BaseException | None = None,
        *,
        interrupted: bool = False,
    ) -> None:
        with self._lock:
            opened = self._open.pop(kwargs["run_id"], None)
        if opened is None:
            return
        span, marks = opened
        self._guard(lambda: note(span, marks))
        if interrupted:
            span.set(interrupted=True)
        span.end(error)

    def _note_output(self, span: ActiveSpan, output: Any) -> None:
        if self._content and output is not None:
            span.set(output=_described(output))

    def _guard(self, note: Callable[[], object]) -> None:
        try:
            note()
        except Exception as error:  # noqa: BLE001 - the boundary between capture and the agent
            self._recorder.note_failure(error)


def _name(serialized: Any, kwargs: Mapping[str, Any], otherwise: str) -> str:
    name = kwargs.get("name") or (serialized.get("name") if isinstance(serialized, Mapping) else None)
    return name if isinstance(name, str) and name else otherwise


def _model(serialized: Any, kwargs: Mapping[str, Any]) -> str:
    for place in (kwargs.get("metadata"), kwargs.get("invocation_params")):
        if isinstance(place, Mapping):
            for key in ("ls_model_name", "model", "model_name"):
                if isinstance(place.get(key), str):
                    return str(place[key])
    return _name(serialized, kwargs, "model")


def _said(each: Any) -> Message:
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


def _generated(generation: Any) -> Message:
    said = getattr(generation, "message", None)
    return message("assistant", text_part(str(getattr(generation, "text", "")))) if said is None else _said(said)


def _details(generations: Sequence[Any], llm_output: Any) -> dict[str, Any]:
    """Returns the tokens, the ends and the id of an answer, as far as the model's client tells them."""
    said = getattr(generations[0], "message", None) if generations else None
    told = (
        getattr(said, "response_metadata", None) or getattr(generations[0], "generation_info", None) if said else None
    )
    told = told if isinstance(told, Mapping) else {}
    reason = told.get("finish_reason") or told.get("stop_reason")
    details = {
        "usage": _usage(getattr(said, "usage_metadata", None), llm_output) or None,
        "finish_reasons": [reason] if reason else None,
        "response_id": told.get("id") or getattr(said, "id", None),
    }
    return {name: value for name, value in details.items() if value is not None}


def _usage(counted: Any, llm_output: Any) -> dict[str, int]:
    if isinstance(counted, Mapping):
        given, made = counted.get("input_token_details") or {}, counted.get("output_token_details") or {}
        counts = {
            "input_tokens": counted.get("input_tokens"),
            "output_tokens": counted.get("output_tokens"),
            "cached_input_tokens": given.get("cache_read"),
            "reasoning_tokens": made.get("reasoning"),
        }
    else:
        told = llm_output.get("token_usage") if isinstance(llm_output, Mapping) else None
        told = told if isinstance(told, Mapping) else {}
        counts = {"input_tokens": told.get("prompt_tokens"), "output_tokens": told.get("completion_tokens")}
    return {name: count for name, count in counts.items() if isinstance(count, int)}


def _described(value: Any) -> Any:
    """Returns what a run was given or gave, its messages as ours."""
    if isinstance(value, Mapping):
        return {str(key): _described(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_described(each) for each in value]
    if isinstance(getattr(value, "type", None), str) and getattr(value, "content", None) is not None:
        return _said(value)
    page = getattr(value, "page_content", None)
    return value if page is None else {"page_content": page, "metadata": getattr(value, "metadata", None)}
