"""Claude Code sessions: JSON Lines, one record a line; a session is an episode.

An answer of the model is split over lines with one ``message.id``, each of which repeats its usage: it is one call.
A sub-agent (``isSidechain``), in the same file or one of its own, is an ``invoke_agent`` span of the session with a
conversation of its own. Going back to an earlier message, and compaction, begin another conversation of the same
thread. Spans are known by the ids that the session gives: a resumed session that repeats an earlier one adds only what
is new. Records are turned into spans as they come; what is held of a session is which records it had.

Source: the session files of Claude Code 1.0 to 2.1, which no document describes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from learnloop.core.errors import FormatError
from learnloop.core.records import Record
from learnloop.traces.conversation.messages import (
    Message,
    as_text,
    message,
    read_message,
    text_of,
    tool_calls_of,
    tool_responses_of,
)
from learnloop.traces.importing.building import Asked, EpisodeBuilder
from learnloop.traces.importing.reader import ItemReader, Line, Source, TraceFormat, convert, parse_time
from learnloop.traces.json_values import anthropic_usage, find, known_text, present

_TALK = ("user", "assistant", "system")
_SYNTHETIC = "<synthetic>"
"""The model of what the program itself says in the model's place."""
_INTERRUPTED = "[Request interrupted by user"
_LONG = 16
"""Ids of at least so many characters are unique over all sessions; shorter ones over their session."""
_MAX_ERROR = 2_000
_ENDED = frozenset({"end_turn", "stop_sequence"})


class _Entry(msgspec.Struct, rename="camel"):
    """A record that belongs to a conversation."""

    type: str
    message: dict[str, Any] | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    timestamp: str | None = None
    request_id: str | None = None
    is_sidechain: bool | None = None
    is_api_error_message: bool | None = None
    is_meta: bool | None = None
    subtype: Any = None
    tool_use_result: Any = None
    cwd: Any = None
    git_branch: Any = None
    version: Any = None


class _Call(msgspec.Struct):
    """An answer of the model whose lines may still come."""

    key: str
    message_id: str | None
    inputs: list[Message]
    thread: str
    parts: list[dict[str, Any]] = []
    model: str = ""
    finish_reason: str | None = None
    error: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attributes: dict[str, Any] = {}
    """Of its span: ``usage``, ``request_id`` ..."""


class _Thread:
    """The main conversation, or a sub-agent's."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Empty for the main one."""
        self.num_calls = 0
        self.num_conversations = 0
        self.call: _Call | None = None
        self.pending: list[Message] = []
        self.asked: dict[str, Asked] = {}
        self.done: set[str] = set()
        """The ids of the answers that are complete."""
        self.prompt: str | None = None
        self.answer: str | None = None
        self.started_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.asked_by: str | None = None
        """The key of the tool's call that began it."""
        self.rewound_to: str | None = None
        self.interrupted = False
        self.error: str | None = None
        self.finish_reason: str | None = None


