"""Writes episodes as ATIF trajectories.

Each call of a model is an agent's step with its tool calls, their results and, where they were recorded, token ids and
log-probabilities; what was said to the model comes before it, once. Sub-agents are embedded trajectories. What the
format has no place for (task, attempt, rewards, times of tools) is in ``extra.learnloop``, from where reading the file
brings it back.

Source: Harbor RFC 0001, "Agent Trajectory Interchange Format", version 1.7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import IO, Any

import msgspec

from learnloop.core.attempts import ToolCall
from learnloop.core.records import Episode, Reward, Span
from learnloop.store import Store
from learnloop.traces.conversation.messages import Message, as_text, text_of, tool_calls_of, tool_responses_of
from learnloop.traces.conversation.steps import MODEL_OPERATIONS, TOOL_OPERATION, Step, in_time_order, steps_of
from learnloop.traces.exporting.episodes import EpisodeRecords, episode_records, file_name
from learnloop.traces.json_values import find, known_integer, known_object, known_text, present

VERSION = "ATIF-v1.7"
OURS = "learnloop"
_UNKNOWN = "unknown"
_MAX_NESTED = 12
_CALLS = MODEL_OPERATIONS | {TOOL_OPERATION}
_TOLD = ("input", "output", "call_id")
"""Attributes of a tool's span that the call and its result have fields for."""
_METRICS = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "cached_input_tokens": "cached_tokens",
}


def to_atif(records: EpisodeRecords) -> dict[str, Any]:
    """Returns an episode as one ATIF trajectory: a JSON object."""
    episode = records.episode
    spans = in_time_order(records.spans)
    agents = _Agents(spans)
    timed = episode.metadata.get("time_unknown") is not True
    writer = _Writer(agents, timed)
    trajectory = writer.trajectory(agents.root, episode.episode_id, episode.agent_id, 0)
    given = _own_fields(episode, agents.root, records.rewards, writer.step_ids, timed)
    version = _version(episode.metadata)
    return {
        "schema_version": VERSION,
        "session_id": episode.episode_id,
        **trajectory,
        "agent": {**trajectory["agent"], "version": version},
        "extra": {OURS: given},
    }


def write_atif_lines(store: Store, target: IO[bytes], *, agent_id: str | None = None) -> int:
    """Writes each episode of a store, or of one agent, as a line of JSON; returns their number."""
    number = 0
    for records in episode_records(store, agent_id):
        target.write(msgspec.json.encode(to_atif(records)) + b"\n")
        number += 1
    return number


def atif_files(store: Store, *, agent_id: str | None = None) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yields a file for each episode: its path, which stays inside any folder that it is put into, and its content."""
    for records in episode_records(store, agent_id):
        content = msgspec.json.format(msgspec.json.encode(to_atif(records)), indent=2)
        yield PurePosixPath(file_name(records.episode.episode_id)), content


class _Agents:
    """Which agent each span belongs to: the innermost one around it."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._by_id = {span.span_id: span for span in spans}
        self.root = next(
            (each for each in spans if each.parent_id not in self._by_id and each.operation not in _CALLS), None
        )
        self._spans: dict[str | None, list[Span]] = {}
        self._nested: dict[str | None, list[Span]] = {}
        for span in spans:
            if span is not self.root:
                target = self._nested if span.operation == "invoke_agent" else self._spans
                target.setdefault(self._agent_of(span), []).append(span)

    def spans(self, agent: Span | None) -> list[Span]:
        return self._spans.get(self._key(agent), [])

    def nested(self, agent: Span | None) -> list[Span]:
        return self._nested.get(self._key(agent), [])

    def tool_around(self, agent: Span) -> str | None:
        """Returns the call of a tool that an agent was started by."""
        parent = self._by_id.get(agent.parent_id or "")
        return parent.span_id if parent is not None and parent.operation == TOOL_OPERATION else None

    def _key(self, agent: Span | None) -> str | None:
        return None if agent is None or agent is self.root else agent.span_id

    def _agent_of(self, span: Span) -> str | None:
        """Returns the agent around a span; None: it is the episode's, or it lies in a circle."""
        found: str | None = None
        seen = {span.span_id}
        parent = self._by_id.get(span.parent_id or "")
        while parent is not None:
            if parent.span_id in seen:
                return None
            seen.add(parent.span_id)
            if found is None and parent.operation == "invoke_agent" and parent is not self.root:
                found = parent.span_id
            parent = self._by_id.get(parent.parent_id or "")
        return found


