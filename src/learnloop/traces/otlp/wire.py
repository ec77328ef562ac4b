"""What an OTLP request holds, whichever encoding it came in: plain values, ids in lower-case hex, times in nanoseconds.

Nothing is interpreted here. A span or a log record that cannot be told apart from others (its ids are missing or of
the wrong length) is rejected with the reason; the others of its request are not.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_HEX = re.compile("[0-9a-f]+")
TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8
MAX_REASONS = 20
"""Reasons that a partial success names; further ones are counted."""


class WireEvent(msgspec.Struct):
    """Something that happened during a span."""

    name: str
    time: int
    """Nanoseconds from 1970; 0: not given."""
    attributes: dict[str, Any]


class WireLink(msgspec.Struct):
    """A reference to a span, as it was given."""

    trace_id: str
    span_id: str
    attributes: dict[str, Any]


class WireScope(msgspec.Struct):
    """Who sent a span or a record, and with which instrument."""

    resource: dict[str, Any]
    scope: dict[str, Any]
    """``name`` and ``version`` where given, and its attributes."""
    plain: dict[str, Any] | None = None
    """Both as attributes of ours, made once however many spans have them; None: not yet."""


class WireSpan(msgspec.Struct):
    """A span as it was sent."""

    trace_id: str
    span_id: str
    parent_id: str
    """Empty: it has none."""
    name: str
    kind: int
    flags: int
    start: int
    end: int
    attributes: dict[str, Any]
    events: list[WireEvent]
    links: list[WireLink]
    status: int
    message: str
    extra: dict[str, Any]
    """``trace_state`` and the numbers of what the sender dropped, where there is something to say."""
    origin: WireScope


class WireLog(msgspec.Struct):
    """A log record as it was sent; ids are empty where it has none."""

    trace_id: str
    span_id: str
    time: int
    event_name: str
    body: Any
    attributes: dict[str, Any]
    origin: WireScope


class Rejections:
    """How many items of a request were rejected, and why the first of them."""

    def __init__(self) -> None:
        self.number = 0
        self._reasons: dict[str, None] = {}

    def add(self, reason: str) -> None:
        """Counts one more."""
        self.number += 1
        if len(self._reasons) < MAX_REASONS:
            self._reasons[reason] = None

    def message(self) -> str:
        """Returns the reasons in one text; empty where nothing was rejected."""
        return "; ".join(self._reasons)


class WireTraces(msgspec.Struct):
    """An ``ExportTraceServiceRequest``."""

    spans: list[WireSpan]
    rejections: Rejections


class WireLogs(msgspec.Struct):
    """An ``ExportLogsServiceRequest``."""

    logs: list[WireLog]
    rejections: Rejections


def finite(value: float) -> float | str:
    """Returns a number, as text where JSON does not have it: NaN and the infinities."""
    return value if value - value == 0.0 else repr(value)


def id_fault(kind: str, value: str, num_bytes: int) -> str | None:
    """Returns why ``value`` is not an id of so many bytes in lower-case hex; None: it is one."""
    if len(value) != 2 * num_bytes:
        if not value:
            return f"a {kind} is missing; it needs {2 * num_bytes} hex digits"
        hint = ", as OTLP/JSON writes ids (not base64)" if value.endswith("=") else ""
        return f"{kind} {value[:64]!r} is not {2 * num_bytes} hex digits{hint}"
    if value.count("0") == len(value):
        return f"{kind} {value!r} is all zero, which names nothing"
    return None if _HEX.fullmatch(value) else f"{kind} {value!r} is not {2 * num_bytes} hex digits"


def span_fault(trace_id: str, span_id: str) -> str | None:
    """Returns why a span with these ids is rejected; None: it is not."""
    return id_fault("trace id", trace_id, TRACE_ID_BYTES) or id_fault("span id", span_id, SPAN_ID_BYTES)
