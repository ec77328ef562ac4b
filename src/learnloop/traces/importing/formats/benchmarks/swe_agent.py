"""SWE-agent trajectories (``.traj``): one run at an issue, a JSON object with ``trajectory``, ``history`` and ``info``.

A step is an entry of ``trajectory``. What it was told comes from its own ``query`` (newer versions) or ``messages``,
else from ``history``; where neither holds the step, from the observation before it. A demonstration in the history is
marked (``is_demo``). The action runs as a tool, with ``execution_time`` where the version measures it; there are no
moments. A run of several attempts (``attempts``) is an episode for each.

``exit_status`` and ``submission`` say how the run ended, not whether it solved the issue: the file holds no outcome and
none is made up. A file of ``history`` alone, as demonstrations are, is read by its answers.

Source: Yang et al. 2024, "SWE-agent", ``agent/agents.py`` and ``types.py`` of versions 0.3 to 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from learnloop.core.records import Record
from learnloop.traces.conversation.messages import (
    Message,
    fingerprint,
    message,
    parsed,
    read_message,
    text_part,
    tool_calls_of,
    tool_response_part,
)
from learnloop.traces.importing.building import Calls, EpisodeBuilder
from learnloop.traces.importing.reader import ItemReader, Seconds, TraceFormat, convert, shifted
from learnloop.traces.json_values import find, known_object, known_text

_LIMITS = ("exit_cost", "exit_context", "exit_total_execution_time", "exit_command_timeout")
_BROKEN = ("exit_error", "exit_environment_error", "exit_api", "early_exit", "exit_session")
_EXCERPTS = "edited_files"
"""Fields of ``info`` that repeat parts of the files that the submission changes."""


class _Step(msgspec.Struct):
    action: str | None = None
    observation: str | None = None
    response: Any = None
    thought: Any = None
    execution_time: Seconds | None = None
    state: Any = None
    query: list[dict[str, Any]] | None = None
    messages: list[dict[str, Any]] | None = None
    extra_info: Any = None


class _Run(msgspec.Struct):
    trajectory: list[_Step] = []
    history: list[dict[str, Any]] = []
    info: dict[str, Any] = {}
    environment: Any = None
    replay_config: Any = None


class SweAgentReader(ItemReader):
    """Reads a file into an episode, one for each attempt where it holds several."""

    format_name = "swe-agent"

    def read(self, item: Any) -> list[Record]:
        """Returns the episode of one attempt, with a step for each entry of its trajectory."""
        attempt, config, raw = item
        run = convert(raw, _Run)
        config = parsed(config if run.replay_config is None else run.replay_config)
        known = known_text(find(config, "problem_statement", "id")) or self.source.plain_name.removesuffix(".traj")
        task_id = f"swe-agent:{known}"
        model = known_text(find(config, "agent", "model", "name"))
        builder = EpisodeBuilder(
            self,
            self.unnamed_id(raw),
            task_id=task_id,
            attempt=attempt,
            metadata={
                "model": model,
                "environment": run.environment,
                **{name: value for name, value in run.info.items() if not name.startswith(_EXCERPTS)},
            },
        )
        _Steps(builder, model or "", self.source.modified_at).add(run)
        records = builder.finish(**_ending(run.info.get("exit_status")))
        about = {"problem_statement": known_text(find(config, "problem_statement", "text"))}
        return [*self.task_records(task_id, about), *records]


class _Steps:
    """Adds the steps of a run."""

    def __init__(self, builder: EpisodeBuilder, model: str, moment: datetime) -> None:
        self._builder = builder
        self._calls = Calls(builder)
        self._model = model
        self._moment = moment
        """When the last one ended; only the time between is known."""

    def add(self, run: _Run) -> None:
        """Adds all steps, from the history alone where there is no trajectory."""
        history = _History(run.history)
        before: Message | None = None
        for step in run.trajectory or history.steps():
            answer, heard = history.find(step)
            given = step.query if step.query is not None else step.messages
            if given is not None:
                messages = [_read(raw) for raw in given]
            elif heard is None:
                messages = [] if before is None else [before]
            else:
                messages = heard
            self._add(step, messages, answer)
            before = None if step.observation is None else message("user", text_part(step.observation))

    def _add(self, step: _Step, messages: Sequence[Message], answer: Message) -> None:
        marks = [fingerprint(each) for each in messages]
        said = [(fingerprint(answer), answer)]
        span_id = self._calls.add(self._model, messages, marks, said, started_at=self._moment, extra=step.extra_info)
        if step.action is None:
            return
        asked = tool_calls_of(answer)
        call = asked[0] if len(asked) == 1 else {}
        seconds = step.execution_time
        ended = None if seconds is None else shifted(self._moment, seconds=seconds)
        self._builder.tool(
            str(call.get("name") or _command(step.action)),
            call.get("arguments") if call else step.action,
            step.observation,
            call_id=known_text(call.get("id")),
            started_at=self._moment,
            ended_at=ended,
            parent_id=span_id if not asked else None,
            action=step.action if call else None,
            state=parsed(step.state),
        )
        self._moment = ended or shifted(self._moment, seconds=1e-6)


class _History:
    """What was said, from which each step takes what it was told."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self._entries = entries
        self._read = [_read(raw) for raw in entries]
        self._place = 0

    def steps(self) -> Iterator[_Step]:
        """Yields the steps that a history alone tells of: each answer, with what came back."""
        for place, raw in enumerate(self._entries):
            if _is_answer(raw):
                following = self._entries[place + 1] if place + 1 < len(self._entries) else {}
                seen = known_text(following.get("content")) if not _is_answer(following) else None
                yield _Step(
                    action=known_text(raw.get("action")),
                    observation=seen,
                    response=raw.get("content"),
                    thought=raw.get("thought"),
                )

    def find(self, step: _Step) -> tuple[Message, list[Message] | None]:
        """Returns the answer of a step, and all that was said before it; None where the history does not hold it."""
        answers = [place for place in range(self._place, len(self._entries)) if _is_answer(self._entries[place])]
        found = next((place for place in answers if _same(self._entries[place], step)), None)
        if found is None and answers and step.action and self._entries[answers[0]].get("action") == step.action:
            found = answers[0]  # what it said was changed by hand, as in demonstrations
        if found is not None:
            self._place = found + 1
            return self._read[found], self._read[:found]
        said = known_text(step.response) or known_text(step.thought)
        return message("assistant", *([text_part(said)] if said else [])), None


