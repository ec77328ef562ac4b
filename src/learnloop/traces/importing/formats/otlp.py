"""OTLP files: JSON Lines as the collector's file exporter writes them, JSON documents, protobuf.

A file may hold traces, logs or both. Ids are those of the spans, so what was received too is there once. An episode is
known when the file ends; it is not said to be cut off for being spread over several files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

import msgspec

from learnloop.core.errors import FormatError
from learnloop.core.records import Record, Reward, Span
from learnloop.traces.conversation.steps import MODEL_OPERATIONS
from learnloop.traces.importing.reader import ItemReader, PartlyReadError, Source, TraceFormat
from learnloop.traces.otlp import json_wire, protobuf
from learnloop.traces.otlp.mapping import Mapped, map_logs, map_spans
from learnloop.traces.otlp.parts import is_root, join_spans, rank
from learnloop.traces.otlp.summary import TraceSummary
from learnloop.traces.otlp.wire import Rejections, WireLogs, WireTraces
from learnloop.traces.otlp.writing import response_name

_MAX_HELD = 20_000
"""Calls of models without content that wait for log records with it; further ones are not held."""
_MAX_RESPONSES = 200_000
_MAX_BYTES = 256 * 1024 * 1024
"""Of one protobuf message."""
_KEYS = ("resourceSpans", "resourceLogs", "resource_spans", "resource_logs")
_SPAN_IN_PROTOBUF = re.compile(rb"\x0a\x10.{16}\x12\x08.{8}|\x4a\x10.{16}\x52\x08.{8}", re.DOTALL)
"""A span's or a log record's trace id and span id, as their tags and lengths announce them."""
_PREFIX_BYTES = 4


class OtlpReader(ItemReader):
    """Reads spans and log records; the episodes that they make come at the end."""

    format_name = "otlp"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._summaries: dict[str, TraceSummary] = {}
        self._held: dict[str, Span] = {}
        self._rewards: list[Reward] = []
        self._roots: set[str] = set()
        self._responses: dict[str, tuple[str, str]] = {}

    def read(self, item: Any) -> list[Record]:
        """Returns the spans of one request, except those whose content may still come.

        Raises:
            PartlyReadError: some of its spans or log records cannot be read.
            FormatError: it is not a request, or nothing in it can be read.
        """
        if isinstance(item, Mapping):
            traces, logs = json_wire.traces_of(item), json_wire.logs_of(item)
        else:
            traces = item if isinstance(item, WireTraces) else WireTraces([], Rejections())
            logs = item if isinstance(item, WireLogs) else WireLogs([], Rejections())
        rejected = traces.rejections.message() or logs.rejections.message()
        if rejected and not (traces.spans or logs.logs):
            raise FormatError(rejected)
        moment = self.source.modified_at
        records: list[Record] = list(self._take([*map_spans(traces.spans, moment), *map_logs(logs.logs, moment)]))
        if rejected:
            raise PartlyReadError(rejected, records)
        return records

    def finish(self) -> list[Record]:
        """Returns what was held back, the rewards and the episodes."""
        spans = list(self._held.values())
        for span in spans:
            self._note(span)
        why_cut = "no root span is in the file"
        episodes = [each.ended(why_cut, self.source.modified_at) for each in self._summaries.values()]
        return [*spans, *episodes, *map(self._place, self._rewards)]

    def _take(self, mapped: Iterable[Mapped]) -> Iterator[Span]:
        for each in mapped:
            self._rewards.extend(each.rewards)
            span = each.span
            if span is None:
                continue
            held = self._held.get(span.span_id)
            if held is not None:
                self._held[span.span_id] = join_spans(held, span)
            elif len(self._held) < _MAX_HELD and _may_grow(span):
                self._held[span.span_id] = span
            else:
                self._note(span)
                yield span

    def _note(self, span: Span) -> None:
        summary = self._summaries.get(span.trace_id)
        if summary is None:
            summary = self._summaries[span.trace_id] = TraceSummary(span.trace_id, self.source.agent_id)
        summary.add(span)
        if is_root(span):
            self._roots.add(span.span_id)
        name = response_name(span)
        if name is not None and len(self._responses) < _MAX_RESPONSES:
            self._responses.setdefault(name, (span.trace_id, span.span_id))

    def _place(self, reward: Reward) -> Reward:
        trace_id, span_id = self._responses.get(reward.span_id or "", (reward.episode_id, reward.span_id))
        place = None if span_id in self._roots else span_id
        return msgspec.structs.replace(reward, episode_id=trace_id, span_id=place)


def _may_grow(span: Span) -> bool:
    """Returns whether a log record, or the end of the span, may still add to it."""
    said = span.attributes
    return rank(span) < 2 or (span.operation in MODEL_OPERATIONS and not ("input" in said and "output" in said))


def _fits_object(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(value.get(key), list) for key in _KEYS)


def _fits_protobuf(head: bytes) -> bool:
    body = head[_PREFIX_BYTES:] if _is_prefixed(head) else head
    return body[:1] == b"\x0a" and _SPAN_IN_PROTOBUF.search(body) is not None


def _is_prefixed(head: bytes) -> bool:
    """Returns whether messages follow each other with their length, 4 bytes, before them."""
    return head[:1] == b"\0" and head[_PREFIX_BYTES : _PREFIX_BYTES + 1] == b"\x0a"


def _messages(file: IO[bytes]) -> Iterator[WireTraces | WireLogs]:
    """Yields the messages of a protobuf file."""
    prefix = file.read(_PREFIX_BYTES)
    if not (len(prefix) == _PREFIX_BYTES and prefix[:1] == b"\0"):
        yield _message(prefix + _bounded(file, _MAX_BYTES))
        return
    while prefix:
        size = int.from_bytes(prefix, "big")
        body = _bounded(file, size) if size <= _MAX_BYTES else b""
        if len(prefix) < _PREFIX_BYTES or len(body) < size or size > _MAX_BYTES:
            raise FormatError(f"the file is cut off or damaged: a message of {size:,} bytes is not whole")
        yield _message(body)
        prefix = file.read(_PREFIX_BYTES)


def _bounded(file: IO[bytes], size: int) -> bytes:
    data = file.read(min(size, _MAX_BYTES) + (size == _MAX_BYTES))
    if len(data) > _MAX_BYTES:
        raise FormatError(f"the file is one protobuf message of more than {_MAX_BYTES:,} bytes; split it")
    return data


def _message(body: bytes) -> WireTraces | WireLogs:
    """Returns what a message holds. Nothing says whether it is of traces or of logs: one of them can be read."""
    try:
        traces = protobuf.read_traces(body)
    except FormatError as error:
        logs = _logs(body)
        if logs is None:
            raise error
        return logs
    return traces if traces.spans else _logs(body) or traces


def _logs(body: bytes) -> WireLogs | None:
    try:
        logs = protobuf.read_logs(body)
    except FormatError:
        return None
    return logs if any(each.trace_id or each.event_name for each in logs.logs) else None


_LOOKS_FOR = "resourceSpans or resourceLogs"
OTLP = TraceFormat("otlp", f"lines of JSON with {_LOOKS_FOR}", _fits_object, OtlpReader)
OTLP_DOCUMENT = TraceFormat("otlp-json", f"an object with {_LOOKS_FOR}", _fits_object, OtlpReader, shape="document")
OTLP_PROTOBUF = TraceFormat(
    "otlp-protobuf",
    "an OTLP request in protobuf",
    _fits_protobuf,
    OtlpReader,
    shape="archive",
    items=_messages,
)
