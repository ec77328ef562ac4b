"""Spans and log records as they were sent, to our spans and rewards.

One pass over the attributes sorts them by our table of names (``aliases``); what is not in it is kept under its own
name. Each value that is kept is bounded by itself, so a large one costs itself and nothing else. What was said to and
by models and tools is not cut: it is what is learned from.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from learnloop.core.clock import from_micros, to_micros
from learnloop.core.records import Json, Reward, Span, SpanStatus
from learnloop.traces.otlp import aliases, content, scores
from learnloop.traces.otlp.operations import Found, operation_of
from learnloop.traces.otlp.wire import SPAN_ID_BYTES, TRACE_ID_BYTES, WireEvent, WireLog, WireScope, WireSpan, id_fault
from learnloop.traces.recording.values import MAX_TEXT, plain

PARTIAL = "partial"
"""The attribute of a span that is not complete yet: ``log`` (what a log record says of it) or ``open`` (no end yet)."""
_HAS_REMOTE_PARENT = 0x200
_STATUS_ERROR = 2
_MAX_NAME = 1_000
_MAX_KEY = 256
_MAX_INTEGER = 2**63 - 1
_ERROR_EVENTS = frozenset({"exception", "gen_ai.client.operation.exception"})
_PREFIX_OF = {group: prefix for prefix, group in aliases.GROUPS.items()}


class Mapped(msgspec.Struct, frozen=True):
    """What one span or log record means to us."""

    span: Span | None
    rewards: list[Reward]


def map_spans(spans: Iterable[WireSpan], received: datetime) -> list[Mapped]:
    """Returns what spans mean; ``received`` stands in for times that are not given."""
    return [Mapped(*_map_span(span, received)) for span in spans]


def map_logs(logs: Iterable[WireLog], received: datetime) -> list[Mapped]:
    """Returns what log records mean: content of a model's call, or a score. Others mean nothing and are left out."""
    found = (_map_log(log, received) for log in logs)
    return [each for each in found if each is not None]


def our_span_id(trace_id: str, span_id: str) -> str:
    """Returns our id of a span: a span id alone is unique in its trace only."""
    return f"{trace_id}.{span_id}"


def _map_span(wire: WireSpan, received: datetime) -> tuple[Span, list[Reward]]:
    trace_id = wire.trace_id
    span_id = f"{trace_id}.{wire.span_id}"
    found, groups, kept = _sort_out(wire.attributes)
    attributes: dict[str, Any] = {**_origin(wire.origin)}
    started_at, ended_at = _times(wire, received, attributes)
    events = _take_events(wire.events, found, groups, kept) if wire.events else []
    operation, name = operation_of(wire.name, found, groups, attributes, [each for each in events if _is_message(each)])
    error = _error(wire, found) if wire.status == _STATUS_ERROR else None
    rewards = scores.rewards_of(wire, operation, groups, events, attributes.get("output"), ended_at)
    _note_rest(wire, found, groups, kept, events, attributes)
    span = Span(
        span_id=span_id,
        trace_id=trace_id,
        episode_id=trace_id,
        parent_id=f"{trace_id}.{wire.parent_id}" if wire.parent_id else None,
        operation=operation,
        name=name[:_MAX_NAME],
        status=SpanStatus.OK if error is None else SpanStatus.ERROR,
        error=error,
        started_at=started_at,
        ended_at=ended_at,
        attributes=attributes,
    )
    return _make_storable(span), rewards


def _origin(scope: WireScope) -> Json:
    """Returns ``resource`` and ``scope`` where they hold anything."""
    if scope.plain is None:
        made = {"resource": _keep(scope.resource), "scope": _keep(scope.scope)}
        scope.plain = {name: value for name, value in made.items() if value}
    return scope.plain


