"""Joins what is known of one span from several records: the span itself, a start without an end, logs of its content.

Which of them comes first makes no difference to what comes out.
"""

from __future__ import annotations

from typing import Any

import msgspec

from learnloop.core.records import Span
from learnloop.traces.otlp.content import event_messages
from learnloop.traces.otlp.mapping import PARTIAL

_RANKS = {"log": 0, "open": 1, None: 2}
_OF_PARTS = frozenset({PARTIAL, "duration_unknown", "time_unknown"})
_EVENTS = "message_events"


def join_spans(known: Span, other: Span) -> Span:
    """Returns what two records of one span say together: ``known`` itself where ``other`` adds nothing.

    The more complete one counts; the other fills in what it lacks.
    """
    known_rank, other_rank = rank(known), rank(other)
    if other_rank == known_rank == 2:
        return known
    best, rest = (known, other) if known_rank >= other_rank else (other, known)
    added = {
        name: value for name, value in rest.attributes.items() if name not in best.attributes and name not in _OF_PARTS
    }
    if _EVENTS in rest.attributes:
        added.update(_join_messages(best, rest))
    if not added:
        return best
    operation = rest.operation if best.operation == "custom" else best.operation
    return msgspec.structs.replace(best, operation=operation, attributes={**best.attributes, **added})


def rank(span: Span) -> int:
    """Returns how complete a span is: 2 for a whole one, less for one of which parts are known."""
    return _RANKS.get(span.attributes.get(PARTIAL), 2)


def is_root(span: Span) -> bool:
    """Returns whether a span has arrived whole and has no parent."""
    return span.parent_id is None and rank(span) == 2


def _join_messages(best: Span, rest: Span) -> dict[str, Any]:
    """Returns what the messages say that came in log records of their own, in the order of their times."""
    had = best.attributes.get(_EVENTS, [])
    marks = {_mark(each) for each in had}
    union = [*had, *(each for each in rest.attributes[_EVENTS] if _mark(each) not in marks)]
    if len(union) == len(had):
        return {}
    union.sort(key=lambda each: (each[0], each[1] == "gen_ai.choice"))
    if not had and ("input" in best.attributes or "output" in best.attributes):
        return {_EVENTS: union}  # the span has content of its own
    said, answered = event_messages((each[1], each[2]) for each in union)
    made: dict[str, Any] = {_EVENTS: union}
    if said:
        made["input"] = said
    if answered:
        made["output"] = answered
    return made


def _mark(event: list[Any]) -> tuple[Any, ...]:
    """Returns by what a message is known: time, name and sum, not the body, of which secrets may be taken out."""
    time, name, _, crc = event
    return time, name, crc
