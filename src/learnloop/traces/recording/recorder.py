"""Records episodes and spans as they happen.

The current span travels in a context variable, so threads started with a copied context, tasks and generators find
their parent. A span is handed to the sink when it ends, an episode when it starts and when it ends. The sink must
neither wait nor raise; it returns False for a record that it had to drop.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

import msgspec

from learnloop.core.errors import UsageError
from learnloop.core.ids import new_id
from learnloop.core.lifecycles import EPISODE_TRANSITIONS, check_transition
from learnloop.core.records import Episode, EpisodeStatus, Json, Record, Span, SpanStatus
from learnloop.traces.conversation.conversations import Conversations
from learnloop.traces.recording.values import plain

Sink = Callable[[Record], bool]
R = TypeVar("R")


class RecorderCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What a recorder could not keep."""

    num_failures: int
    """Records that could not be built."""
    last_failure: str | None


class Recorder:
    """Records the episodes and spans of one agent into a sink."""

    def __init__(self, sink: Sink, agent_id: str, source: str = "loop") -> None:
        self.agent_id = agent_id
        self.source = source
        self._sink = sink
        self._current: ContextVar[ActiveSpan | None] = ContextVar(f"learnloop.{agent_id}", default=None)
        self.open_runs: OrderedDict[Any, Any] = OrderedDict()
        """Of a library that knows its runs by ids, shared by all callbacks that it has been given."""
        self._num_failures = 0
        self._last_failure: str | None = None

    @property
    def current(self) -> ActiveSpan | None:
        """The innermost span that is open here."""
        span = self._current.get()
        while span is not None and span.is_followed and span.has_ended:  # nobody told its end here
            span = span.outer
        return span

    @property
    def outside(self) -> ActiveSpan | None:
        """The innermost span that is open here and was not made by following a library's runs."""
        span = self._current.get()
        while span is not None and span.is_followed:
            span = span.outer
        return span

    def episode(
        self,
        *,
        task_id: str | None = None,
        attempt: int | None = None,
        name: str | None = None,
        metadata: Json | None = None,
    ) -> ActiveEpisode:
        """Returns a context manager that records one episode, with a root span of its own."""
        return ActiveEpisode(self, name or self.agent_id, task_id, attempt, metadata)

    def span(self, name: str, operation: str = "custom", attributes: Json | None = None) -> ActiveSpan:
        """Returns a context manager that records one operation; outside of an episode it makes one."""
        described = self.describe(attributes) if attributes else {}
        if self.current is None:
            return ActiveEpisode(self, name, operation=operation, attributes=described)
        return ActiveSpan(self, name, operation, described)

    def enter(self, span: ActiveSpan | None) -> Token[ActiveSpan | None]:
        """Makes ``span`` the current one until ``leave``."""
        return self._current.set(span)

    def leave(self, token: Token[ActiveSpan | None]) -> None:
        """Makes the span before ``enter`` current again, also where a task ends elsewhere than it began."""
        try:
            self._current.reset(token)
        except ValueError:  # another context: a generator that was closed by the garbage collector, say
            old = token.old_value
            self._current.set(None if old is Token.MISSING else old)

    def follow(self, span: ActiveSpan) -> None:
        """Makes ``span`` the current one until it ends: a library told its begin, and may tell its end elsewhere."""
        span.outer, span.is_followed = self.current, True
        self._current.set(span)

    def unfollow(self, span: ActiveSpan) -> None:
        """Makes what was current before ``follow`` current again, where the span still is it."""
        if self._current.get() is span:
            self._current.set(span.outer)

    def keep(self, build: Callable[[], Record]) -> None:
        """Builds a record and hands it to the sink, guarded; said again here, for each span comes through."""
        try:
            self._sink(build())
        except Exception as error:  # noqa: BLE001 - the boundary between capture and the agent
            self.note_failure(error)

    def guard(self, capture: Callable[[], R]) -> R | None:
        """Returns what ``capture`` does; None where it fails, which is counted and never reaches the agent."""
        try:
            return capture()
        except Exception as error:  # noqa: BLE001 - the boundary between capture and the agent
            self.note_failure(error)
            return None

    def describe(self, attributes: Mapping[str, object]) -> dict[str, Any]:
        """Returns ``attributes`` as JSON; one that cannot be read is left out, counted and said."""
        described: dict[str, Any] = {}
        for name, value in attributes.items():
            try:
                described[str(name)] = plain(value)
            except Exception as error:  # noqa: BLE001 - the boundary between capture and the agent's own objects
                self.note_failure(error)
                described[name] = f"(could not be recorded: {type(error).__name__})"
        return described

    def note_failure(self, error: Exception) -> None:
        """Counts something that could not be recorded, and keeps the reason."""
        self._num_failures += 1
        self._last_failure = describe_error(error)

    def counters(self) -> RecorderCounters:
        """Returns what could not be recorded so far."""
        return RecorderCounters(num_failures=self._num_failures, last_failure=self._last_failure)


