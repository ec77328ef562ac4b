"""Codex rollouts: JSON Lines of ``{timestamp, type, payload}``; a session is an episode.

Older files have the items without an envelope, behind a first line ``{id, timestamp, instructions}``; the oldest are
one JSON object ``{session, items}``. What the user and the model said is there twice, as an item of the API and as an
event for the screen: it is one message. Items that the model gave one after the other are one call. The counts of
tokens are totals of the session: a call has the difference.

Source: the protocol of the Codex command line (``RolloutItem``, ``ResponseItem``, ``EventMsg``) and its sessions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from learnloop.core.errors import FormatError
from learnloop.core.records import Record
from learnloop.traces.conversation.messages import (
    Message,
    Part,
    as_text,
    message,
    parsed,
    read_message,
    text_of,
    text_part,
    tool_call_part,
    tool_response_part,
)
from learnloop.traces.importing.building import Asked, EpisodeBuilder
from learnloop.traces.importing.reader import (
    ItemReader,
    Line,
    Source,
    TraceFormat,
    convert,
    parse_time,
)
from learnloop.traces.json_values import find, known_text, token_usage

_ENVELOPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_HEADER = frozenset({"id", "timestamp", "instructions", "git", "cwd", "originator", "cli_version", "source"})
_SESSION_IN_NAME = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ARGUMENTS = ("arguments", "input", "action", "query")
_NOT_ASKED = ("<", "# AGENTS.md")
"""How messages begin that the program writes in the user's name."""
_ENDED = frozenset({"task_complete", "turn_complete"})
_ABORTED = frozenset({"turn_aborted", "turn_cancelled"})


class _Entry(msgspec.Struct):
    type: str
    payload: dict[str, Any]
    timestamp: str | None = None