class _Writer(msgspec.Struct):
    """Makes the trajectories of one episode."""

    agents: _Agents
    timed: bool
    step_ids: dict[str, int] = {}
    """The step of each span of the episode's own agent."""

    def trajectory(self, agent: Span | None, trajectory_id: str, name: str, depth: int) -> dict[str, Any]:
        """Returns a trajectory without what only the outermost one has."""
        spans, nested = self.agents.spans(agent), self.agents.nested(agent)
        if depth >= _MAX_NESTED:
            spans, nested = in_time_order([*spans, *self._below(nested)]), []
        embedded = [self._embed(each, depth) for each in nested]
        references: dict[str, list[dict[str, Any]]] = {}
        for each in nested:
            tool = self.agents.tool_around(each)
            if tool is not None:
                references.setdefault(tool, []).append({"trajectory_id": each.span_id})
        steps = _Steps(spans, references, self.timed)
        made = steps.make()
        if depth == 0:
            self.step_ids = steps.ids
        models = {step["model_name"] for step in made if "model_name" in step}
        described = {
            "name": name,
            "version": _UNKNOWN,
            "model_name": models.pop() if len(models) == 1 else None,
            "tool_definitions": next(filter(_are_objects, (span.attributes.get("tools") for span in spans)), None),
        }
        whole = {
            "trajectory_id": trajectory_id,
            "agent": present(described),
            "steps": made,
            "final_metrics": _totals(made) or None,
            "subagent_trajectories": [each for each in embedded if each["steps"]] or None,
        }
        return present(whole)

    def _embed(self, agent: Span, depth: int) -> dict[str, Any]:
        made = self.trajectory(agent, agent.span_id, agent.name or _UNKNOWN, depth + 1)
        return {"schema_version": VERSION, **made}

    def _below(self, nested: Iterable[Span]) -> list[Span]:
        found: list[Span] = []
        waiting = list(nested)
        while waiting:
            agent = waiting.pop()
            found += self.agents.spans(agent)
            waiting += self.agents.nested(agent)
        return found


