"""FlowAgent checkpoints: a pickle of an ``AgentCheckpoint``; each session in it is an episode.

The pickle is read without running it (``restricted_pickle``). Every message of a history is kept: one that asks for
tools and says nothing is a call of the model, too. The totals and tasks of a checkpoint are of the agent as a whole and
stay so: they are noted, not spread over sessions. A session whose first message has a time is known by it, so that
later checkpoints of the same session add only what is new.

Source: ``AgentCheckpoint`` of toolboxv2, versions 1 (``session_data``) and 2 (``sessions_data``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import IO, Any

import msgspec

from learnloop.core.errors import FormatError
from learnloop.core.records import Record
from learnloop.traces.conversation.messages import (
    Message,
    Part,
    as_text,
    message,
    read_message,
    tool_calls_of,
    tool_response_part,
)
from learnloop.traces.importing.building import EpisodeBuilder
from learnloop.traces.importing.formats.base import ContentIds, Source, TraceFormat, parse_time
from learnloop.traces.importing.formats.restricted_pickle import read_pickle

MAX_BYTES = 256 * 1024 * 1024
_RECORDS = frozenset({"AgentCheckpoint", "Task", "LLMTask", "ToolTask", "DecisionTask"})
_PROTOCOLS = tuple(b"\x80" + bytes([number]) for number in (2, 3, 4, 5))
_TOTALS = {
    "total_tokens_in": "input_tokens",
    "total_tokens_out": "output_tokens",
    "total_cost_accumulated": "cost_usd",
    "total_cost": "cost_usd",
    "total_llm_calls": "model_calls",
}


class _SessionItem(msgspec.Struct):
    """One session of a checkpoint, and what the checkpoint says of the agent."""

    session_id: str
    history: list[Any]
    info: Mapping[str, Any]
    checkpoint: Mapping[str, Any]


class FlowAgentReader:
    """Reads each session of a checkpoint into an episode."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ids = ContentIds("flow-agent")

    def read(self, item: Any) -> list[Record]:
        """Returns the episode of one session."""
        messages = [_checked(item, number, raw) for number, raw in enumerate(item.history)]
        agent = item.checkpoint["agent"]
        started_at = _time(messages[0].get("timestamp")) or _time(item.info.get("created_at"))
        builder = EpisodeBuilder(
            self._source,
            self._ids,
            self._episode_id(item, agent, messages),
            agent_id=agent,
            started_at=started_at,
            metadata={"session_id": item.session_id, **item.info, "checkpoint": item.checkpoint},
        )
        _History(builder).take(messages)
        return builder.finish(terminated=messages[-1].get("role") == "assistant")

    def finish(self) -> list[Record]:
        """Returns nothing: each session stands for itself."""
        return []

    def _episode_id(self, item: _SessionItem, agent: str | None, messages: list[dict[str, Any]]) -> str:
        first = messages[0]
        if first.get("timestamp"):
            return self._ids.derive("episode", agent or "", item.session_id, _digest(first))
        content = self._ids.for_line({"session": item.session_id, "history": messages})
        return self._ids.derive("episode", self._source.name, agent or "", content)


class _History:
    """Adds the messages of a session to its episode, in order."""

    def __init__(self, builder: EpisodeBuilder) -> None:
        self._builder = builder
        self._waiting: list[Message] = []
        self._asked: dict[Any, Part] = {}

    def take(self, messages: list[dict[str, Any]]) -> None:
        for raw in messages:
            moment = _time(raw.get("timestamp"))
            if raw["role"] == "tool":
                self._tool(raw, moment)
                continue
            said = read_message({name: raw.get(name) for name in ("role", "content", "tool_calls")})
            if said["role"] != "assistant":
                self._waiting.append(said)
                continue
            self._builder.chat("", self._waiting, said, started_at=moment)
            self._waiting = []
            self._asked = {part.get("id"): part for part in tool_calls_of(said)}
        if self._waiting:
            self._builder.note(messages_after_last_answer=self._waiting)

    def _tool(self, raw: dict[str, Any], moment: datetime | None) -> None:
        call_id = raw.get("tool_call_id")
        asked = self._asked.get(call_id if isinstance(call_id, str) else None, {})
        error, name = raw.get("error"), raw.get("name") or asked.get("name")
        given = raw.get("arguments")
        self._waiting.append(message("tool", tool_response_part(call_id, raw.get("content"))))
        self._builder.tool(
            as_text(name),
            given if given is not None else asked.get("arguments"),
            raw.get("content"),
            call_id=call_id if isinstance(call_id, str) else None,
            started_at=moment,
            error=(error if isinstance(error, str) else "failed") if error else None,
        )