class _Session:
    """One session: its threads, and the records that came."""

    def __init__(self, reader: ItemReader, session_id: str, started_at: datetime | None) -> None:
        episode_id = reader.ids.derive("episode", session_id or reader.source.name)
        self._builder = EpisodeBuilder(reader, episode_id, started_at=started_at)
        self._session_id = session_id
        self._threads: dict[str, _Thread] = {"": _Thread("")}
        self._places: dict[str, tuple[str, int, str | None]] = {}
        """Of each record its thread, how many calls had begun there by then, and the key of the last of them."""
        self._prompts: dict[str, str] = {}
        """What sub-agents were asked, and the key of the call that asked."""
        self._agents: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.titles: list[str] = []
        self._facts: dict[str, str] = {}

    def holds(self, uuid: object) -> bool:
        """Returns whether the record with this id came."""
        return uuid in self._places

    def take(self, entry: _Entry, said: Message | None, moment: datetime | None) -> list[Record]:
        """Takes a record and returns the spans that are complete."""
        if entry.uuid is not None and entry.uuid in self._places:
            self.counts["repeated"] += 1
            return []
        thread = self._thread_of(entry)
        for name in ("cwd", "git_branch", "version"):
            if value := known_text(getattr(entry, name)):
                self._facts.setdefault(name, value)
        if moment is not None:
            thread.started_at = min(thread.started_at or moment, moment)
            thread.ended_at = max(thread.ended_at or moment, moment)
        if said is None:
            self._system(thread, entry)
        elif entry.type == "assistant":
            self._assistant(thread, entry, said, moment)
        else:
            self._user(thread, entry, said, moment)
        if entry.uuid is not None:
            self._places[entry.uuid] = (thread.name, thread.num_calls, thread.call.key if thread.call else None)
        return self._builder.take()

    def finish(self) -> list[Record]:
        """Returns what is left, and the episode."""
        main = self._threads[""]
        for thread in self._threads.values():
            self._close(thread)
            if thread is not main:
                self._agent_span(thread)
        last = main.finish_reason in _ENDED or (main.finish_reason is None and main.answer is not None)
        self._builder.note(
            session_id=self._session_id or None,
            **self._facts,
            titles=self.titles or None,
            other_records=dict(self.counts) or None,
            unanswered_tool_calls=sum(len(each.asked) for each in self._threads.values()) or None,
            messages_after_last_answer=main.pending or None,
        )
        return self._builder.finish(
            terminated=last and not main.pending and not main.asked and main.error is None,
            truncated=main.interrupted or main.finish_reason == "max_tokens",
            error=main.error,
            input=main.prompt,
            output=main.answer,
        )

    def _thread_of(self, entry: _Entry) -> _Thread:
        if not entry.is_sidechain:
            return self._threads[""]
        before = self._places.get(entry.parent_uuid or "")
        inherited = before[0] if before else ""
        name = entry.agent_id or inherited or entry.uuid or "sidechain"
        return self._threads.setdefault(name, _Thread(name))

    def _system(self, thread: _Thread, entry: _Entry) -> None:
        self.counts[f"system.{entry.subtype}" if isinstance(entry.subtype, str) else "system"] += 1
        if entry.subtype == "compact_boundary":
            self._close(thread)
            thread.num_conversations += 1

    def _user(self, thread: _Thread, entry: _Entry, said: Message, moment: datetime | None) -> None:
        responses = tool_responses_of(said)
        for part in responses:
            self._answer_tool(thread, entry, part, moment)
        if len(responses) == len(said["parts"]):
            said = message("tool", *responses)
        text = text_of(said)
        if not responses:
            self._go_back(thread, entry)
            if thread.prompt is None and not entry.is_meta:
                thread.prompt, thread.asked_by = text, self._prompts.get(text)
        if thread.call is not None and thread.call.error is not None:
            self._close(thread)
        thread.interrupted, thread.error = text.startswith(_INTERRUPTED), None
        thread.pending.append(said)

    def _go_back(self, thread: _Thread, entry: _Entry) -> None:
        """Begins another conversation where the user goes on from a message before the last answer."""
        before = self._places.get(entry.parent_uuid or "")
        if before is not None and before[0] == thread.name and before[1] < thread.num_calls:
            self._close(thread)
            thread.num_conversations += 1
            thread.rewound_to = before[2]
            self.counts.update(["abandoned"] * len(thread.pending))
            thread.pending, thread.asked = [], {}

    def _answer_tool(self, thread: _Thread, entry: _Entry, part: Mapping[str, Any], moment: datetime | None) -> None:
        call_id = known_text(part.get("id")) or ""
        asked = thread.asked.pop(call_id, None)
        key = (asked and asked.key) or self._key(call_id, entry.uuid)
        if not entry.is_sidechain:
            self._agents[known_text(find(entry.tool_use_result, "agentId")) or entry.agent_id or ""] = key
        response = part.get("response")
        self._builder.answer(
            asked,
            response,
            moment,
            call_id=call_id or None,
            parent_id=self._parent(thread),
            error=(as_text(response)[:_MAX_ERROR] or "failed") if part.get("is_error") else None,
            key=key,
        )

    def _assistant(self, thread: _Thread, entry: _Entry, said: Message, moment: datetime | None) -> None:
        raw = entry.message or {}
        model = raw.get("model")
        message_id = raw.get("id") if isinstance(raw.get("id"), str) else None
        if model == _SYNTHETIC and not entry.is_api_error_message:
            self.counts["synthetic"] += 1
            return
        if message_id in thread.done:
            self.counts["repeated"] += 1
            return
        call = thread.call
        if call is None or message_id is None or call.message_id != message_id:
            call = self._open(thread, entry, message_id)
        call.parts += said["parts"]
        call.started_at = call.started_at or moment
        call.ended_at = moment or call.ended_at
        call.attributes |= present({"usage": anthropic_usage(raw.get("usage")), "request_id": entry.request_id or None})
        if isinstance(raw.get("stop_reason"), str):
            call.finish_reason = raw["stop_reason"]
        if entry.is_api_error_message:
            call.error = text_of(said)[:_MAX_ERROR] or "the model's API failed"
        elif isinstance(model, str):
            call.model = model
        for part in tool_calls_of(said):
            self._ask(thread, entry, part, moment)

    def _open(self, thread: _Thread, entry: _Entry, message_id: str | None) -> _Call:
        self._close(thread)
        thread.call = _Call(
            key=self._key(message_id, entry.uuid),
            message_id=message_id,
            inputs=thread.pending,
            thread=f"{thread.name}#{thread.num_conversations}",
            attributes={"rewound_to": self._builder.span_id(thread.rewound_to) if thread.rewound_to else None},
        )
        thread.num_calls += 1
        thread.pending, thread.rewound_to, thread.interrupted = [], None, False
        return thread.call

    def _ask(self, thread: _Thread, entry: _Entry, part: Mapping[str, Any], moment: datetime | None) -> None:
        call_id, arguments = part.get("id"), part.get("arguments")
        if not isinstance(call_id, str):
            return
        key = self._key(call_id, entry.uuid)
        thread.asked[call_id] = Asked(str(part.get("name")), arguments, moment, key)
        if isinstance(prompt := find(arguments, "prompt"), str):
            self._prompts[prompt] = key

    def _close(self, thread: _Thread) -> None:
        """Makes a span of the answer that was last; no line of it comes any more."""
        call, thread.call = thread.call, None
        if call is None:
            return
        if call.message_id is not None:
            thread.done.add(call.message_id)
        output = message("assistant", *call.parts)
        failed = call.error is not None
        if not failed:
            thread.answer, thread.finish_reason = text_of(output) or thread.answer, call.finish_reason
        thread.error = call.error
        self._builder.chat(
            call.model,
            call.inputs,
            None if failed else output,
            started_at=call.started_at,
            ended_at=call.ended_at,
            parent_id=self._parent(thread),
            error=call.error,
            thread=call.thread,
            key=call.key,
            provider="anthropic",
            finish_reasons=[call.finish_reason] if call.finish_reason else None,
            response_id=call.message_id,
            duration_unknown=True,
            **call.attributes,
        )

    def _agent_span(self, thread: _Thread) -> None:
        asked_by = self._agents.get(thread.name) or thread.asked_by
        self._builder.span(
            "invoke_agent",
            thread.name,
            thread.started_at,
            thread.ended_at,
            parent_id=self._builder.span_id(asked_by) if asked_by else None,
            error=thread.error,
            key=self._agent_key(thread),
            input=thread.prompt,
            output=thread.answer,
        )

    def _parent(self, thread: _Thread) -> str | None:
        return self._builder.span_id(self._agent_key(thread)) if thread.name else None

    def _agent_key(self, thread: _Thread) -> str:
        return f"agent {self._session_id} {thread.name}"

    def _key(self, given: str | None, uuid: str | None) -> str:
        """Returns what a span is known by: the id that the API gave, else its record's, else its place."""
        known = given or uuid
        if known is None:
            self.counts["without id"] += 1
            known = str(self.counts["without id"])
        return known if len(known) >= _LONG else f"{self._session_id} {known}"


