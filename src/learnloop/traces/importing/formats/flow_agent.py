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
from typing import IO, Any

import msgspec

from learnloop.core.errors import FormatError
from learnloop.core.records import Record
from learnloop.traces.conversation.messages import as_text, message, read_message, tool_response_part
from learnloop.traces.importing.building import EpisodeBuilder, Turn
from learnloop.traces.importing.formats.restricted_pickle import read_pickle
from learnloop.traces.importing.reader import ItemReader, TraceFormat, known_time
from learnloop.traces.json_values import find, known_object, known_text

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


class FlowAgentReader(ItemReader):
    """Reads each session of a checkpoint into an episode."""

    format_name = "flow-agent"

    def read(self, item: Any) -> list[Record]:
        """Returns the episode of one session."""
        messages = [_checked(item, number, raw) for number, raw in enumerate(item.history)]
        agent = item.checkpoint["agent"]
        started_at = known_time(messages[0].get("timestamp")) or known_time(item.info.get("created_at"))
        builder = EpisodeBuilder(
            self,
            self._episode_id(item, agent, messages),
            agent_id=agent,
            started_at=started_at,
            metadata={"session_id": item.session_id, **item.info, "checkpoint": item.checkpoint},
        )
        builder.conversation(map(_turn, messages))
        return builder.finish(terminated=messages[-1].get("role") == "assistant")

    def _episode_id(self, item: _SessionItem, agent: str | None, messages: list[dict[str, Any]]) -> str:
        first = messages[0]
        if first.get("timestamp"):
            return self.ids.derive("episode", agent or "", item.session_id, _digest(first))
        content = self.ids.for_line({"session": item.session_id, "history": messages})
        return self.ids.derive("episode", self.source.name, agent or "", content)


def _turn(raw: Mapping[str, Any]) -> Turn:
    """Returns a message of a history; a tool's result may tell its call itself."""
    at = known_time(raw.get("timestamp"))
    if raw["role"] != "tool":
        return Turn(read_message({name: raw.get(name) for name in ("role", "content", "tool_calls")}), at)
    said = message("tool", tool_response_part(raw.get("tool_call_id"), raw.get("content")))
    error = (known_text(raw["error"]) or "failed") if raw.get("error") else None
    return Turn(said, at, as_text(raw.get("name")), raw.get("arguments"), error)


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
    state = known_object(value.get("agent_state"))
    name = value.get("agent_name") or find(state, "amd_data", "name") or find(value, "agent_config", "name")
    histories = _histories(value)
    own, shared = _tasks(known_object(value.get("task_state")), [session_id for session_id, _, _ in histories])
    checkpoint = {
        "agent": name if isinstance(name, str) else None,
        "timestamp": value.get("timestamp"),
        "totals": _totals({**state, **known_object(value.get("statistics"))}),
        "tools": sorted(known_object(value.get("tool_capabilities"))),
    }
    for number, (session_id, history, info) in enumerate(histories):
        tasks = own.get(session_id)
        noted = {"tasks": tasks, "tasks_of_no_session": shared if shared and number == 0 else None}
        scope = find(value, "variable_scopes", f"session_{session_id}")
        given = {name: each for name, each in {**info, **noted, "variables": scope}.items() if each}
        yield _SessionItem(session_id, history, given, checkpoint)


def _histories(value: Mapping[str, Any]) -> list[tuple[str, list[Any], dict[str, Any]]]:
    sessions = known_object(value.get("session_data")) or known_object(find(value, "sessions_data", "sessions"))
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
        session = find(task, "session_id") or find(task, "metadata", "session_id")
        session = sessions[0] if len(sessions) == 1 else session
        if isinstance(session, str) and session in sessions:
            own.setdefault(session, {})[task_id] = task
        else:
            shared[task_id] = task
    return own, shared


def _totals(state: Mapping[str, Any]) -> dict[str, float]:
    return {ours: state[theirs] for theirs, ours in _TOTALS.items() if isinstance(state.get(theirs), int | float)}


def _checked(item: _SessionItem, number: int, raw: Any) -> dict[str, Any]:
    """Returns a message of a history as it is.

    Raises:
        FormatError: it is not an object with a role, or its parts are not what they may be.
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


def _fits(head: bytes) -> bool:
    """Returns whether this is a pickle: one that is not a checkpoint is told apart when it is read."""
    return head.startswith(_PROTOCOLS) or (b"AgentCheckpoint" in head and head[:1] in (b"c", b"("))


FLOW_AGENT = TraceFormat(
    "flow-agent",
    "a pickle of an AgentCheckpoint",
    _fits,
    FlowAgentReader,
    shape="archive",
    items=sessions_of,
)
