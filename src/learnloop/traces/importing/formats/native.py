"""learnloop's own format: one record a line, ``type`` says which; the first line names the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from learnloop.core.errors import FormatError, one_of
from learnloop.core.records import Agent, Decision, Episode, Record, Reward, Span, Task
from learnloop.traces.importing.reader import ItemReader, Line, TraceFormat, convert

SCHEMA = "learnloop.records/v1"
TYPES: Mapping[str, type[Record]] = {
    "agent": Agent,
    "task": Task,
    "episode": Episode,
    "span": Span,
    "decision": Decision,
    "reward": Reward,
}
_NAMES = {kind: name for name, kind in TYPES.items()}


def encode(record: Record) -> bytes:
    """Returns ``record`` as one line of the format, without the line's end."""
    fields: dict[str, Any] = msgspec.structs.asdict(record)
    return msgspec.json.encode({"type": _NAMES[type(record)], **fields})


def header() -> bytes:
    """Returns the first line of a file."""
    return msgspec.json.encode({"schema": SCHEMA})


class NativeReader(ItemReader):
    """Reads learnloop's own records."""

    format_name = "learnloop"

    def read(self, line: Line) -> list[Record]:
        """Returns the one record of ``line``, none for the header."""
        if "schema" in line:
            if line["schema"] != SCHEMA:
                raise FormatError(f"schema {line['schema']!r} is not {SCHEMA!r}; write the file with this learnloop")
            return []
        given = line.get("type")
        kind = TYPES.get(given) if isinstance(given, str) else None
        if kind is None:
            raise FormatError(f"type {line.get('type')!r} is not one of {one_of(TYPES)}")
        record = convert({name: value for name, value in line.items() if name != "type"}, kind)
        if isinstance(record, Decision):
            _check_decision(record)
        return [record]


def _check_decision(decision: Decision) -> None:
    """Refuses a decision that contradicts itself: off-policy evaluation would believe it."""
    if decision.action not in decision.actions:
        raise FormatError(f"action {decision.action!r} is not one of the actions {one_of(decision.actions)}")
    if decision.propensity is not None and not 0.0 < decision.propensity <= 1.0:
        raise FormatError(f"propensity {decision.propensity} is not above 0 and at most 1; write null where not known")
    for field, values in (("mask", decision.mask), ("probabilities", decision.probabilities)):
        if values is not None and len(values) != len(decision.actions):
            raise FormatError(f"{field} has {len(values)} entries for {len(decision.actions)} actions")


def _fits(line: Line) -> bool:
    return line.get("schema") == SCHEMA or (isinstance(line.get("type"), str) and line["type"] in TYPES)


NATIVE = TraceFormat("learnloop", f'"schema": "{SCHEMA}" or "type"', _fits, NativeReader)
