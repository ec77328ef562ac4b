"""Builds the records of one imported episode: a root span, the calls of models and tools below it, its rewards.

What a format does not say is not made up: a reward that is missing is missing. Where it carries no times, those of its
file stand in, a microsecond a span to keep the order, and the episode says so (``time_unknown``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from learnloop.core.errors import FormatError
from learnloop.core.records import Episode, EpisodeStatus, Record, Reward, Span, SpanStatus
from learnloop.traces.conversation.messages import Message, Part, tool_calls_of, tool_responses_of
from learnloop.traces.conversation.steps import TOOL_OPERATION
from learnloop.traces.importing.reader import ItemReader
from learnloop.traces.json_values import present

_TICK = timedelta(microseconds=1)
_LATEST = datetime.max.replace(tzinfo=UTC) - _TICK


class Turn(NamedTuple):
    """A message of a conversation, and what is known beside it; of a tool's result, what it says of its call itself."""

    message: Message
    at: datetime | None = None
    name: str | None = None
    arguments: Any = None
    error: str | None = None


class Asked(NamedTuple):
    """A call of a tool that waits for its result."""

    name: str = ""
    arguments: Any = None
    at: datetime | None = None
    key: str | None = None
    """What its span is known by, as for ``EpisodeBuilder.span``."""


