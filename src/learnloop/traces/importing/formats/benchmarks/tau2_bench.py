"""tau2-bench results: a JSON object with ``simulations``, each a run of an agent with a user that a model plays.

The steps are the agent's. What the user says is their input; the tools that the user calls are spans of
their own (``requestor``), which the agent does not see. The greeting that opens a conversation is written by the
benchmark, so it is input too. ``reward`` is the benchmark's reward; its parts are metrics (weight 0), because they are
in it already. A reward that is null is not made up: a file that is imported again once it is known adds it.

One file of a run that was saved as a folder (``simulations/<id>.json``) can be imported too; it does not name the
domain. Voice runs without ``messages`` have no steps.

Source: Barres et al. 2025, "tau2-bench", ``data_model/simulation.py`` and ``message.py`` of its repository.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from learnloop.core.records import Record
from learnloop.traces.conversation.messages import Message, Part, as_text, read_message
from learnloop.traces.importing.building import Asked, EpisodeBuilder
from learnloop.traces.importing.reader import (
    Count,
    ItemReader,
    Seconds,
    TraceFormat,
    convert,
    parse_time,
    required_list,
    shifted,
)
from learnloop.traces.json_values import find, known_list, known_object, known_text, token_usage

_ENDED = frozenset({"user_stop", "agent_stop"})
_LIMITS = frozenset({"max_steps", "timeout", "too_many_errors", "context_window_exceeded"})
_BROKEN = frozenset({"agent_error", "user_error", "infrastructure_error", "unexpected_error"})
_CHECKS: Mapping[str, str] = {
    "action_checks": "action_reward",
    "env_assertions": "reward",
    "nl_assertions": "met",
    "communicate_checks": "met",
}
"""The lists of checks behind a reward, with the field that says how each came out."""
_KEPT = ("termination_reason", "agent_cost", "user_cost", "duration", "seed", "mode", "speech_environment")


class _Call(msgspec.Struct):
    name: str
    id: str | None = None
    arguments: Any = None
    requestor: str = "assistant"


class _Said(msgspec.Struct):
    role: str
    content: Any = None
    id: str | None = None
    tool_calls: list[_Call] | None = None
    tool_messages: list[dict[str, Any]] | None = None
    requestor: str = "assistant"
    error: bool | None = None
    timestamp: str | None = None
    cost: float | None = None
    usage: dict[str, Any] | None = None
    raw_data: dict[str, Any] | None = None
    generation_time_seconds: Seconds | None = None


class _Simulation(msgspec.Struct):
    task_id: str | int
    id: str | int | None = None
    trial: Count | None = None
    start_time: str | None = None
    end_time: str | None = None
    termination_reason: str | None = None
    reward_info: dict[str, Any] | None = None
    messages: list[dict[str, Any]] | None = None
    ticks: list[Any] | None = None
    info: Any = None


class Tau2BenchReader(ItemReader):
    """Reads each simulation into an episode."""

    format_name = "tau2-bench"

    def read(self, item: Any) -> list[Record]:
        """Returns the episode of one simulation, with a step for each answer of the agent's model."""
        info, tasks, raw = item
        run = convert(raw, _Simulation)
        domain = known_text(find(info, "environment_info", "domain_name"))
        task_id = ":".join(["tau2-bench", *([domain] if domain else []), str(run.task_id)])
        builder = EpisodeBuilder(
            self,
            self.unnamed_id(raw) if run.id is None else self.ids.derive("episode", str(run.id)),
            task_id=task_id,
            attempt=run.trial,
            started_at=None if run.start_time is None else parse_time(run.start_time),
            metadata=_metadata(info, raw, run),
        )
        _Conversation(builder, known_object(info.get("agent_info"))).add(run.messages or [])
        _add_rewards(builder, run.reward_info or {})
        why = run.termination_reason
        records = builder.finish(
            terminated=why in _ENDED,
            truncated=why in _LIMITS,
            error=_failure(why, run.info),
            ended_at=None if run.end_time is None else parse_time(run.end_time),
        )
        return [*self.task_records(task_id, tasks.get(str(run.task_id), {})), *records]


