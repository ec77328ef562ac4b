"""ATIF trajectories (Agent Trajectory Interchange Format, 1.0 to 1.8): a JSON document, a list of them, or JSON Lines.

An agent's step is a call of the model, unless it says that no model was called; what the user and the system said
since the last one is its input, its tools' results are the next one's. Sub-agents that are embedded are part of the
episode, with a conversation of their own. What learnloop wrote itself (``extra.learnloop``) comes back as it was:
task, attempt, rewards, times.

Source: Harbor RFC 0001, "Agent Trajectory Interchange Format", and its changes up to 1.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from learnloop.core.errors import FormatError
from learnloop.core.records import Record
from learnloop.traces.conversation.messages import (
    Message,
    as_text,
    flat_text,
    message,
    parsed,
    read_message,
    tool_response_part,
)
from learnloop.traces.importing.building import EpisodeBuilder
from learnloop.traces.importing.reader import ItemReader, TraceFormat, convert, known_time, parse_time
from learnloop.traces.json_values import find, known_list, known_object, known_text, present, token_usage

OURS = "learnloop"
"""The entry of an ``extra`` that learnloop writes what the format has no place for into."""
_MAX_NESTED = 16
_Extra = dict[str, Any] | None


class _ToolCall(msgspec.Struct):
    function_name: str
    tool_call_id: str | None = None
    arguments: Any = None
    extra: _Extra = None


class _Result(msgspec.Struct):
    source_call_id: str | None = None
    content: Any = None
    subagent_trajectory_ref: Any = None
    extra: _Extra = None


class _Observation(msgspec.Struct):
    results: list[_Result] = []


class _Metrics(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: _Extra = None


class _Step(msgspec.Struct):
    source: str
    message: Any = None
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    llm_call_count: int | None = None
    is_copied_context: bool | None = None
    extra: _Extra = None


class _Agent(msgspec.Struct):
    name: str | None = None
    version: str | None = None
    model_name: str | None = None
    tool_definitions: list[Any] | None = None
    extra: _Extra = None


class _Trajectory(msgspec.Struct):
    steps: list[_Step]
    schema_version: str | None = None
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: _Agent | None = None
    notes: Any = None
    final_metrics: Any = None
    continued_trajectory_ref: Any = None
    subagent_trajectories: list[Any] | None = None
    extra: _Extra = None


class _GivenReward(msgspec.Struct):
    name: str
    value: float | None
    weight: float = 1.0
    reason: str | None = None
    step_id: int | None = None
    created_at: str | None = None


class _Given(msgspec.Struct):
    """What learnloop wrote about an episode."""

    task_id: str | None = None
    attempt: int | None = None
    agent_id: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    terminated: bool = True
    truncated: bool = False
    error: str | None = None
    metadata: dict[str, Any] = {}
    rewards: list[_GivenReward] = []
    root: dict[str, Any] = {}


class AtifReader(ItemReader):
    """Reads each trajectory into an episode."""

    format_name = "atif"

    def read(self, item: Any) -> list[Record]:
        """Returns the episode of one trajectory."""
        trajectory = convert(item, _Trajectory)
        given = convert(_ours(trajectory.extra), _Given)
        times = [parse_time(step.timestamp) for step in trajectory.steps if step.timestamp]
        agent = trajectory.agent or _Agent()
        builder = EpisodeBuilder(
            self,
            self._episode_id(item, trajectory, times),
            task_id=given.task_id,
            attempt=given.attempt,
            agent_id=given.agent_id or agent.name or None,
            started_at=known_time(given.started_at) or min(times, default=None),
            metadata=_metadata(trajectory, agent, given),
        )
        steps = _Steps(builder, trajectory, agent)
        steps.take()
        self._rewards(builder, trajectory, given, steps.spans)
        return builder.finish(
            terminated=given.terminated,
            truncated=given.truncated,
            error=given.error,
            ended_at=known_time(given.ended_at),
            **{name: value for name, value in given.root.items() if name not in _FINISH},
        )

    def _episode_id(self, item: Any, trajectory: _Trajectory, times: list[datetime]) -> str:
        """Returns an id of the run's own ids and the first times: some agents give every session the same id."""
        session = [trajectory.session_id or "", trajectory.trajectory_id or ""]
        if not any(session):
            return self.unnamed_id(item)
        if not times:
            return self.ids.derive("episode", *session, self.ids.for_line(item))
        answer = next((step for step in trajectory.steps if step.source == "agent"), None)
        said = "" if answer is None else as_text([answer.timestamp, answer.message, answer.model_name])
        return self.ids.derive("episode", *session, times[0].isoformat(), said)

    def _rewards(
        self, builder: EpisodeBuilder, trajectory: _Trajectory, given: _Given, spans: Mapping[int, str]
    ) -> None:
        for reward in given.rewards:
            span_id = None if reward.step_id is None else spans.get(reward.step_id)
            if reward.step_id is not None and span_id is None:
                raise FormatError(f"a reward names step {reward.step_id}, which is no agent's step of the trajectory")
            moment = known_time(reward.created_at)
            builder.reward(
                reward.name,
                reward.value,
                weight=reward.weight,
                span_id=span_id,
                reason=reward.reason,
                created_at=moment,
            )
        if not given.rewards:
            for name, value in _rewards_of(trajectory.extra):
                builder.reward(name, value)