def sessions_of(file: IO[bytes]) -> Iterator[_SessionItem]:
    """Yields the sessions of a checkpoint that have messages.

    Raises:
        FormatError: it is damaged, too large, no checkpoint, or asks for anything that is not plain.
    """
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise FormatError(f"a checkpoint of more than {MAX_BYTES:,} bytes is not read")
    value = read_pickle(data, _RECORDS)
    if not isinstance(value, dict):
        raise FormatError(f"the pickle holds a {type(value).__name__}, no checkpoint of an agent")
    state, config = _object(value, "agent_state"), _object(value, "agent_config")
    name = value.get("agent_name") or _object(state, "amd_data").get("name") or config.get("name")
    histories = _histories(value)
    own, shared = _tasks(_object(value, "task_state"), [session_id for session_id, _, _ in histories])
    checkpoint = {
        "agent": name if isinstance(name, str) else None,
        "timestamp": value.get("timestamp"),
        "totals": _totals({**state, **_object(value, "statistics")}),
        "tools": sorted(_object(value, "tool_capabilities")),
    }
    for number, (session_id, history, info) in enumerate(histories):
        tasks = own.get(session_id)
        noted = {"tasks": tasks, "tasks_of_no_session": shared if shared and number == 0 else None}
        scope = _object(value, "variable_scopes").get(f"session_{session_id}")
        given = {name: each for name, each in {**info, **noted, "variables": scope}.items() if each}
        yield _SessionItem(session_id, history, given, checkpoint)


def _histories(value: Mapping[str, Any]) -> list[tuple[str, list[Any], dict[str, Any]]]:
    sessions = _object(value, "session_data") or _object(_object(value, "sessions_data"), "sessions")
    found: list[tuple[str, list[Any], dict[str, Any]]] = []
    for session_id, info in sessions.items():
        if not isinstance(info, dict):
            raise FormatError(f"session {session_id!r} is a {type(info).__name__}; an object is needed there")
        history = info.get("history", info.get("chat_history"))
        if not isinstance(history, list | None):
            raise FormatError(f"the history of session {session_id!r} is a {type(history).__name__}, no list")
        if history:
            told = {name: info.get(name) for name in ("session_type", "created_at", "last_activity") if info.get(name)}
            found.append((session_id, history, told))
    rest = value.get("conversation_history")
    if isinstance(rest, list) and rest and not any(_contains(history, rest) for _, history, _ in found):
        found.append(("conversation_history", rest, {}))
    return found


def _contains(history: list[Any], part: list[Any]) -> bool:
    said = {_digest(each) for each in history}
    return all(_digest(each) in said for each in part)


def _tasks(state: Mapping[str, Any], sessions: list[str]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Returns the tasks of each session, and those that name none; where there is one session all are its."""
    own: dict[str, dict[str, Any]] = {}
    shared: dict[str, Any] = {}
    for task_id, task in state.items():
        fields = task if isinstance(task, dict) else {}
        session = fields.get("session_id") or _object(fields, "metadata").get("session_id")
        session = sessions[0] if len(sessions) == 1 else session
        if isinstance(session, str) and session in sessions:
            own.setdefault(session, {})[task_id] = task
        else:
            shared[task_id] = task
    return own, shared


def _totals(state: Mapping[str, Any]) -> dict[str, float]:
    return {ours: state[theirs] for theirs, ours in _TOTALS.items() if isinstance(state.get(theirs), int | float)}


def _object(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _checked(item: _SessionItem, number: int, raw: Any) -> dict[str, Any]:
    """Returns a message of a history as it is.

    Raises:
        FormatError: it is none.
    """
    place = f"message {number} of session {item.session_id!r}"
    if not isinstance(raw, dict) or not isinstance(raw.get("role"), str):
        raise FormatError(f"{place} has no role")
    for field in ("content", "tool_calls", "timestamp"):
        allowed = list if field == "tool_calls" else str if field == "timestamp" else str | list | dict
        if not isinstance(raw.get(field), allowed | None):
            raise FormatError(f"{field} of {place} is a {type(raw[field]).__name__}")
    return raw


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def _time(value: Any) -> datetime | None:
    return parse_time(value) if isinstance(value, str) and value else None


def _fits(head: bytes) -> bool:
    """Returns whether this is a pickle: one that is no checkpoint is told apart when it is read."""
    return head.startswith(_PROTOCOLS) or (b"AgentCheckpoint" in head and head[:1] in (b"c", b"("))


FLOW_AGENT = TraceFormat(
    "flow-agent",
    "a pickle of an AgentCheckpoint",
    _fits,
    FlowAgentReader,
    shape="archive",
    archive_items=sessions_of,
)
