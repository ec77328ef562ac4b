"""Writing records and knowing how many of them are new."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from learnloop.core.records import Record
from learnloop.store.insert import insert_records
from learnloop.store.mapping import fields_of
from learnloop.store.queries.records import count_records
from learnloop.store.store import Store

Place = Callable[[Connection, Sequence[Record]], Sequence[Record]]
"""Gives what is written in the place of a batch, for a connection that sees what is there already."""


def write_new(store: Store, batch: Sequence[Record], place: Place | None = None) -> int:
    """Writes a batch durably, all or none, and returns how many of its records the store did not have.

    Args:
        store: where to.
        batch: records; one that is there already changes nothing.
        place: what they become; None: they are written as they are.

    Raises:
        LearnloopError: as ``Store.write``.
    """
    keys: dict[type[Record], set[str]] = {}
    for record in batch:
        keys.setdefault(type(record), set()).add(getattr(record, fields_of(type(record))[0]))

    def write(connection: Connection) -> int:
        present = sum(count_records(connection, kind, {fields_of(kind)[0]: wanted}) for kind, wanted in keys.items())
        insert_records(connection, batch if place is None else place(connection, batch))
        return sum(map(len, keys.values())) - present

    return store.run(write)