class _Call(msgspec.Struct):
    """A call of the model whose items may still come."""

    number: int
    inputs: list[Message]
    thread: str
    model: str
    effort: str | None
    usage: Counter[str]
    parts: list[Part] = []
    echoes: list[str] = []
    """What events say that it said; an item should say the same."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    answered: bool = False
    """A result of one of its tools came: what the model says next is another call."""


class _Session:
    """One session."""

    def __init__(self, reader: ItemReader, session_id: str | None, started_at: datetime | None) -> None:
        self.session_id = session_id
        self._known = session_id or reader.source.name
        episode_id = reader.ids.derive("episode", self._known)
        self._builder = EpisodeBuilder(reader, episode_id, started_at=started_at)
        self._pending: list[Message] = []
        self._heard: Counter[str] = Counter()
        """What the user said since the last call, above 0 by items alone, below 0 by events alone."""
        self._call: _Call | None = None
        self._asked: dict[str, Asked] = {}
        self._exit_codes: dict[str, Any] = {}
        self._tool_keys: Counter[str] = Counter()
        """Of calls without an id."""
        self._num_calls = 0
        self._num_conversations = 0
        self._totals: dict[str, int] | None = None
        self._other_usage: Counter[str] = Counter()
        self._model = ""
        self._effort: str | None = None
        self._provider: str | None = None
        self._counts: Counter[str] = Counter()
        self._prompt: str | None = None
        self._answer: str | None = None
        self._ended: bool | None = None
        """None: the session does not say how its last turn ended."""
        self._aborted: str | None = None
        self._error: str | None = None

    def meta(self, payload: Mapping[str, Any]) -> None:
        """Takes what describes the session."""
        git = payload.get("git")
        self._builder.note(
            session_id=self.session_id,
            git=git if isinstance(git, Mapping) else None,
            **{
                name: payload[name]
                for name in ("cwd", "originator", "cli_version", "source", "model_provider", "forked_from_id")
                if isinstance(payload.get(name), str | dict)
            },
        )
        self._provider = known_text(payload.get("model_provider")) or self._provider
        for name in ("base_instructions", "instructions"):
            text = known_text(payload.get(name)) or known_text(find(payload, name, "text"))
            if text:
                self._pending.append(message("system", text_part(text)))

    def turn(self, payload: Mapping[str, Any]) -> None:
        """Takes the settings of a turn."""
        self._model = known_text(payload.get("model")) or self._model
        self._effort = known_text(payload.get("effort"))
        self._builder.note(
            **{name: payload.get(name) for name in ("cwd", "approval_policy", "sandbox_policy") if payload.get(name)}
        )

    def compacted(self, payload: Mapping[str, Any]) -> None:
        """Begins another conversation with what is left of the one before."""
        self._close()
        self._num_conversations += 1
        self._counts["compacted"] += 1
        if text := known_text(payload.get("message")):
            self._pending.append(message("user", text_part(text)))

    def item(self, payload: Mapping[str, Any], moment: datetime | None) -> None:
        """Takes an item that the API was given or gave."""
        kind = payload.get("type")
        if not isinstance(kind, str):
            raise FormatError(f"an item has the type {kind!r}; a text is needed there")
        if kind == "message":
            self._message(payload, moment)
        elif kind == "reasoning":
            self._say(_reasoning(payload), moment)
        elif kind.endswith("_output"):
            self._answer_tool(payload, moment)
        elif kind.endswith("_call"):
            self._ask(kind, payload, moment)
        else:
            self.count(f"item.{kind}")

    def event(self, payload: Mapping[str, Any], moment: datetime | None) -> None:
        """Takes an event that the program showed."""
        kind, text = payload.get("type"), payload.get("message")
        if not isinstance(kind, str):
            raise FormatError(f"an event has the type {kind!r}; a text is needed there")
        if kind == "user_message" and isinstance(text, str):
            self._hear(message("user", text_part(text)), text, -1)
        elif kind == "agent_message" and isinstance(text, str):
            call = self._open(moment)
            call.echoes = [*call.echoes, text]
        elif kind == "token_count":
            self._tokens(payload.get("info"))
        elif kind in _ABORTED:
            self._aborted, self._ended = str(payload.get("reason") or kind), False
        elif kind in _ENDED:
            self._ended = True
        elif kind == "error" and isinstance(text, str):
            self._error, self._ended = text, False
        elif kind == "exec_command_end" and isinstance(payload.get("call_id"), str):
            self._exit_codes[payload["call_id"]] = payload.get("exit_code")
        else:
            self.count(f"event.{kind}")

    def count(self, kind: str) -> None:
        """Counts a record that is not a part of the conversation."""
        self._counts[kind] += 1

    def take(self) -> list[Record]:
        """Returns the spans that are complete."""
        return self._builder.take()

    def finish(self) -> list[Record]:
        """Returns what is left, and the episode."""
        self._close()
        idle = not self._pending and not self._asked and self._answer is not None
        self._builder.note(
            other_records=dict(self._counts) or None,
            other_usage=dict(self._other_usage) or None,
            aborted=self._aborted,
            unanswered_tool_calls=len(self._asked) or None,
            messages_after_last_answer=self._pending or None,
        )
        return self._builder.finish(
            terminated=idle if self._ended is None else self._ended,
            truncated=self._aborted is not None,
            error=self._error,
            input=self._prompt,
            output=self._answer,
        )

    def _message(self, payload: Mapping[str, Any], moment: datetime | None) -> None:
        role, content = payload.get("role"), payload.get("content")
        if not isinstance(role, str) or not isinstance(content, str | list):
            raise FormatError(f"a message has the role {role!r} and the content {as_text(content)[:100]!r}")
        said = read_message({"role": role, "content": content})
        if said["role"] == "assistant":
            text = text_of(said)
            call = self._open(moment)
            if text in call.echoes:
                call.echoes = [each for each in call.echoes if each != text]
            self._say(said["parts"], moment)
            return
        self._hear(said, text_of(said), 1)

    def _hear(self, said: Message, text: str, way: Literal[1, -1]) -> None:
        """Takes what was said to the model by an item (1) or an event (-1), unless the other has told it already."""
        before = self._heard[text]
        self._heard[text] += way
        if before * way < 0:
            return
        if self._call is not None:
            self._call.answered = True
        if said["role"] == "user" and not text.startswith(_NOT_ASKED):
            self._prompt = text if self._prompt is None else self._prompt
            self._aborted = self._error = self._ended = None
        self._pending.append(said)

    def _say(self, parts: Iterable[Part], moment: datetime | None) -> None:
        call = self._open(moment)
        call.parts = [*call.parts, *parts]
        call.ended_at = moment or call.ended_at

    def _open(self, moment: datetime | None) -> _Call:
        """Returns the call that an item of the model belongs to."""
        if self._call is not None and not self._call.answered:
            return self._call
        self._close()
        self._call = _Call(
            number=self._num_calls,
            inputs=self._pending,
            thread=str(self._num_conversations),
            model=self._model,
            effort=self._effort,
            usage=Counter(),
            started_at=moment,
            ended_at=moment,
        )
        self._num_calls += 1
        self._pending = []
        self._heard.clear()
        return self._call

    def _close(self) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        if not any(part.get("type") == "text" for part in call.parts):
            call.parts = [*(text_part(text) for text in call.echoes), *call.parts]
        output = message("assistant", *call.parts)
        self._answer = text_of(output) or self._answer
        self._builder.chat(
            call.model,
            call.inputs,
            output,
            started_at=call.started_at,
            ended_at=call.ended_at,
            thread=call.thread,
            key=f"call {self._known} {call.number}",
            provider=self._provider,
            usage=dict(call.usage) or None,
            request={"reasoning_effort": call.effort} if call.effort else None,
            duration_unknown=True,
        )

    def _ask(self, kind: str, payload: Mapping[str, Any], moment: datetime | None) -> None:
        call_id = known_text(payload.get("call_id") or payload.get("id"))
        name = known_text(payload.get("name")) or kind.removesuffix("_call")
        arguments = next((parsed(payload[key]) for key in _ARGUMENTS if payload.get(key) is not None), None)
        self._say([tool_call_part(call_id, name, arguments)], moment)
        if kind == "web_search_call":  # the provider runs it; its result is never told
            self._builder.tool(
                name,
                arguments,
                None,
                call_id=call_id,
                started_at=moment,
                key=self._tool_key(call_id, self._num_calls),
            )
        elif call_id is not None:
            self._asked[call_id] = Asked(name, arguments, moment)

    def _answer_tool(self, payload: Mapping[str, Any], moment: datetime | None) -> None:
        call_id = known_text(payload.get("call_id") or payload.get("id"))
        asked = self._asked.pop(call_id, None) if call_id else None
        result = _result(payload.get("output"))
        if self._call is not None:
            self._call.answered = True
        self._pending.append(message("tool", tool_response_part(call_id, result)))
        self._builder.answer(
            asked,
            result,
            moment,
            call_id=call_id,
            error=_failure(payload.get("output")),
            key=self._tool_key(call_id, len(self._pending)),
            exit_code=self._exit_codes.pop(call_id, None) if call_id else None,
        )

    def _tool_key(self, call_id: str | None, place: int) -> str:
        """Returns what a tool's span is known by: its call's id, else its place and how many there were before it."""
        key = f"tool {self._known} {call_id or place}"
        self._tool_keys[key] += call_id is None
        return key if self._tool_keys[key] < 2 else f"{key}.{self._tool_keys[key]}"

    def _tokens(self, info: Any) -> None:
        """Gives the tokens since the last count to the last call."""
        totals, last = token_usage(find(info, "total_token_usage")), token_usage(find(info, "last_token_usage"))
        if not totals:
            return
        before, self._totals = self._totals, totals
        reset = before is not None and any(totals.get(name, 0) < value for name, value in before.items())
        if (before is None or reset) and last:
            spent = last
        else:
            spent = {name: value - (before or {}).get(name, 0) for name, value in totals.items()}
        if any(spent.values()):
            (self._other_usage if self._call is None else self._call.usage).update(spent)


class CodexReader(ItemReader):
    """Reads rollouts into an episode a session."""

    format_name = "codex"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._session: _Session | None = None
        self._forked_from: str | None = None

    def read(self, item: Line) -> list[Record]:
        """Returns the spans that a record completes."""
        if "payload" in item:
            entry = convert(item, _Entry)
        elif isinstance(item.get("type"), str):
            entry = _Entry("response_item", dict(item), known_text(item.get("timestamp")))
        elif "record_type" in item:
            entry = _Entry(f"record.{item['record_type']}", {})
        elif isinstance(item.get("id"), str):
            entry = _Entry("session_meta", dict(item), known_text(item.get("timestamp")))
        else:
            raise FormatError(f"a line with the fields {', '.join(sorted(item)[:8])} has no type")
        moment = parse_time(entry.timestamp) if entry.timestamp is not None else None
        if entry.type == "session_meta":
            return self._meta(entry, moment)
        session = self._session or self._begin(None, moment)
        if entry.type == "response_item":
            session.item(entry.payload, moment)
        elif entry.type == "event_msg":
            session.event(entry.payload, moment)
        elif entry.type == "turn_context":
            session.turn(entry.payload)
        elif entry.type == "compacted":
            session.compacted(entry.payload)
        else:
            session.count(entry.type)
        return session.take()

    def finish(self) -> list[Record]:
        """Returns what the last session left, and its episode."""
        session, self._session = self._session, None
        return [] if session is None else session.finish()

    def _meta(self, entry: _Entry, moment: datetime | None) -> list[Record]:
        """Begins a session; a fork repeats the head of the one that it was forked from, which begins none."""
        session_id = known_text(entry.payload.get("id")) or known_text(entry.payload.get("session_id"))
        current = self._session
        if current is not None and session_id in (current.session_id, self._forked_from):
            current.count("session_meta")
            return []
        ended = self.finish()
        self._forked_from = known_text(entry.payload.get("forked_from_id"))
        given = entry.payload.get("timestamp")
        self._begin(session_id, parse_time(given) if isinstance(given, str) else moment).meta(entry.payload)
        return ended

    def _begin(self, session_id: str | None, started_at: datetime | None) -> _Session:
        if session_id is None:
            found = _SESSION_IN_NAME.search(self.source.file_name)
            session_id = found.group() if found else None
        self._session = _Session(self, session_id, started_at)
        return self._session


def _reasoning(payload: Mapping[str, Any]) -> list[Part]:
    """Returns what may be read of it; most of it is encrypted, and left out."""
    said = read_message({"type": "reasoning", "summary": payload.get("summary"), "content": payload.get("content")})
    return list(said["parts"])


def _result(output: Any) -> Any:
    """Returns a tool's result: the text of one that is made of text blocks, or wrapped with its success."""
    if isinstance(output, Mapping) and "content" in output and output.keys() <= {"content", "success"}:
        return output["content"]
    if isinstance(output, list):  # blocks of any type, or of none, as versions of Codex wrote them
        texts = [block.get("text") if isinstance(block, Mapping) else None for block in output]
        if texts and all(isinstance(text, str) for text in texts):
            return "\n".join(map(str, texts))
    return output


def _failure(output: Any) -> str | None:
    if isinstance(output, Mapping) and output.get("success") is False:
        return as_text(output.get("content"))[:2_000] or "failed"
    return None


def _fits(line: Line) -> bool:
    kind = line.get("type")
    if kind is None:
        return {"id", "timestamp"} <= line.keys() <= _HEADER and isinstance(line.get("id"), str)
    return isinstance(kind, str) and kind in _ENVELOPES and isinstance(line.get("payload"), dict)


def _fits_document(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("session"), dict) and isinstance(value.get("items"), list)


def _items(value: Any) -> list[Any]:
    return [value["session"], *(item if isinstance(item, dict) else {"type": None} for item in value["items"])]


CODEX = TraceFormat(
    "codex", "type and payload of a rollout, or its first line with id and timestamp", _fits, CodexReader
)
CODEX_DOCUMENT = TraceFormat(
    "codex-json", "session and items", _fits_document, CodexReader, shape="document", items=_items
)
