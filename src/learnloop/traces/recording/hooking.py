"""Records an agent that is an object with methods to run it and to call its tools, without changing its class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from learnloop.core.errors import ConflictError, UsageError, one_of
from learnloop.traces.recording.instrument import instrument
from learnloop.traces.recording.recorder import Recorder

A = TypeVar("A")

RUN_METHODS = ("run", "a_run", "arun", "invoke", "ainvoke")
TOOL_METHODS = ("run_function", "arun_function", "call_tool", "acall_tool", "execute_tool", "run_tool", "arun_tool")
_NAME_WORDS = ("function_name", "tool_name", "name", "tool")
_MARK = "__learnloop_hooked__"


def hook(
    recorder: Recorder,
    agent: A,
    *,
    run: str | Sequence[str] | None = None,
    tool: str | Sequence[str] | None = None,
    content: bool = True,
) -> A:
    """Records the runs and the tool calls of ``agent`` from now on, and returns it.

    A run outside of an episode is an episode of its own; a tool call is a span of its tool's name. The methods are
    replaced on this one object.

    Args:
        recorder: where the spans go.
        agent: any object with such methods, synchronous or not.
        run: the names of the methods that run it; those of ``RUN_METHODS`` that it has where None.
        tool: the names of the methods that call a tool, whose name is their first argument; those of
            ``TOOL_METHODS`` that it has where None.
        content: whether arguments and results are recorded.

    Raises:
        UsageError: it has no such method, or takes no replaced one.
        ConflictError: it is hooked already.
    """
    runs = _methods(agent, run, RUN_METHODS)
    tools = _methods(agent, tool, TOOL_METHODS)
    if not runs:
        raise UsageError(
            f"{type(agent).__name__} has none of the methods {one_of(RUN_METHODS)}; name the one that runs it: "
            "hook(agent, run='...')"
        )
    if any(getattr(method, _MARK, False) for method in (*runs.values(), *tools.values())):
        raise ConflictError(f"this {type(agent).__name__} is hooked already; its runs are recorded")
    replaced = {
        name: instrument(recorder, method, operation="invoke_agent", name=type(agent).__name__, content=content)
        for name, method in runs.items()
    }
    for name, method in tools.items():
        replaced[name] = instrument(recorder, method, operation="execute_tool", content=content, reading=_tool_call)
    _replace(agent, replaced)
    return agent


def _replace(agent: Any, methods: Mapping[str, Any]) -> None:
    """Puts all methods in place, or none."""
    placed: list[str] = []
    try:
        for name, method in methods.items():
            setattr(method, _MARK, True)
            setattr(agent, name, method)
            placed.append(name)
    except (AttributeError, TypeError) as error:
        for name in placed:
            delattr(agent, name)
        raise UsageError(
            f"{type(agent).__name__} takes no attributes ({error}); decorate its methods with loop.agent and loop.tool"
        ) from error


def _methods(agent: object, wanted: str | Sequence[str] | None, usual: Sequence[str]) -> dict[str, Any]:
    names = usual if wanted is None else [wanted] if isinstance(wanted, str) else wanted
    found = {name: getattr(agent, name, None) for name in names}
    missing = [name for name, method in found.items() if not callable(method)]
    if wanted is not None and missing:
        raise UsageError(f"{type(agent).__name__} has no method {one_of(missing)}")
    return {name: method for name, method in found.items() if callable(method)}


def _tool_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, Any]:
    """Returns the tool's name and its arguments: the first argument is the name, the rest is what the tool gets."""
    rest = dict(kwargs)
    if args:
        name, args = args[0], args[1:]
    else:
        word = next((word for word in _NAME_WORDS if word in rest), None)
        name = rest.pop(word) if word else "tool"
    if len(args) == 1 and isinstance(args[0], Mapping) and not rest:
        return str(name), args[0]
    return str(name), {**({"args": list(args)} if args else {}), **rest}
