"""Writes episodes as ExecutionTrace files in folders by date: ``YYYY-MM-DD/<trace_id>.json``.

The fields are exactly the original's, whose own reader takes no other. A label or a score that is not known is null; a
count, a cost or a duration that is not known is 0, which is this format's word for it.

Source: ``ExecutionTrace``, ``ToolCallTrace`` and ``ReasoningStep`` of toolboxv2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from learnloop.core.attempts import ToolCall
from learnloop.core.records import Episode, Reward, Span
from learnloop.core.rewards import LABEL, worth
from learnloop.store import Store
from learnloop.traces.conversation.messages import as_text, text_of
from learnloop.traces.conversation.steps import TOOL_OPERATION, Step, in_time_order, steps_of
from learnloop.traces.exporting.episodes import EpisodeRecords, episode_records, file_name
from learnloop.traces.json_values import find, known_list, known_text

_ONE_LABEL = {1.0: True, 0.0: False}


def to_execution_trace(records: EpisodeRecords) -> dict[str, Any]:
    """Returns an episode as the JSON object of one ExecutionTrace."""
    episode = records.episode
    spans = in_time_order(records.spans)
    steps = steps_of(spans)
    rewards = [each for each in records.rewards if each.span_id is None]
    label = _label(rewards)
    metadata = episode.metadata
    timed = metadata.get("time_unknown") is not True
    return {
        "trace_id": known_text(metadata.get("trace_id")) or episode.episode_id,
        "session_id": known_text(metadata.get("session_id")) or "",
        "timestamp": episode.started_at.isoformat() if timed else "",
        "user_query": _query(spans, steps),
        "tool_calls": [_tool_call(call, span, timed) for call, span in _tools(spans, steps)],
        "reasoning_steps": [thought for step in steps for thought in _reasoning(step)],
        **{name: known_list(metadata.get(name)) for name in ("tasks_created", "tasks_completed", "tasks_failed")},
        "final_response": next((text_of(each.output) for each in reversed(steps) if each.output), ""),
        "total_tokens_in": _sum(steps, "input_tokens"),
        "total_tokens_out": _sum(steps, "output_tokens"),
        "total_cost": sum(_number(step.attributes.get("cost_usd")) for step in steps),
        "execution_duration_ms": _milliseconds(episode) if timed else 0.0,
        "llm_calls_count": _num_calls(steps),
        "label": label,
        "reward_score": _score(rewards, label),
        "manual_review": metadata.get("manual_review") is True,
        "review_notes": known_text(metadata.get("review_notes")) or "",
    }


def execution_trace_files(store: Store, *, agent_id: str | None = None) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yields a file for each episode of a store, or of one agent: its path and its content.

    The path is ``YYYY-MM-DD/<trace_id>.json``, by the UTC date of the start, and stays inside any folder that it is put
    into, whatever an id holds. Two runs of one ``trace_id`` and date have names of their own.
    """
    taken: set[PurePosixPath] = set()
    for records in episode_records(store, agent_id):
        trace = to_execution_trace(records)
        folder = PurePosixPath(records.episode.started_at.date().isoformat())
        path = folder / file_name(trace["trace_id"])
        if path in taken:
            path = folder / file_name(f"{trace['trace_id']}-{records.episode.episode_id}")
        taken.add(path)
        yield path, msgspec.json.format(msgspec.json.encode(trace), indent=2)


def _query(spans: Sequence[Span], steps: Sequence[Step]) -> str:
    """Returns what the run was asked: the text that its root was given, else the first thing that a user said."""
    root = spans[0].attributes.get("input") if spans else None
    if isinstance(root, str) and root:
        return root
    said = (text_of(each) for step in steps for each in step.messages if each["role"] == "user")
    return next((text for text in said if text), "")


def _tools(spans: Sequence[Span], steps: Sequence[Step]) -> Iterator[tuple[ToolCall, Span | None]]:
    """Yields each call of a tool once: those that a model asked for, then those that a program made."""
    by_id = {span.span_id: span for span in spans}
    told: set[str] = set()
    for step in steps:
        for call in step.tool_calls:
            told.add(call.span_id or "")
            yield call, by_id.get(call.span_id or "")
    for span in spans:
        if span.operation == TOOL_OPERATION and span.span_id not in told:
            yield steps_of([span])[0].tool_calls[0], span


def _tool_call(call: ToolCall, span: Span | None, timed: bool) -> dict[str, Any]:
    arguments = call.arguments
    return {
        "tool_name": call.name,
        "arguments": arguments if isinstance(arguments, dict) else {} if arguments is None else {"input": arguments},
        "result": as_text(call.result),
        "success": None if call.error is None and call.result is None and span is None else call.error is None,
        "duration_ms": (call.duration_ms or 0.0) if timed else 0.0,
        "error": call.error,
        "timestamp": span.ended_at.isoformat() if timed and span is not None else "",
    }


def _reasoning(step: Step) -> Iterator[dict[str, Any]]:
    for part in step.output["parts"] if step.output else []:
        if part.get("type") == "reasoning" and isinstance(part.get("content"), str):
            yield {
                "step_type": known_text(part.get("step_type")) or "internal_reasoning",
                "content": part["content"],
                "confidence": _number(part.get("confidence")),
                "insights": known_list(part.get("insights")),
                "issues": known_list(part.get("issues")),
            }


def _label(rewards: Sequence[Reward]) -> bool | None:
    """Returns what people say, the last label of each, where that is a plain yes or no."""
    said = {each.author: each.value for each in rewards if each.name == LABEL and each.value is not None}
    return _ONE_LABEL.get(sum(said.values()) / len(said)) if said else None


def _score(rewards: Sequence[Reward], label: bool | None) -> float | None:
    """Returns the score from 0 to 1 that a run has: by its name, else what it was worth in all.

    Where a plain label is all that is known, there is no score: the label says it, as in the original's files.
    """
    named = [each for each in rewards if each.name == "reward_score"]
    others = [each for each in rewards if each.name != LABEL]
    in_all = None if label is not None and worth(others) is None else worth(rewards)
    score = named[-1].value if named else in_all
    return score if score is not None and 0.0 <= score <= 1.0 else None


def _sum(steps: Sequence[Step], name: str) -> int:
    return int(sum(_number(find(step.attributes, "usage", name)) for step in steps))


def _num_calls(steps: Sequence[Step]) -> int:
    told = [step.attributes.get("num_model_calls", 1) for step in steps if step.output is not None or step.model]
    return int(sum(_number(each) for each in told))


def _milliseconds(episode: Episode) -> float:
    return 0.0 if episode.ended_at is None else (episode.ended_at - episode.started_at).total_seconds() * 1000


def _number(value: Any) -> float:
    """Returns a number as it is, and 0 for what is not recorded."""
    return value if isinstance(value, int | float) else 0