class _Steps:
    """Makes the steps of one agent."""

    def __init__(self, spans: list[Span], references: Mapping[str, list[dict[str, Any]]], timed: bool) -> None:
        self.ids: dict[str, int] = {}
        self._spans = spans
        self._references = references
        self._timed = timed
        self._made: list[dict[str, Any]] = []
        self._answered: Counter[str] = Counter()
        """Ids of calls whose results are with the step that asked, and were not told to the model yet."""
        self._by_id = {span.span_id: span for span in spans}

    def make(self) -> list[dict[str, Any]]:
        """Returns the steps, numbered from 1."""
        steps = steps_of(self._spans)
        told = {call.span_id for step in steps for call in step.tool_calls}
        loose = [span for span in self._spans if span.operation == TOOL_OPERATION and span.span_id not in told]
        steps += [step for span in loose for step in steps_of([span])]
        for step in sorted(steps, key=lambda each: each.started_at):
            if step.output is None and step.tool_calls and not step.model:
                self._run_tool(step)
            else:
                for said in step.messages:
                    self._hear(said)
                self._call(step)
        return self._made

    def _add(self, source: str, message: str, moment: datetime | None, **fields: Any) -> dict[str, Any]:
        fields["timestamp"] = moment.isoformat() if self._timed and moment is not None else None
        step = {"step_id": len(self._made) + 1, "source": source, "message": message, **present(fields)}
        self._made.append(step)
        return step

    def _hear(self, said: Message) -> None:
        told = Counter(str(part.get("id")) for part in tool_responses_of(said))
        if told and told.total() == len(said["parts"]) and told <= self._answered:
            self._answered -= told
            return
        if said["role"] == "assistant":
            self._add("agent", text_of(said), None, is_copied_context=True, **_answer_fields(said))
            return
        source = "system" if said["role"] == "system" else "user"
        plain = said == {"role": source, "parts": [{"type": "text", "content": text_of(said)}]}
        self._add(source, text_of(said), None, extra=None if plain else {OURS: {"message": said}})

    def _call(self, step: Step) -> None:
        output = step.output
        calls = [self._tool_call(number, call) for number, call in enumerate(step.tool_calls)]
        results = [each for call, made in zip(step.tool_calls, calls, strict=True) for each in self._result(call, made)]
        fields = _answer_fields(output) if output is not None else {}
        metrics, attributes = _metrics(step.attributes)
        ours = {
            **fields.pop("extra", {OURS: {}})[OURS],
            **self._times(step.started_at, step.ended_at),
            "no_output": True if output is None else None,
            "error": step.error,
            "attributes": attributes or None,
        }
        effort = find(step.attributes, "request", "reasoning_effort")
        made = self._add(
            "agent",
            text_of(output) if output is not None else "",
            step.started_at,
            model_name=step.model or None,
            reasoning_effort=effort if isinstance(effort, str | float) else None,
            tool_calls=calls or None,
            observation={"results": results} if results else None,
            metrics=metrics or None,
            extra=_extra(ours),
            **fields,
        )
        self._note(step, made["step_id"])

    def _run_tool(self, step: Step) -> None:
        """Adds a call of a tool that a program made."""
        call = step.tool_calls[0]
        made = self._tool_call(0, call)
        results = self._result(call, made)
        observation = {"results": results} if results else None
        added = self._add("agent", "", step.started_at, llm_call_count=0, tool_calls=[made], observation=observation)
        self._note(step, added["step_id"])

    def _note(self, step: Step, step_id: int) -> None:
        self.ids[step.span_id] = step_id
        for call in step.tool_calls:
            if call.span_id is not None:
                self.ids[call.span_id] = step_id

    def _tool_call(self, number: int, call: ToolCall) -> dict[str, Any]:
        arguments, plain = call.arguments, isinstance(call.arguments, dict)
        if not plain:
            arguments = {} if arguments is None else {"input": arguments}
        made = {
            "tool_call_id": call.call_id or f"call_{len(self._made) + 1}_{number + 1}",
            "function_name": call.name,
            "arguments": arguments,
            "extra": _extra({"no_id": True if call.call_id is None else None, "wrapped": None if plain else True}),
        }
        return present(made)

    def _result(self, call: ToolCall, made: Mapping[str, Any]) -> list[dict[str, Any]]:
        if call.result is None and call.error is None and call.span_id is None:
            return []
        if call.call_id is not None:
            self._answered[call.call_id] += 1
        ours: dict[str, Any] = {"json": None if isinstance(call.result, str | None) else True, "error": call.error}
        span = self._by_id.get(call.span_id or "")
        if span is not None:
            attributes = {name: each for name, each in span.attributes.items() if name not in _TOLD}
            ours |= {**self._times(span.started_at, span.ended_at), "attributes": attributes or None}
        result = {
            "source_call_id": made["tool_call_id"],
            "content": None if call.result is None else as_text(call.result),
            "subagent_trajectory_ref": self._references.get(call.span_id or ""),
            "extra": _extra(ours),
        }
        return [present(result)]

    def _times(self, started_at: datetime, ended_at: datetime) -> dict[str, str]:
        return {"started_at": started_at.isoformat(), "ended_at": ended_at.isoformat()} if self._timed else {}