def _is_answer(raw: Mapping[str, Any]) -> bool:
    return raw.get("role") == "assistant" and not raw.get("is_demo")


def _same(raw: Mapping[str, Any], step: _Step) -> bool:
    """Returns whether an entry of the history is the answer of a step."""
    return bool(
        raw.get("action") == step.action and (raw.get("thought") == step.thought or raw.get("content") == step.response)
    )


def _read(raw: dict[str, Any]) -> Message:
    """Returns an entry of the history as a message: a result names its calls in a list."""
    ids = raw.get("tool_call_ids")
    if raw.get("role") == "tool" and isinstance(ids, list) and ids:
        said = message("tool", tool_response_part(known_text(ids[0]), raw.get("content")))
    else:
        said = read_message(raw)
    return {**said, "is_demo": True} if raw.get("is_demo") else said


def _command(action: str) -> str:
    """Returns what an action in text runs: its first word."""
    return (action.split(maxsplit=1) or [""])[0]


def _ending(status: Any) -> dict[str, Any]:
    """Returns how a run ended. A patch that was taken when a limit was met (``submitted (exit_cost)``) is cut off."""
    text = status if isinstance(status, str) else ""
    broken = next((True for word in _BROKEN if word in text), False)
    return {
        "terminated": bool(text) and not broken,
        "truncated": any(word in text for word in _LIMITS),
        "error": text if broken else None,
    }


def _attempts(value: Mapping[str, Any]) -> Iterator[tuple[int | None, Any, Any]]:
    """Yields each attempt with its number and the run's configuration; the file's own run repeats the best of them."""
    config, attempts = value.get("replay_config"), value.get("attempts")
    if isinstance(attempts, list) and attempts:
        return ((number, config, raw) for number, raw in enumerate(attempts))
    return iter([(None, config, value)])


def _fits(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    steps, history = value.get("trajectory"), value.get("history")
    if isinstance(steps, list):
        first = known_object(steps[0]) if steps else {}
        return {"action", "observation"} <= first.keys() or (not steps and "info" in value)
    first = known_object(history[0]) if isinstance(history, list) and history else {}
    return "role" in first and "agent" in first


SWE_AGENT = TraceFormat(
    "swe-agent",
    "an object with trajectory, a list of objects with action and observation, or with history, a list of messages",
    _fits,
    SweAgentReader,
    shape="document",
    items=_attempts,
)