class EpisodeBuilder:
    """The records of one episode. Ids depend on ``episode_id`` and the order of the calls alone.

    Attributes:
        episode_id: given, or made by the format of what identifies the run.
        root_id: the id of its root span.
    """

    def __init__(
        self,
        reader: ItemReader,
        episode_id: str,
        *,
        task_id: str | None = None,
        attempt: int | None = None,
        agent_id: str | None = None,
        started_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Begins an episode.

        Args:
            reader: of the file; its format's name is the episode's source.
            episode_id: of the run.
            task_id: what it was to do.
            attempt: which try at the task, counted from 0.
            agent_id: who did it; the source's where None.
            started_at: None: the format does not say.
            metadata: what else is known; entries that are None are left out.
        """
        self.episode_id = episode_id
        self.root_id = reader.ids.derive("span", episode_id)
        self._ids = reader.ids
        self._agent_id = agent_id or reader.source.agent_id
        self._task_id = task_id
        self._attempt = attempt
        self._metadata = present(metadata or {})
        self._times_known = started_at is not None
        self._started_at = started_at or reader.source.modified_at
        self._moment = self._started_at
        self._ended_at = self._started_at
        self._num_spans = 0
        self._num_messages: dict[str, int] = {}
        self._records: list[Record] = []

    def chat(
        self,
        model: str,
        messages: Sequence[Message],
        output: Sequence[Message] | Message | None,
        *,
        thread: str = "",
        **rest: Any,
    ) -> str:
        """Adds a call of a model and returns its span's id.

        Args:
            model: its name; empty where the format does not say.
            messages: what is new in this call since the last one of its ``thread``.
            output: what it answered, one message or several items; None: not recorded.
            thread: which conversation of the episode, where there are several.
            rest: as for ``span``; ``usage``, ``finish_reasons``, ``token_ids`` ...
        """
        said = [output] if isinstance(output, dict) else list(output or [])
        earlier = self._num_messages.get(thread, 0)
        self._num_messages[thread] = earlier + len(messages) + len(said)
        given = {"input": list(messages), "output": said or None, "input_offset": earlier or None}
        return self.span("chat", model, **{**given, **rest})

    def conversation(self, messages: Iterable[Message | Turn], *, model: str = "") -> None:
        """Adds a whole conversation: a call of the model for each answer in it, a call of a tool for each result."""
        waiting: list[Message] = []
        asked: dict[str | None, Part] = {}
        for turn in (each if isinstance(each, Turn) else Turn(each) for each in messages):
            said = turn.message
            if said["role"] == "assistant":
                self.chat(model, waiting, said, started_at=turn.at)
                waiting = []
                asked = {part.get("id"): part for part in tool_calls_of(said)}
                continue
            waiting.append(said)
            for part in tool_responses_of(said):
                call = asked.get(part.get("id"), {})
                error = turn.error or ("the tool reported an error" if part.get("is_error") else None)
                self.tool(
                    turn.name or call.get("name") or said.get("name") or "",
                    call.get("arguments") if turn.arguments is None else turn.arguments,
                    part.get("response"),
                    call_id=part.get("id"),
                    started_at=turn.at,
                    error=error,
                )
        if waiting:
            self.note(messages_after_last_answer=waiting)

    def tool(self, name: str, arguments: Any, result: Any, **rest: Any) -> str:
        """Adds a call of a tool and returns its span's id.

        Args:
            name: of the tool.
            arguments: None: not recorded.
            result: None: not recorded.
            rest: as for ``span``; ``call_id`` ...
        """
        return self.span(TOOL_OPERATION, name, input=arguments, output=result, **rest)

    def answer(self, asked: Asked | None, result: Any, at: datetime | None, **rest: Any) -> str:
        """Adds a call of a tool whose result came ``at`` a moment, and returns its span's id; None: nobody asked."""
        call = asked or Asked()
        ended_at = at if call.at else None
        return self.tool(call.name, call.arguments, result, started_at=call.at or at, ended_at=ended_at, **rest)

    def span(
        self,
        operation: str,
        name: str,
        started_at: datetime | None = None,
        ended_at: datetime | None = None,
        *,
        parent_id: str | None = None,
        error: str | None = None,
        key: str | None = None,
        **attributes: Any,
    ) -> str:
        """Adds any other operation and returns its span's id.

        Args:
            operation: of the span.
            name: of the span.
            started_at: None: not known.
            ended_at: None: not known.
            parent_id: the span that it ran in; the root where None.
            error: why it failed.
            key: what its id is made of; of its number where None.
            attributes: those that are None are left out.
        """
        self._num_spans += 1
        span_id = self._ids.derive("span", self.episode_id, str(self._num_spans)) if key is None else self.span_id(key)
        known = started_at is not None
        begin = self._tick() if started_at is None else started_at
        end = begin if ended_at is None else max(begin, ended_at)
        if not (known and ended_at is not None):
            attributes["duration_unknown"] = True
        self._started_at = min(self._started_at, begin)
        self._moment = max(self._moment, begin)
        self._ended_at = max(self._ended_at, end)
        self._add_span(span_id, parent_id or self.root_id, operation, name, begin, end, error, attributes)
        return span_id

    def reward(
        self,
        name: str,
        value: float | None,
        *,
        weight: float = 1.0,
        span_id: str | None = None,
        reason: str | None = None,
        created_at: datetime | None = None,
    ) -> None:
        """Adds a reward that the file holds: for the episode, or for one span of it.

        Raises:
            FormatError: it is not a number.
        """
        if value is not None and not isinstance(value, int | float):
            raise FormatError(f"reward {name!r} is {value!r}; a number is needed")
        reward = Reward(
            reward_id=self._ids.derive("reward", self.episode_id, span_id or "", name),
            episode_id=self.episode_id,
            span_id=span_id,
            name=name,
            value=None if value is None else float(value),
            weight=weight,
            source=self._ids.format_name,
            reason=reason,
            created_at=created_at or self._ended_at,
        )
        self._records.append(reward)

    def known_reward(self, name: str, value: float | None, *, weight: float = 1.0, reason: str | None = None) -> None:
        """Adds a reward of the episode where its value is known.

        Raises:
            FormatError: it is not a number.
        """
        if value is not None:
            self.reward(name, value, weight=weight, reason=reason)

    def note(self, **metadata: Any) -> None:
        """Adds to the episode's metadata what is not None."""
        self._metadata.update(present(metadata))

    def span_id(self, key: str) -> str:
        """Returns the id of the span with this ``key``, in this episode or another: what is the same is kept once."""
        return self._ids.derive("span-key", key)

    def take(self) -> list[Record]:
        """Returns the records that were added since the last call, so that a long run need not be held in memory."""
        added, self._records = self._records, []
        return added

    def finish(
        self,
        *,
        terminated: bool = True,
        truncated: bool = False,
        error: str | None = None,
        ended_at: datetime | None = None,
        name: str | None = None,
        **attributes: Any,
    ) -> list[Record]:
        """Returns all records: the episode first, then its root span, then what was added.

        Args:
            terminated: it came to an end of its own.
            truncated: a limit cut it off.
            error: what ended a run that broke; the episode is ``failed`` then.
            ended_at: None: when its last span ended.
            name: of the root span; the agent's where None.
            attributes: of the root span.
        """
        end = max(self._ended_at, ended_at or self._ended_at)
        metadata = self._metadata if self._times_known else {**self._metadata, "time_unknown": True}
        episode = Episode(
            episode_id=self.episode_id,
            trace_id=self.episode_id,
            agent_id=self._agent_id,
            task_id=self._task_id,
            attempt=self._attempt,
            source=self._ids.format_name,
            status=EpisodeStatus.COMPLETED if error is None else EpisodeStatus.FAILED,
            terminated=terminated and not truncated,
            truncated=truncated,
            error=error,
            started_at=self._started_at,
            ended_at=end,
            metadata=metadata,
        )
        added = self.take()
        root = name or self._agent_id
        self._add_span(self.root_id, None, "invoke_agent", root, self._started_at, end, error, attributes)
        return [episode, *self._records, *added]

    def _tick(self) -> datetime:
        self._moment = min(self._moment, _LATEST) + _TICK
        return self._moment

    def _add_span(
        self,
        span_id: str,
        parent_id: str | None,
        operation: str,
        name: str,
        started_at: datetime,
        ended_at: datetime,
        error: str | None,
        attributes: Mapping[str, Any],
    ) -> None:
        span = Span(
            span_id=span_id,
            trace_id=self.episode_id,
            episode_id=self.episode_id,
            parent_id=parent_id,
            operation=operation,
            name=name,
            status=SpanStatus.OK if error is None else SpanStatus.ERROR,
            error=error,
            started_at=started_at,
            ended_at=ended_at,
            attributes=present(attributes),
        )
        self._records.append(span)


class Calls:
    """Adds calls of a model that each repeat the conversation so far, and keeps of each what is new.

    A call that does not go on with what was said last (another agent's, or after the history was cut) is kept whole.
    """

    def __init__(self, builder: EpisodeBuilder) -> None:
        self._builder = builder
        self._said: list[str] = []
        """The marks of the conversation that went on last."""
        self._number = 0

    def add(
        self,
        model: str,
        messages: Sequence[Message],
        marks: Sequence[str],
        answers: Iterable[tuple[str, Message]],
        **rest: Any,
    ) -> str:
        """Adds a call and returns its span's id.

        Args:
            model: its name.
            messages: all that the call held.
            marks: one text for each message, the same where it is the same.
            answers: what the model said, each with its mark.
            rest: as for ``EpisodeBuilder.chat``.
        """
        said = list(answers)
        num_known = len(self._said)
        if not num_known or list(marks[:num_known]) != self._said:
            num_known = 0
            self._number += 1
        self._said = [*marks, *(mark for mark, _ in said)]
        output = [answer for _, answer in said] or None
        return self._builder.chat(model, messages[num_known:], output, thread=str(self._number), **rest)