def _sort_out(attributes: Mapping[str, Any]) -> tuple[Found, dict[str, dict[str, Any]], dict[str, Any]]:
    """Returns the attributes that we know, those that are spread over several names, and the others."""
    found = Found()
    groups: dict[str, dict[str, Any]] = {}
    kept: dict[str, Any] = {}
    names, prefixes = aliases.NAMES, aliases.GROUPS
    for key, value in attributes.items():
        known = names.get(key)
        if known is not None:
            slot, rank = known
            earlier = found.get(slot)
            if earlier is None:
                found[slot] = (rank, key, value)
            elif rank < earlier[0]:
                found[slot] = (rank, key, value)
                kept[earlier[1]] = earlier[2]
            else:
                kept[key] = value
            continue
        first = key.find(".") + 1
        second = key.find(".", first) + 1
        group = prefixes.get(key[:second])
        if group is not None:
            groups.setdefault(group, {})[key[second:]] = value
        elif key[:first] in prefixes:
            groups.setdefault(prefixes[key[:first]], {})[key[first:]] = value
        else:
            kept[key] = value
    return found, groups, kept


def _times(wire: WireSpan, received: datetime, attributes: dict[str, Any]) -> tuple[datetime, datetime]:
    """Returns when a span started and ended, and notes what was not given or cannot be."""
    start, end = wire.start, wire.end
    if not start:
        attributes["duration_unknown"] = True
        if not end:
            attributes["time_unknown"] = True
            attributes[PARTIAL] = "open"
            return received, received
        moment = from_micros(end // 1000)
        return moment, moment
    started_at = from_micros(start // 1000)
    if start % 1000:
        attributes["start_nanos"] = start % 1000
    if end >= start:
        return started_at, from_micros(end // 1000)
    attributes["duration_unknown"] = True
    if end:
        attributes["clock_error"] = f"it ended {(start - end) / 1e6:g} ms before it started"
    else:
        attributes[PARTIAL] = "open"
    return started_at, started_at


def _take_events(
    events: list[WireEvent], found: Found, groups: dict[str, dict[str, Any]], kept: dict[str, Any]
) -> list[WireEvent]:
    """Returns the events of a span but for those that carry attributes of the span's own, which are taken over."""
    others = []
    for event in events:
        if event.name not in aliases.CONTENT_EVENTS:
            others.append(event)
            continue
        more_found, more_groups, more_kept = _sort_out(event.attributes)
        for slot, value in more_found.items():
            found.setdefault(slot, value)
        for group, values in more_groups.items():
            groups.setdefault(group, values)
        for key, value in more_kept.items():
            kept.setdefault(key, value)
    return others


def _is_message(event: WireEvent) -> bool:
    return event.name in aliases.MESSAGE_EVENTS


def _error(wire: WireSpan, found: Found) -> str:
    """Returns what went wrong in a failed span, in its own words or in those of its exception."""
    if wire.message:
        return wire.message[:MAX_TEXT]
    for event in reversed(wire.events):
        if event.name in _ERROR_EVENTS:
            kind, text = event.attributes.get("exception.type"), event.attributes.get("exception.message")
            return ": ".join(str(part) for part in (kind, text) if part)[:MAX_TEXT] or "failed"
    error_type = found.get("error_type")
    return str(error_type[2])[:MAX_TEXT] if error_type else "failed"


def _note_rest(
    wire: WireSpan,
    found: Found,
    groups: Mapping[str, Mapping[str, Any]],
    kept: dict[str, Any],
    events: list[WireEvent],
    attributes: dict[str, Any],
) -> None:
    """Adds to ``attributes`` what of a span is not in them yet."""
    for _, key, value in found.values():
        kept[key] = value
    for group, values in groups.items():
        prefix = _PREFIX_OF[group]
        kept.update((prefix + key, value) for key, value in values.items())
    attributes.update(_keep(kept))
    kind = aliases.SPAN_KINDS.get(wire.kind)
    if kind is not None:
        attributes["kind"] = kind
    if wire.flags & _HAS_REMOTE_PARENT and wire.parent_id:
        attributes["remote_parent"] = True
    rest = [each for each in events if not _is_message(each) and each.name != aliases.EVALUATION_EVENT]
    if rest:
        attributes["events"] = plain(
            [{"name": each.name, "time": each.time, "attributes": each.attributes} for each in rest]
        )
    if wire.links:
        attributes["links"] = plain([_link(each.trace_id, each.span_id, each.attributes) for each in wire.links])
    if wire.extra:
        attributes.update(wire.extra)


def _link(trace_id: str, span_id: str, attributes: Json) -> Json:
    made: dict[str, Any] = {"trace_id": trace_id, "span_id": our_span_id(trace_id, span_id)}
    return {**made, "attributes": attributes} if attributes else made


def _keep(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns attributes under their own names, each value bounded; our own words are not theirs to use."""
    made: dict[str, Any] = {}
    for key, value in values.items():
        name = f"otel.{key}" if key in aliases.RESERVED else key[:_MAX_KEY]
        kind = type(value)
        if (
            (kind is str and len(value) <= MAX_TEXT)
            or (kind is int and -_MAX_INTEGER <= value <= _MAX_INTEGER)
            or kind is bool
        ):
            made[name] = value
        else:
            made[name] = plain(value)
    return made


def _make_storable(span: Span) -> Span:
    """Returns ``span`` such that the store takes it: content that cannot be written as it is, is made plain."""
    if content.is_storable(span.attributes):
        return span
    attributes = {name: plain(value) for name, value in span.attributes.items()}
    return msgspec.structs.replace(span, attributes=attributes)


def _map_log(log: WireLog, received: datetime) -> Mapped | None:
    moment = from_micros(log.time // 1000) if log.time else received
    named = id_fault("trace id", log.trace_id, TRACE_ID_BYTES) is None
    inside = named and id_fault("span id", log.span_id, SPAN_ID_BYTES) is None
    if log.event_name == aliases.EVALUATION_EVENT:
        trace_id = log.trace_id if named else None
        span_id = our_span_id(log.trace_id, log.span_id) if inside else None
        body = log.body if isinstance(log.body, Mapping) else {}
        reward = scores.evaluation_reward({**body, **log.attributes}, trace_id, span_id, moment, str(log.time))
        return Mapped(None, [reward])
    is_details = log.event_name == aliases.DETAILS_EVENT
    if not inside or not (is_details or log.event_name in aliases.MESSAGE_EVENTS):
        return None
    attributes = log.attributes
    events = []
    if is_details and isinstance(log.body, Mapping):
        attributes = {**_details_body(log.body), **attributes}
    elif not is_details:
        body = log.body if log.body is not None else attributes
        events = [WireEvent(log.event_name, log.time, {"gen_ai.event.content": body})]
        attributes = {name: value for name, value in attributes.items() if name in _OF_THE_CALL}
    nanos = log.time or to_micros(received) * 1000
    wire = WireSpan(
        log.trace_id, log.span_id, "", "chat", 0, 0, nanos, nanos, attributes, events, [], 0, "", {}, log.origin
    )
    span, _ = _map_span(wire, received)
    said = [_message_event(log)] if events else []
    return Mapped(_as_part(span, said), [])


def _message_event(log: WireLog) -> list[Any]:
    """Returns time, name and body of a message, and a sum by which it is known when it is sent again.

    The body that is stored may be another one: secrets are taken out of it.
    """
    body = plain(log.body if log.body is not None else log.attributes)
    return [log.time, log.event_name, body, zlib.crc32(msgspec.json.encode(body, order="sorted"))]


_OF_THE_CALL = frozenset({"gen_ai.system", "gen_ai.provider.name", "gen_ai.operation.name"})


def _details_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body of a details event as attributes: some write the names without their prefix."""
    return {name if "." in name else f"gen_ai.{name.replace('_', '.', 1)}": value for name, value in body.items()}


def _as_part(span: Span, said: list[Any]) -> Span:
    """Returns what a log record says of a call that has, or will have, a span of its own."""
    attributes = {**span.attributes, PARTIAL: "log", "duration_unknown": True}
    attributes.pop("start_nanos", None)
    if said:
        attributes["message_events"] = said
    return msgspec.structs.replace(span, operation=_model_operation(span.operation), attributes=attributes)


def _model_operation(operation: str) -> str:
    return "chat" if operation == "custom" else operation
