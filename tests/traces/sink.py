"""A sink that keeps what it is given, for the tests of the recorder."""

from __future__ import annotations

from learnloop.core.records import Episode, Record, Span


class Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def __call__(self, record: Record) -> bool:
        self.records.append(record)
        return True

    def spans(self) -> dict[str, Span]:
        return {record.name: record for record in self.records if isinstance(record, Span)}

    def episodes(self) -> list[Episode]:
        return [record for record in self.records if isinstance(record, Episode)]
