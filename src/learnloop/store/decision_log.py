"""Decisions to SQLite, each batch by one statement that is its own transaction.

A busy event loop gives the interpreter back late, and the usual way to write takes it back after each of some ten
calls of the driver: then most of a commit is waiting. Here the driver is called once; the events that report the
decisions are written by a trigger of this connection, and SQLite commits when the statement ends.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Callable, Sequence

from learnloop.core.records import Decision, Record
from learnloop.store.engine import Place, Transform, prepare_sqlite_writer
from learnloop.store.insert import REPORTS
from learnloop.store.mapping import filled, insert_statement, to_rows

MAX_RECORDS = 128
"""Larger batches go the usual way, whose cost does not matter to them."""


class DecisionLog:
    """A connection of its own for decisions; the writer's thread writes, any may close.

    Args:
        place: a database file of SQLite, whose tables are there.
        transform: what records become before they are written.
    """

    def __init__(self, place: Place, transform: Transform | None) -> None:
        self._file = place.file_uri
        self._transform: Callable[[Record], Record] = transform or (lambda record: record)
        self._connection: sqlite3.Connection | None = None
        self._agents: set[str] = set()
        self._lock = threading.Lock()  # closing waits for the statement that runs

    def write(self, records: Sequence[Record]) -> bool:
        """Writes ``records``, all or none, and returns True when they are on the disk; False: nothing was done.

        It does nothing where there is something else among them than decisions, or a new agent, or too many.

        Raises:
            sqlite3.Error, UsageError: it failed and nothing was written; the usual way finds out why.
        """
        if not 0 < len(records) <= MAX_RECORDS or any(type(record) is not Decision for record in records):
            return False
        decisions = [self._transform(record) for record in records]
        with self._lock:
            try:
                return self._insert(self._connection or self._open(), decisions)
            except BaseException:
                self._forget()  # the disk, the file or its agents may be others by now: the next write looks again
                raise

    def close(self) -> None:
        """Closes the connection; the next write opens another."""
        with self._lock:
            self._forget()

    def _insert(self, connection: sqlite3.Connection, decisions: Sequence[Record]) -> bool:
        if not self._knows_agents(connection, decisions):
            return False
        rows = to_rows(Decision, decisions, "sqlite")
        statement = filled(insert_statement(Decision, "sqlite"), len(rows[0]), len(rows))
        connection.execute(statement, list(itertools.chain.from_iterable(rows)))
        return True

    def _forget(self) -> None:
        self._agents.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._file, uri=True, isolation_level=None, check_same_thread=False, cached_statements=MAX_RECORDS
        )
        try:
            prepare_sqlite_writer(connection)
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(_event_trigger())
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _knows_agents(self, connection: sqlite3.Connection, decisions: Sequence[Record]) -> bool:
        for decision in decisions:
            agent_id = decision.agent_id if isinstance(decision, Decision) else ""
            if agent_id in self._agents:
                continue
            if connection.execute("SELECT 1 FROM agents WHERE agent_id = ?", (agent_id,)).fetchone() is None:
                return False
            self._agents.add(agent_id)
        return True


def _event_trigger() -> str:
    """Returns the statement that makes a connection report decisions as ``insert_records`` does."""
    payload = ", ".join(f"'{name}', NEW.{name}" for name in REPORTS[Decision].fields)
    return f"""
        CREATE TEMP TRIGGER decision_events AFTER INSERT ON main.decisions BEGIN
            INSERT INTO events (kind, subject, payload, created_at) VALUES (
                '{REPORTS[Decision].kind}',
                NEW.decision_id,
                json_object({payload}),
                CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)
            );
        END
    """
