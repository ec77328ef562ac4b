"""What the spans of a trace say of the episode as a whole; the order in which they came makes no difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from learnloop.core.records import Episode, EpisodeStatus, Span, SpanStatus
from learnloop.traces.json_values import known_object
from learnloop.traces.otlp.aliases import ATTEMPT, SLOTS, TASK
from learnloop.traces.otlp.mapping import PARTIAL
from learnloop.traces.otlp.parts import is_root

SOURCE = "otlp"
_MAX_SESSIONS = 16
_MAX_ID = 256
_RESOURCE = ("service.name", "service.version", "service.namespace", "deployment.environment.name")

Place = tuple[datetime, int, float, str]
"""By which the spans of a trace are ordered: the start, its nanoseconds, the end downwards, the id."""


@dataclass(slots=True)
class _Earliest:
    """The value of the span that started first, whenever it came."""

    place: Place | None = None
    value: Any = None

    def offer(self, place: Place, value: Any) -> None:
        if self.place is None or place < self.place:
            self.place, self.value = place, value


class TraceSummary:
    """Takes the spans of one trace, each once, and says what its episode is.

    Args:
        trace_id: of the trace, in hex.
        default_agent: whose run it is where no span and no service says.
    """

    def __init__(self, trace_id: str, default_agent: str) -> None:
        self.trace_id = trace_id
        self.num_spans = 0
        self._default_agent = default_agent
        self._started_at: datetime | None = None
        self._ended_at: datetime | None = None
        self._root = _Earliest()
        self._local_root = _Earliest()
        self._named = {name: _Earliest() for name in ("agent", "resource", "task_id", "attempt")}
        self._sessions: set[str] = set()

    @property
    def has_root(self) -> bool:
        """Whether a span without a parent came."""
        return self._root.value is not None

    def add(self, span: Span) -> None:
        """Takes a span."""
        self.num_spans += 1
        started_at, ended_at, attributes = span.started_at, span.ended_at, span.attributes
        if self._started_at is None or started_at < self._started_at:
            self._started_at = started_at
        if self._ended_at is None or ended_at > self._ended_at:
            self._ended_at = ended_at
        place = (started_at, attributes.get("start_nanos", 0), -ended_at.timestamp(), span.span_id)
        if is_root(span):
            self._root.offer(place, span)
        elif attributes.get("remote_parent") and PARTIAL not in attributes:
            self._local_root.offer(place, span)
        for name, earliest in self._named.items():
            if name in attributes:
                earliest.offer(place, attributes[name])
        if "conversation_id" in attributes and len(self._sessions) < _MAX_SESSIONS:
            self._sessions.add(attributes["conversation_id"])

    def running(self, moment: datetime) -> Episode:
        """Returns the episode as far as it is known; what it is named by may still change."""
        return self._episode(EpisodeStatus.RUNNING, moment, {})

    def ended(self, why_cut: str, moment: datetime) -> Episode:
        """Returns the episode as it ended: by its root, or, where that never came, cut off, and why one thinks so."""
        root: Span | None = self._root.value or self._local_root.value
        if root is None:
            return self._episode(EpisodeStatus.COMPLETED, moment, {"closed": why_cut}, truncated=True)
        failed = root.status is SpanStatus.ERROR
        status = EpisodeStatus.FAILED if failed else EpisodeStatus.COMPLETED
        error = (root.error or "failed") if failed else None
        return self._episode(status, moment, {"name": root.name}, terminated=True, error=error)

    def _episode(self, status: EpisodeStatus, moment: datetime, more: dict[str, Any], **ending: Any) -> Episode:
        agent, resource, task, attempt = (each.value for each in self._named.values())
        resource = known_object(resource)
        metadata = {name: resource[name] for name in _RESOURCE if name in resource} | more
        if len(self._sessions) == 1:
            metadata["conversation_id"] = next(iter(self._sessions))
        elif self._sessions:
            metadata["conversation_ids"] = sorted(self._sessions)
        return Episode(
            episode_id=self.trace_id,
            trace_id=self.trace_id,
            agent_id=agent or _read_slot(resource, "agent") or _service(resource) or self._default_agent,
            task_id=task or _read_slot(resource, TASK) or None,
            attempt=_number(_read_slot(resource, ATTEMPT)) if attempt is None else attempt,
            source=SOURCE,
            status=status,
            started_at=self._started_at or moment,
            ended_at=None if status is EpisodeStatus.RUNNING else self._ended_at or moment,
            metadata=metadata,
            **ending,
        )


def summary_of(trace_id: str, spans: Iterable[Span], default_agent: str) -> TraceSummary:
    """Returns the summary of spans of one trace."""
    summary = TraceSummary(trace_id, default_agent)
    for span in spans:
        summary.add(span)
    return summary


def _read_slot(resource: Mapping[str, Any], slot: str) -> str:
    """Returns what a resource says under one of the names of ``slot``; empty: nothing."""
    found = next((resource[name] for name in SLOTS[slot] if name in resource), None)
    return str(found)[:_MAX_ID] if isinstance(found, str | int) else ""


def _service(resource: Mapping[str, Any]) -> str:
    """Returns the service's name; empty where it is the one that an SDK makes up."""
    name = resource.get("service.name")
    return name[:_MAX_ID] if isinstance(name, str) and not name.startswith("unknown_service") else ""


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None
