"""What an agent does, recorded: by decorators, by hand, and through what it uses already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from learnloop.traces.recording.clients.wrapping import wrap
from learnloop.traces.recording.hooking import hook
from learnloop.traces.recording.instrument import instrument
from learnloop.traces.recording.langchain import make_callback
from learnloop.traces.recording.recorder import ActiveSpan, Recorder

if TYPE_CHECKING:
    from langchain_core.callbacks import BaseCallbackHandler

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Capture:
    """Records into a recorder; nothing in here raises into the agent or makes it wait once it runs."""

    def __init__(self, recorder: Recorder) -> None:
        """Records with ``recorder``."""
        self._recorder = recorder

    def span(self, name: str, operation: str = "custom", **attributes: object) -> ActiveSpan:
        """Returns a context manager that records one timed operation inside the current episode.

        Args:
            name: which model, tool or part.
            operation: ``chat``, ``execute_tool`` ... (OpenTelemetry GenAI operation names) or ``custom``.
            attributes: what to keep with it; ``span.set(...)`` adds more.
        """
        return self._recorder.span(name, operation, attributes)

    @overload
    def agent(self, function: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def agent(
        self, /, *, name: str | None = None, content: bool = True
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    def agent(self, function: Any = None, /, *, name: str | None = None, content: bool = True) -> Any:
        """Decorates the function that runs the agent, of any kind; outside of an episode each call makes one.

        Args:
            function: a function, coroutine function, generator or async generator.
            name: of the span; the function's name where None.
            content: whether arguments and result are recorded.
        """
        return self._decorate("invoke_agent", function, name, content)

    @overload
    def tool(self, function: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def tool(
        self, /, *, name: str | None = None, content: bool = True
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    def tool(self, function: Any = None, /, *, name: str | None = None, content: bool = True) -> Any:
        """Decorates a tool of the agent, a function of any kind, so that each call is a span.

        Args:
            function: a function, coroutine function, generator or async generator.
            name: of the span; the function's name where None.
            content: whether arguments and result are recorded.
        """
        return self._decorate("execute_tool", function, name, content)

    def wrap(self, client: T, *, content: bool = True) -> T:
        """Returns a client of a model like ``client`` that records its calls, below the current span.

        For OpenAI's and Anthropic's clients and those that have their methods, synchronous or not: answers, streams
        (which stay what they are), tools, parsed answers, raw responses. Outside of an episode each call makes one.
        The client itself and its class stay as they are; both share their connections.

        Args:
            client: the client.
            content: whether what is said is recorded, or only models, times and tokens.

        Raises:
            UsageError: it is no client of a model.
        """
        return wrap(self._recorder, client, content=content)

    def callback(self, *, content: bool = True) -> BaseCallbackHandler:
        """Returns a callback for LangChain and LangGraph: ``graph.invoke(state, {"callbacks": [loop.callback()]})``.

        One is enough for any number of runs at once. A run outside of an episode is an episode of its own.

        Args:
            content: whether what is said is recorded, or only names, times and tokens.

        Raises:
            MissingExtraError: LangChain is not installed.
        """
        return make_callback(self._recorder, content=content)

    def hook(
        self,
        agent: T,
        *,
        run: str | Sequence[str] | None = None,
        tool: str | Sequence[str] | None = None,
        content: bool = True,
    ) -> T:
        """Records the runs and the tool calls of an agent that is an object, and returns it; its class stays as it is.

        Args:
            agent: any object with a method that runs it, such as ``run`` or ``a_run``.
            run: the names of such methods; the usual ones that it has where None.
            tool: the names of the methods that call a tool, named by their first argument; the usual ones where None.
            content: whether arguments and results are recorded.

        Raises:
            UsageError: it has no such method.
            ConflictError: it is hooked already.
        """
        return hook(self._recorder, agent, run=run, tool=tool, content=content)

    def _decorate(self, operation: str, function: Any, name: str | None, content: bool) -> Any:
        def decorate(wrapped: Callable[P, R]) -> Callable[P, R]:
            return instrument(self._recorder, wrapped, operation=operation, name=name, content=content)

        return decorate if function is None else decorate(function)