class _Conversation:
    """Adds the agent's calls, and the tools that either side calls."""

    def __init__(self, builder: EpisodeBuilder, agent: Mapping[str, Any]) -> None:
        self._builder = builder
        self._model = known_text(agent.get("llm")) or ""
        self._request = known_object(agent.get("llm_args")) or None
        self._heard: list[Message] = []
        self._asked: dict[str | None, Asked] = {}

    def add(self, messages: list[dict[str, Any]]) -> None:
        """Adds all messages of a simulation."""
        for number, raw in enumerate(messages):
            said = convert(raw, _Said)
            self._asked.update({call.id: Asked(call.name, call.arguments) for call in said.tool_calls or []})
            if said.tool_messages is not None:
                for part in said.tool_messages:
                    self._result(convert(part, _Said), part)
            elif said.role == "tool":
                self._result(said, raw)
            elif said.role == "assistant" and (number > 0 or said.usage or said.tool_calls):
                self._answer(said, raw)
            elif said.role != "user" or said.content:
                self._heard.append(_message(said, raw, tools=said.role != "user"))
        if self._heard:
            self._builder.note(messages_after_last_answer=self._heard)

    def _answer(self, said: _Said, raw: Mapping[str, Any]) -> None:
        source = said.raw_data or {}
        reason = source.get("finish_reason") or source.get("stop_reason")
        answer = _message(said, raw)
        answer["parts"] = [*_reasoning(source), *answer["parts"]]
        ended = None if said.timestamp is None else parse_time(said.timestamp)
        seconds = said.generation_time_seconds
        self._builder.chat(
            self._model,
            self._heard,
            answer,
            started_at=ended if ended is None or seconds is None else shifted(ended, seconds=-seconds),
            ended_at=ended if seconds is not None else None,
            usage=token_usage(said.usage),
            cost_usd=said.cost,
            request=self._request,
            finish_reasons=[reason] if isinstance(reason, str) else None,
            response_id=known_text(source.get("id")),
            response_model=known_text(source.get("model")),
        )
        self._heard = []

    def _result(self, said: _Said, raw: Mapping[str, Any]) -> None:
        own = said.requestor != "user"
        if own:
            self._heard.append(_message(said, raw))
        self._builder.answer(
            self._asked.get(said.id),
            said.content,
            None if said.timestamp is None else parse_time(said.timestamp),
            call_id=said.id,
            error=(as_text(said.content) or "the tool reported an error") if said.error else None,
            requestor=None if own else said.requestor,
        )


def _message(said: _Said, raw: Mapping[str, Any], *, tools: bool = True) -> Message:
    """Returns a message in our words; of the user without the tools that only the user sees."""
    if said.role == "tool":
        return read_message({"role": "tool", "tool_call_id": said.id, "content": said.content})
    return read_message(
        {"role": said.role, "content": said.content, "tool_calls": raw.get("tool_calls") if tools else None}
    )


def _reasoning(source: Mapping[str, Any]) -> Iterator[Part]:
    """Yields what the model thought, where the file kept the API's own answer."""
    texts = [find(block, "thinking") for block in known_list(source.get("thinking_blocks"))]
    for text in (*texts, find(source, "message", "reasoning_content")):
        if known_text(text):
            yield {"type": "reasoning", "content": text}


def _add_rewards(builder: EpisodeBuilder, info: Mapping[str, Any]) -> None:
    builder.known_reward("reward", info.get("reward"))
    builder.known_reward("db_check", find(info, "db_check", "db_reward"), weight=0)
    for name, value in known_object(info.get("reward_breakdown")).items():
        builder.known_reward(f"reward_breakdown.{name}", value, weight=0)
    for field, outcome in _CHECKS.items():
        for number, check in enumerate(map(known_object, required_list(field, info.get(field)))):
            builder.known_reward(f"{field}.{number}", check.get(outcome), weight=0, reason=_about(check))


def _about(check: Mapping[str, Any]) -> str | None:
    """Returns what a check looked at, and what its judge had to say."""
    subject = known_text(find(check, "action", "name")) or known_text(check.get("info"))
    subject = subject or known_text(check.get("nl_assertion"))
    return ": ".join(text for text in (subject, known_text(check.get("justification"))) if text) or None


def _failure(why: str | None, info: Any) -> str | None:
    if why not in _BROKEN:
        return None
    detail = known_text(find(info, "error"))
    return f"{why}: {detail}" if detail else why


def _metadata(info: Mapping[str, Any], raw: Mapping[str, Any], run: _Simulation) -> dict[str, Any]:
    return {
        **{name: raw.get(name) for name in _KEPT},
        "reward_basis": find(run.reward_info, "reward_basis"),
        "reward_notes": find(run.reward_info, "info"),
        "info": run.info,
        "agent_implementation": find(info, "agent_info", "implementation"),
        "user_implementation": find(info, "user_info", "implementation"),
        "user_model": find(info, "user_info", "llm"),
        "git_commit": info.get("git_commit"),
        "num_ticks": None if run.ticks is None else len(run.ticks),
        "review": raw.get("review"),
    }


def _simulations(value: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], Any]]:
    """Yields each simulation with what the file says of the run and of its tasks."""
    if "simulations" not in value:
        return iter([({}, {}, value)])
    tasks = {}
    for raw in known_list(value.get("tasks")):
        task = known_object(raw)
        if isinstance(task.get("id"), str | int):
            tasks[str(task["id"])] = {name: part for name, part in task.items() if name != "id"}
    info = known_object(value.get("info"))
    return ((info, tasks, each) for each in value["simulations"])


def _fits(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    whole = isinstance(value.get("simulations"), list) and ("tasks" in value or "info" in value)
    return whole or {"task_id", "termination_reason", "reward_info", "messages"} <= value.keys()


TAU2_BENCH = TraceFormat(
    "tau2-bench",
    "an object with simulations and tasks, or one simulation with task_id, termination_reason and messages",
    _fits,
    Tau2BenchReader,
    shape="document",
    items=_simulations,
)