class _Steps(msgspec.Struct):
    """Adds the steps of a trajectory to its episode."""

    builder: EpisodeBuilder
    trajectory: _Trajectory
    agent: _Agent
    thread: str = ""
    parent_id: str | None = None
    depth: int = 0
    spans: dict[int, str] = {}
    """The span of each agent's step, by its place counted from 1."""
    pending: list[Message] = []
    asked_by: dict[str, str] = {}
    """The tool span that names each embedded trajectory."""

    def take(self) -> None:
        """Adds all steps, then the trajectories that are embedded."""
        for number, step in enumerate(self.trajectory.steps, start=1):
            if step.source not in ("system", "user", "agent"):
                raise FormatError(f"the source of step {number} is {step.source!r}, not 'system', 'user' or 'agent'")
            if step.source != "agent":
                self._hear(step)
            elif step.is_copied_context:
                self.pending.append(_answer(step))
                self.pending += [response for _, response in _pair_results(step)]
            else:
                self._act(number, step)
        if self.pending and not self.depth:
            self.builder.note(messages_after_last_answer=self.pending)
        for number, raw in enumerate(self.trajectory.subagent_trajectories or [], start=1):
            self._add_embedded(number, raw)

    def _hear(self, step: _Step) -> None:
        kept = _ours(step.extra).get("message")
        said = read_message(
            kept if isinstance(kept, dict) else {"role": step.source, "content": flat_text(step.message)}
        )
        self.pending.append(said)
        if step.observation is not None:
            results = [present(msgspec.to_builtins(each)) for each in step.observation.results]
            self._observe(step, results)

    def _observe(self, step: _Step, output: Any) -> str:
        moment = known_time(step.timestamp)
        return self.builder.span("custom", "observation", moment, parent_id=self.parent_id, output=output)

    def _act(self, number: int, step: _Step) -> None:
        if step.llm_call_count != 0:
            self.spans[number] = self._chat(step, _ours(step.extra))
        elif step.message:
            self.pending.append(_answer(step))
        for called, response in _pair_results(step):
            if called[0] is None:  # feedback on what the model said, without a call
                content = response["parts"][0].get("response")
                span_id = self._observe(step, content)
            else:
                span_id = self._tool(step, called[0], called[1], response)
            self.spans.setdefault(number, span_id)
            if step.llm_call_count != 0:
                self.pending.append(response)

    def _chat(self, step: _Step, ours: Mapping[str, Any]) -> str:
        kept, metrics = known_object(ours.get("attributes")), step.metrics or _Metrics()
        attributes = {
            "usage": _usage(metrics),
            "token_ids": _token_ids(metrics),
            "logprobs": metrics.logprobs,
            "cost_usd": metrics.cost_usd,
            "request": {"reasoning_effort": step.reasoning_effort} if step.reasoning_effort is not None else None,
            "tools": self.agent.tool_definitions if not self.spans else None,
            "extra": _foreign(step.extra),
            "metrics_extra": _other_metrics(metrics, kept),
            "num_model_calls": step.llm_call_count if step.llm_call_count != 1 else None,
        }
        attributes.update({name: value for name, value in kept.items() if name not in _CHAT})
        pending, self.pending = self.pending, []
        return self.builder.chat(
            step.model_name or self.agent.model_name or "",
            pending,
            None if ours.get("no_output") is True else _answer(step),
            **self._about(step, ours),
            thread=self.thread,
            **attributes,
        )

    def _tool(self, step: _Step, call: _ToolCall, result: _Result | None, response: Message) -> str:
        ours = _ours(result.extra if result else None) or _ours(call.extra)
        references = result.subagent_trajectory_ref if result else None
        span_id = self.builder.tool(
            call.function_name,
            _arguments(call),
            response["parts"][0].get("response"),
            call_id=_call_id(call),
            **self._about(step, ours),
            subagents=references,
            **{name: value for name, value in known_object(ours.get("attributes")).items() if name not in _CHAT},
        )
        for reference in known_list(references):
            if known := known_text(find(reference, "trajectory_id")):
                self.asked_by[known] = span_id
        return span_id

    def _about(self, step: _Step, ours: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what is known of a span of a step, whether it is the model's or a tool's."""
        error = ours.get("error")
        return {
            "started_at": known_time(ours.get("started_at")) or known_time(step.timestamp),
            "ended_at": known_time(ours.get("ended_at")),
            "parent_id": self.parent_id,
            "error": error if isinstance(error, str) else None,
        }

    def _add_embedded(self, number: int, raw: Any) -> None:
        if self.depth >= _MAX_NESTED:
            raise FormatError(f"subagent_trajectories are nested more than {_MAX_NESTED} deep")
        trajectory = convert(raw, _Trajectory)
        agent = trajectory.agent or _Agent()
        times = [parse_time(step.timestamp) for step in trajectory.steps if step.timestamp]
        known = trajectory.trajectory_id or str(number)
        span_id = self.builder.span(
            "invoke_agent",
            agent.name or known,
            min(times, default=None),
            max(times, default=None),
            parent_id=self.asked_by.get(known) or self.parent_id,
            trajectory_id=trajectory.trajectory_id,
        )
        thread = f"{self.thread}/{known}"
        nested = _Steps(self.builder, trajectory, agent, thread=thread, parent_id=span_id, depth=self.depth + 1)
        nested.take()


_FINISH = frozenset({"self", "terminated", "truncated", "error", "ended_at", "name"})
_CHAT = frozenset(
    {"input", "output", "input_offset", "model", "messages", "started_at", "ended_at", "parent_id", "error", "thread"}
    | {"self", "key", "name", "operation", "call_id", "arguments", "result", "subagents"}
)
"""What a span has a parameter for, which a file's attributes may not take the place of."""


def _pair_results(step: _Step) -> list[tuple[tuple[_ToolCall | None, _Result | None], Message]]:
    """Returns each call with its result, and results of no call, with the message that tells the model."""
    calls = step.tool_calls or []
    results = list(step.observation.results) if step.observation else []
    by_id = {_call_id(call): call for call in calls if _call_id(call)}
    loose = [each for each in results if each.source_call_id not in by_id]
    in_order = len(loose) == len(results) == len(calls) and all(each.source_call_id is None for each in loose)
    paired: list[tuple[_ToolCall | None, _Result | None]]
    if in_order:  # as many results as calls, and no ids: one each
        paired = list(zip(calls, results, strict=True))
    else:
        answers = {each.source_call_id: each for each in results if each.source_call_id in by_id}
        paired = [(call, answers.get(_call_id(call))) for call in calls]
        paired += [(None, each) for each in loose]
    return [(pair, _response(*pair)) for pair in paired if pair[1] is not None or step.llm_call_count == 0]


def _response(call: _ToolCall | None, result: _Result | None) -> Message:
    call_id = _call_id(call) if call else result.source_call_id if result else None
    content = flat_text(result.content) if result else None
    if result is not None and _ours(result.extra).get("json") is True:
        content = parsed(content)
    return message("tool", tool_response_part(call_id, content))


def _call_id(call: _ToolCall) -> str | None:
    return None if _ours(call.extra).get("no_id") is True else call.tool_call_id


def _arguments(call: _ToolCall) -> Any:
    if _ours(call.extra).get("wrapped") is True and isinstance(call.arguments, dict):
        return call.arguments.get("input")
    return call.arguments


def _answer(step: _Step) -> Message:
    """Returns what the model said in a step."""
    parts = _ours(step.extra).get("parts")
    if isinstance(parts, list):
        return read_message({"role": "assistant", "parts": parts})
    said = read_message({"role": "assistant", "content": flat_text(step.message)})
    thought = [{"type": "reasoning", "content": step.reasoning_content}] if step.reasoning_content else []
    calls = [
        {"type": "tool_call", "id": _call_id(call), "name": call.function_name, "arguments": _arguments(call)}
        for call in step.tool_calls or []
    ]
    return message("assistant", *thought, *said["parts"], *calls)


def _usage(metrics: _Metrics) -> dict[str, int] | None:
    return token_usage({**msgspec.structs.asdict(metrics), "reasoning_tokens": find(metrics.extra, "reasoning_tokens")})


def _other_metrics(metrics: _Metrics, kept: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the metrics of the program that wrote the file, without those that the usage has."""
    if "usage" in kept:
        return None
    return {name: value for name, value in (metrics.extra or {}).items() if name != "reasoning_tokens"} or None


def _token_ids(metrics: _Metrics) -> dict[str, list[int]] | None:
    return present({"prompt": metrics.prompt_token_ids, "completion": metrics.completion_token_ids}) or None


def _metadata(trajectory: _Trajectory, agent: _Agent, given: _Given) -> dict[str, Any]:
    return {
        **given.metadata,
        "session_id": trajectory.session_id if not given.agent_id else given.metadata.get("session_id"),
        "trajectory_id": trajectory.trajectory_id,
        "schema_version": trajectory.schema_version,
        "agent": present(msgspec.to_builtins(msgspec.structs.replace(agent, tool_definitions=None))) or None,
        "notes": trajectory.notes,
        "final_metrics": trajectory.final_metrics,
        "continued_trajectory_ref": trajectory.continued_trajectory_ref,
        "extra": _foreign(trajectory.extra),
    }


def _rewards_of(extra: _Extra) -> list[tuple[str, float]]:
    """Returns the numbers that a trajectory's ``extra`` calls its reward."""
    given = {"reward": find(extra, "reward"), **known_object(find(extra, "rewards"))}
    return [(name, value) for name, value in given.items() if isinstance(value, int | float)]


def _ours(extra: _Extra) -> dict[str, Any]:
    return dict(known_object(find(extra, OURS)))


def _foreign(extra: _Extra) -> dict[str, Any] | None:
    return {name: value for name, value in (extra or {}).items() if name != OURS} or None


def _is_trajectory(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        return False
    version, steps = value.get("schema_version"), value["steps"]
    if isinstance(version, str):
        return version.startswith("ATIF")
    return bool(steps) and isinstance(steps[0], dict) and {"step_id", "source"} <= steps[0].keys()


ATIF_LINES = TraceFormat("atif-jsonl", "schema_version ATIF and steps", _is_trajectory, AtifReader)
ATIF = ATIF_LINES.as_document("atif")