@dataclass(slots=True, eq=False, repr=False)
class ActiveSpan:
    """An operation while it runs; ``set`` adds to its attributes."""

    _recorder: Recorder
    name: str
    operation: str
    attributes: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    span_id: str = field(default_factory=new_id)
    episode: ActiveEpisode | None = None
    parent_id: str | None = None
    trace_id: str = ""
    outer: ActiveSpan | None = None
    """Of a followed span: what was current before it."""
    is_followed: bool = False
    has_ended: bool = False
    _token: Token[ActiveSpan | None] | None = None
    _started_at: datetime = field(init=False)
    _started_ns: int = field(init=False)

    def set(self, **attributes: object) -> Self:
        """Adds attributes as they are now, values that are not JSON by their ``repr``; returns the span."""
        self.attributes.update(self._recorder.describe(attributes))
        return self

    def begin(self, parent: ActiveSpan | None = None) -> None:
        """Starts the clock below ``parent``, below the current span where None, without becoming the current one."""
        parent = parent or self._recorder.current
        if parent is not None:
            self.parent_id = parent.span_id
            self.trace_id = parent.trace_id
            self.episode = parent.episode
        self._started_at = datetime.now(UTC)
        self._started_ns = time.perf_counter_ns()

    def end(self, error: BaseException | None = None) -> None:
        """Stops the clock and records the span; ending it again changes nothing and is counted as a failure."""
        if self.has_ended:
            self._recorder.note_failure(UsageError(f"span {self.name!r} was ended twice"))
            return
        self.has_ended = True
        elapsed_ns = time.perf_counter_ns() - self._started_ns
        if error is not None and not isinstance(error, GeneratorExit):
            self.error = describe_error(error)
        self._recorder.keep(lambda: self._record(elapsed_ns))

    def __enter__(self) -> Self:
        self.begin()
        self._token = self._recorder.enter(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._token is not None:
            self._recorder.leave(self._token)
        self.end(error)

    def _record(self, elapsed_ns: int) -> Span:
        return Span(
            span_id=self.span_id,
            trace_id=self.trace_id,
            episode_id=self.episode.episode_id if self.episode else None,
            parent_id=self.parent_id,
            operation=self.operation,
            name=self.name,
            status=SpanStatus.OK if self.error is None else SpanStatus.ERROR,
            error=self.error,
            started_at=self._started_at,
            ended_at=self._started_at + timedelta(microseconds=elapsed_ns // 1000),
            attributes=self.attributes,
        )


class ActiveEpisode(ActiveSpan):
    """One try at a task while it runs: the root span of a trace, and the episode's record."""

    __slots__ = ("_final", "_metadata", "_truncated", "attempt", "conversations", "episode_id", "status", "task_id")

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        task_id: str | None = None,
        attempt: int | None = None,
        metadata: Json | None = None,
        *,
        operation: str = "invoke_agent",
        attributes: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(recorder, name, operation, attributes or {})
        self.episode_id = new_id()
        self.task_id = task_id
        self.attempt = attempt
        self.status: EpisodeStatus | None = None
        self.conversations = Conversations()
        """What was said to models in it."""
        given: Mapping[str, object] = metadata if isinstance(metadata, Mapping) else {"metadata": metadata}
        self._metadata = {} if metadata is None else recorder.describe(given)
        self._truncated = False

    def truncate(self) -> None:
        """Says that a limit cut the episode off: what would have come after its end is unknown."""
        self._truncated = True

    def begin(self, parent: ActiveSpan | None = None) -> None:
        """Starts the episode in a trace of its own, below no other span, whatever the current one is.

        Raises:
            UsageError: it was begun before; an episode is one try.
        """
        if self.status is not None:
            raise UsageError(f"episode {self.episode_id} was begun before; make a new one for another try")
        super().begin()
        self.parent_id = None
        self.trace_id = new_id()
        self.episode = self
        self.status = EpisodeStatus.RUNNING
        self._recorder.keep(self._episode_record)

    def end(self, error: BaseException | None = None) -> None:
        """Ends the episode as completed, or as failed with ``error``, and records it with its root span.

        Ending it again changes nothing and is counted as a failure to record.
        """
        if self.status is EpisodeStatus.RUNNING:
            failed = error is not None and not isinstance(error, GeneratorExit)
            wanted = EpisodeStatus.FAILED if failed else EpisodeStatus.COMPLETED
            check_transition(EPISODE_TRANSITIONS, f"episode {self.episode_id}", self.status, wanted)
            self.status = wanted
            super().end(error)
            self._recorder.keep(self._episode_record)
        else:
            self._recorder.note_failure(UsageError(f"episode {self.episode_id} was ended twice, or not begun"))

    def _episode_record(self) -> Episode:
        running = self.status is EpisodeStatus.RUNNING
        return Episode(
            episode_id=self.episode_id,
            trace_id=self.trace_id,
            agent_id=self._recorder.agent_id,
            task_id=self.task_id,
            attempt=self.attempt,
            source=self._recorder.source,
            status=self.status or EpisodeStatus.RUNNING,
            terminated=not running and not self._truncated,
            truncated=not running and self._truncated,
            error=self.error,
            started_at=self._started_at,
            ended_at=None if running else datetime.now(UTC),
            metadata=self._metadata,
        )


def describe_error(error: BaseException) -> str:
    """Returns type and message of an error, also where its ``str`` fails."""
    try:
        text = str(error)
    except Exception as second:  # noqa: BLE001 - another's __str__ must not break the agent that raised it
        text = f"(its message could not be read: {type(second).__name__})"
    return plain(f"{type(error).__name__}: {text}" if text else type(error).__name__)  # type: ignore[no-any-return]