def _extra(ours: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns what the format has no place for, as far as it is known; None where that is nothing."""
    known = present(ours)
    return {OURS: known} if known else None


def _answer_fields(output: Message) -> dict[str, Any]:
    """Returns the fields of what a model said beside its text; all its parts where the fields would not tell them."""
    thoughts = [part.get("content") for part in output["parts"] if part.get("type") == "reasoning"]
    text, calls = text_of(output), tool_calls_of(output)
    plain = [{"type": "reasoning", "content": thought} for thought in thoughts]
    plain += [{"type": "text", "content": text}] if text else []
    exact = len(thoughts) <= 1 and output["parts"] == [*plain, *calls]
    fields: dict[str, Any] = {} if exact else {"extra": {OURS: {"parts": output["parts"]}}}
    thought = "\n".join(each for each in thoughts if isinstance(each, str))
    return {**fields, "reasoning_content": thought} if thought else fields


def _metrics(attributes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the metrics of a call, and the attributes that they do not tell."""
    rest = {name: value for name, value in attributes.items() if name not in ("input_offset", "conversation_id")}
    usage = known_object(rest.get("usage"))
    extra = {name: value for name, value in usage.items() if name not in _METRICS}
    counts = {theirs: known_integer(usage.get(ours)) for ours, theirs in _METRICS.items()}
    metrics: dict[str, Any] = present({**counts, "extra": extra or None})
    if extra.keys() <= {"reasoning_tokens"}:
        rest.pop("usage", None)
    ids = known_object(rest.get("token_ids"))
    known = {name: value for name, value in ids.items() if name in ("prompt", "completion") and _are(value, int)}
    metrics.update({f"{name}_token_ids": value for name, value in known.items()})
    if known.keys() == ids.keys():
        rest.pop("token_ids", None)
    if _are(rest.get("logprobs"), int | float):
        metrics["logprobs"] = rest.pop("logprobs")
    if isinstance(rest.get("cost_usd"), int | float):
        metrics["cost_usd"] = rest.pop("cost_usd")
    if _are_objects(rest.get("tools")):
        rest.pop("tools")  # the agent's, written once
    return metrics, rest


def _totals(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the sums over all calls of models; of what one of them does not tell there is no sum."""
    calls = [step for step in steps if step["source"] == "agent" and step.get("llm_call_count") != 0]
    calls = [step for step in calls if not step.get("is_copied_context")]
    totals: dict[str, Any] = {}
    for name in (*_METRICS.values(), "cost_usd"):
        values = [step.get("metrics", {}).get(name) for step in calls]
        if values and all(value is not None for value in values):
            totals[f"total_{name}"] = sum(values)
    return {**totals, "total_steps": len(steps)} if steps else totals


def _own_fields(
    episode: Episode, root: Span | None, rewards: Sequence[Reward], step_ids: Mapping[str, int], timed: bool
) -> dict[str, Any]:
    placed, unplaced = [], []
    for reward in {(each.span_id, each.name): each for each in rewards}.values():
        told = present({"name": reward.name, "weight": reward.weight, "reason": reward.reason, "source": reward.source})
        told["value"] = reward.value
        told["created_at"] = reward.created_at.isoformat()
        if reward.span_id is None or (root is not None and reward.span_id == root.span_id):
            placed.append(told)
        elif reward.span_id in step_ids:
            placed.append({**told, "step_id": step_ids[reward.span_id]})
        else:
            unplaced.append({**told, "span_id": reward.span_id})
    metadata = {name: value for name, value in episode.metadata.items() if name != "time_unknown"}
    return present(
        {
            "task_id": episode.task_id,
            "attempt": episode.attempt,
            "agent_id": episode.agent_id,
            "started_at": episode.started_at.isoformat() if timed else None,
            "ended_at": episode.ended_at.isoformat() if timed and episode.ended_at else None,
            "terminated": episode.terminated,
            "truncated": episode.truncated,
            "error": episode.error,
            "metadata": metadata or None,
            "rewards": placed or None,
            "rewards_of_spans": unplaced or None,
            "root": dict(root.attributes) if root is not None and root.attributes else None,
        }
    )


def _version(metadata: Mapping[str, Any]) -> str:
    """Returns the version of the agent where an episode tells one; the format needs a text."""
    given = (find(metadata, "agent", "version"), metadata.get("version"), metadata.get("cli_version"))
    return next((text for each in given if (text := known_text(each))), _UNKNOWN)


def _are(value: Any, kind: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) and not isinstance(each, bool) for each in value)


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)