class ClaudeCodeReader(ItemReader):
    """Reads the records of sessions into an episode a session."""

    format_name = "claude-code"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._sessions: dict[str, _Session] = {}
        self._others: dict[str | None, Counter[str]] = {}
        """Records of other kinds, by session; None: they name none."""
        self._summaries: list[tuple[str, Any]] = []

    def read(self, item: Line) -> list[Record]:
        """Returns the spans that a record completes; what is not a part of a conversation is counted."""
        kind = item.get("type")
        if not isinstance(kind, str):
            raise FormatError(f"type is {kind!r}; each record of a session has a text there")
        if kind == "summary" and isinstance(item.get("summary"), str):
            self._summaries.append((item["summary"], item.get("leafUuid")))
            return []
        if kind not in _TALK:
            session_id = item.get("sessionId")
            counts = self._others.setdefault(session_id if isinstance(session_id, str) else None, Counter())
            counts[kind] += 1
            return []
        entry = convert(item, _Entry)
        said = None if kind == "system" else _message_of(entry)
        moment = parse_time(entry.timestamp) if entry.timestamp is not None else None
        session_id = entry.session_id or ""
        if session_id not in self._sessions:
            self._sessions[session_id] = _Session(self, session_id, moment)
        return self._sessions[session_id].take(entry, said, moment)

    def finish(self) -> list[Record]:
        """Returns what each session left, and its episode."""
        sessions = self._sessions
        only = next(iter(sessions.values())) if len(sessions) == 1 else None
        for session_id, counts in self._others.items():
            session = sessions.get(session_id or "") or only
            if session is not None:
                session.counts.update(counts)
        for text, leaf in self._summaries:
            session = next((each for each in sessions.values() if each.holds(leaf)), only)
            if session is not None:
                session.titles.append(text)
        return [record for session in sessions.values() for record in session.finish()]


def _message_of(entry: _Entry) -> Message:
    raw = entry.message
    if raw is None or not isinstance(raw.get("content"), str | list):
        found = "no message" if raw is None else f"message.content {raw.get('content')!r}"
        raise FormatError(f"a record of type {entry.type!r} has {found}; a text or a list is needed there")
    return read_message({"role": entry.type, "content": raw["content"]})


def _fits(line: Line) -> bool:
    kind = line.get("type")
    if not isinstance(kind, str) or "payload" in line:
        return False
    return isinstance(line.get("sessionId"), str) or kind == "file-history-snapshot" or "leafUuid" in line


CLAUDE_CODE = TraceFormat("claude-code", "type and sessionId", _fits, ClaudeCodeReader)
