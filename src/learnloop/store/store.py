"""The store: one database of records, written by one thread of this process and read from any."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, TypeVarTuple

from sqlalchemy import Connection

from learnloop.core.errors import ConflictError, NotFoundError, StoreError, UnreachableError
from learnloop.core.lifecycles import Closing
from learnloop.core.records import Event, Record, Reward
from learnloop.store.blobs import BlobStore
from learnloop.store.decision_log import DecisionLog
from learnloop.store.engine import Connections, Place, Transform, check_file, parse_url
from learnloop.store.failures import translate, translated
from learnloop.store.insert import CHANNEL, insert_records, take_write_lock
from learnloop.store.mapping import fields_of
from learnloop.store.migrate import ensure_head
from learnloop.store.queries.records import ANY, Where, count_records, find_record, last_sequence, select_records
from learnloop.store.queries.rewards import rewards_after
from learnloop.store.wal_checkpoints import WalCheckpoints
from learnloop.store.writer import Patience, StoreCounters, WriteJob, Writer, WriteTarget

R = TypeVar("R", bound=Record)
T = TypeVar("T")
P = ParamSpec("P")
Given = TypeVarTuple("Given")
_POLL_SECONDS = 0.1
"""So often SQLite is asked for events of other processes."""


class Store(Closing):
    """Records in SQLite or PostgreSQL. What ``write`` acknowledges is on the disk; ``offer`` never waits.

    Safe to use from any thread. After a fork the child must open its own. Opened by ``Store.open``.

    Attributes:
        url: as given to ``open``.
        backend: ``sqlite`` or ``postgresql``.
        blobs: the files beside it; None where no folder was given.
        revision: the revision of its schema.
    """

    def __init__(self, url: str, connections: Connections, blobs: BlobStore | None, revision: str) -> None:
        self.url = url
        self.backend = connections.place.backend
        self.blobs = blobs
        self.revision = revision
        self._connections = connections
        self._place = connections.place
        self._feed = _Feed(self._place, lambda: self.last_sequence(Event))
        is_plain_file = self._place.path is not None and not self._place.url.query
        self._decisions = DecisionLog(self._place, connections.transform) if is_plain_file else None
        self._checkpoints = WalCheckpoints(self._place) if is_plain_file else None
        self._writer: Writer
        self._closed = False

    @classmethod
    def open(
        cls,
        url: str,
        *,
        blobs: Path | None = None,
        upgrade: bool = True,
        queue_size: int = 65_536,
        patience: Patience = Patience(),  # noqa: B008 - a NamedTuple, immutable
        transform: Transform | None = None,
    ) -> Store:
        """Returns the store at ``url``; a new database gets its tables, an older one is brought up to date.

        Args:
            url: ``sqlite:///path/to/file.db``, ``sqlite:///:memory:`` or ``postgresql://user@host/database``.
            blobs: the folder for blob files.
            upgrade: whether an older database may be migrated.
            queue_size: how many offered records may wait.
            patience: how long writing is tried again while the database is locked or unreachable.
            transform: returns what becomes of a record before it is written, by the writer's thread; one that it
                raises for is not stored.

        Raises:
            UsageError: ``url`` is not one, or names a folder.
            NotFoundError: the folder of the file is not there.
            ConflictError: the database is older and ``upgrade`` is False.
            SchemaVersionError: the database is newer than this learnloop, or not its own.
            CorruptError: the file is not a database.
            UnreachableError: it does not answer, or is locked.
            StoreReadOnlyError, StoreFullError: the disk refuses.
        """
        place = parse_url(url)
        check_file(place)
        connections = Connections(place, transform)
        try:
            revision = _open_schema(connections, upgrade, patience)
        except BaseException:
            connections.close()
            raise
        store = cls(url, connections, None if blobs is None else BlobStore(blobs), revision)
        store._start(queue_size, patience)
        return store

    def _start(self, queue_size: int, patience: Patience) -> None:
        target = WriteTarget(
            begin=self._connections.writing,
            insert=insert_records,
            translate=lambda error: translate(error, self._place.name),
            committed=self._committed,
            insert_at_once=None if self._decisions is None else self._decisions.write,
        )
        self._writer = Writer(target, queue_size=queue_size, patience=patience)
        self.offer = self._writer.offer  # type: ignore[method-assign]  # one call less on the path of the agent
        atexit.register(self.close)

    def _committed(self) -> None:
        self._feed.committed()
        if self._checkpoints is not None:
            self._checkpoints.committed()

    def write(self, records: Iterable[Record], *, timeout_seconds: float = 30.0) -> None:
        """Writes all of ``records`` or none, and returns when they are on the disk.

        A record whose key is there already changes nothing, except that a running episode takes over all but its
        trace and its source.

        Raises:
            UsageError: a record cannot be stored.
            ConflictError: a unique value, such as a policy's version number, is taken by another record.
            NotFoundError: a record refers to an agent, task or version that is not there.
            StoreLockedError, UnreachableError, StoreFullError, StoreReadOnlyError: the database or the disk refuses.
        """
        self._await(self.submit(records), timeout_seconds)

    def submit(self, records: Iterable[Record]) -> Future[None]:
        """Does as ``write`` and returns at once; the future is set when the records are on the disk."""
        return self._writer.submit(WriteJob(list(records)))

    def offer(self, record: Record) -> bool:
        """Queues ``record`` for writing and returns whether it was taken; never waits and never raises.

        The record is encoded later by another thread, so what it holds must not change any more.
        """
        return self._writer.offer(record)

    def flush(self, timeout_seconds: float = 30.0) -> None:
        """Returns when all that was offered before is on the disk.

        Raises:
            LearnloopError: records were refused since the last flush; the message has the last reason.
            UnreachableError: not done in time; what was offered stays queued.
        """
        self._await(self._writer.submit(WriteJob([])), timeout_seconds)
        self._tell_refusals()

    def run(self, fn: Callable[[Connection, *Given], T], *given: *Given, timeout_seconds: float = 30.0) -> T:
        """Runs ``fn`` on the writer's connection, alone in a transaction, and returns its result when it is durable.

        No other writer of the store comes between its reads and its writes. Records are written in it with
        ``insert_records``. What ``fn`` raises rolls the transaction back and is raised here.

        Args:
            fn: what is run, a function of ``store/queries`` for example.
            given: what it is given after the connection.
            timeout_seconds: how long to wait for it.
        """
        result: T = self._await(self.run_later(fn, *given), timeout_seconds)
        return result

    def run_later(self, fn: Callable[[Connection, *Given], T], *given: *Given) -> Future[T]:
        """As ``run``, without waiting: the future is set when the transaction is durable or has failed."""

        def locked(connection: Connection) -> T:
            take_write_lock(connection)
            return fn(connection, *given)

        return self._writer.submit(WriteJob([], locked))

    def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns what ``fn`` returns for a connection that sees one snapshot and cannot write, and what else is given.

        ``fn`` is a function of ``store/queries`` for example, or one that calls some of them.
        """
        with translated(self._place.name):
            if self._writer.is_abandoned or self._closed:
                raise ConflictError(self._writer.why_closed)
            with self._connections.reading() as connection:
                return fn(connection, *args, **kwargs)

    def get(self, kind: type[R], key: str) -> R:
        """Returns the record of ``kind`` with this key.

        Raises:
            NotFoundError: there is none.
        """
        found = self.find(kind, key)
        if found is None:
            raise NotFoundError(
                f"there is no {kind.__name__} with the {fields_of(kind)[0]} {key!r} in {self._place.name}"
            )
        return found

    def find(self, kind: type[R], key: str) -> R | None:
        """Returns the record of ``kind`` with this key, or None."""
        return self.read(find_record, kind, key)

    def select(
        self,
        kind: type[R],
        *,
        where: Where = ANY,
        after: str | int | None = None,
        limit: int = 50,
        descending: bool = False,
    ) -> list[R]:
        """Returns one page of records in the order of their key.

        Args:
            kind: which records.
            where: the value of each named column; a list, tuple or set: one of these; None: not known.
            after: the key of the last record of the page before.
            limit: the most to return, 1 to 10,000.
            descending: from the highest key down.

        Raises:
            UsageError: a column is unknown, or the limit out of range.
        """
        return self.read(select_records, kind, where, after, limit, descending)

    def iterate(
        self, kind: type[R], *, where: Where = ANY, after: str | int | None = None, page: int = 1000
    ) -> Iterator[R]:
        """Yields all records that fit ``where``, or those after a key, in the order of their key, page by page."""
        while True:
            records = self.select(kind, where=where, after=after, limit=page)
            yield from records
            if len(records) < page:
                return
            after = getattr(records[-1], fields_of(kind)[0])

    def count(self, kind: type[Record], *, where: Where = ANY) -> int:
        """Returns how many records fit ``where``."""
        return self.read(count_records, kind, where)

    def events(self, after: int = 0, limit: int = 200) -> list[Event]:
        """Returns the events after that sequence, oldest first; going on from the last misses none."""
        return self.select(Event, after=after, limit=limit)

    def wait_for_events(self, after: int, timeout_seconds: float) -> bool:
        """Returns True as soon as there is an event after that sequence; False when the time is over."""
        with translated(self._place.name):
            return self._feed.wait(after, timeout_seconds)

    def rewards_after(self, sequence: int, *, limit: int = 1000) -> list[tuple[int, Reward]]:
        """Returns rewards that became durable after that one, each with its sequence, oldest first."""
        return self.read(rewards_after, sequence, limit)

    def last_sequence(self, kind: type[Record]) -> int:
        """Returns the sequence of the decision, reward or event that became durable last; 0 where there is none."""
        return self.read(last_sequence, kind)

    def counters(self) -> StoreCounters:
        """Returns what became of the records so far."""
        return self._writer.counters()

    def scrub(self) -> bool:
        """Lets no file of the database keep what was removed or changed; returns whether that is done.

        SQLite's log is written back and emptied, PostgreSQL's tables of traces are vacuumed. False: somebody is
        still reading an old state, do it again later. PostgreSQL's own log and archives keep theirs.
        """
        with translated(self._place.name):
            return self._connections.scrub()

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Writes what is queued and closes; closing twice does nothing.

        Raises:
            LearnloopError: offered records were refused, or could not be written in time.
        """
        if self._closed:
            return
        atexit.unregister(self.close)
        if self._writer.is_abandoned:
            self._closed = True
            return
        deadline = time.monotonic() + timeout_seconds
        last = self._writer.submit(WriteJob([]))
        self._writer.close(timeout_seconds)
        self._closed = True
        try:
            self._await(last, max(0.0, deadline - time.monotonic()))
        finally:
            if self._checkpoints is not None:
                self._checkpoints.close()
            if self._decisions is not None:
                self._decisions.close()
            self._connections.close()
        self._tell_refusals()

    def _tell_refusals(self) -> None:
        number, reason = self._writer.take_refusals()
        if number:
            raise StoreError(f"{number} of the offered records were refused; the last reason: {reason}") from reason

    def _await(self, future: Future[Any], timeout_seconds: float) -> Any:
        try:
            return future.result(timeout_seconds)
        except TimeoutError as error:
            if future.done():  # the work itself raised it
                raise
            future.cancel()
            raise UnreachableError(
                f"{self._place.name} did not confirm within {timeout_seconds:g} s; what was given may still be written"
            ) from error


def _open_schema(connections: Connections, upgrade: bool, patience: Patience) -> str:
    """Returns the revision of the opened database; waits where another process holds it just now."""
    deadline = time.monotonic() + patience.locked_seconds
    while True:
        try:
            with translated(connections.place.name):
                return ensure_head(connections, upgrade=upgrade)
        except UnreachableError:
            if connections.place.backend != "sqlite" or time.monotonic() >= deadline:
                raise
        time.sleep(0.05)


class _Feed:
    """Wakes those who wait for events: in this process, by LISTEN on PostgreSQL, by asking again and again on SQLite.

    Args:
        place: where the store lies.
        last: returns the sequence of the last event, by a new query.
    """

    def __init__(self, place: Place, last: Callable[[], int]) -> None:
        self._place = place
        self._last = last
        self._changed = threading.Condition()

    def committed(self) -> None:
        """Says that this process has just written."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, after: int, timeout_seconds: float) -> bool:
        """Returns True as soon as there is an event with a sequence above ``after``; False when time is over."""
        deadline = time.monotonic() + timeout_seconds
        if self._last() > after:
            return True
        if self._place.backend == "postgresql":
            return self._listen(after, deadline)
        while (left := deadline - time.monotonic()) > 0:
            with self._changed:
                self._changed.wait(min(left, _POLL_SECONDS))
            if self._last() > after:
                return True
        return self._last() > after

    def _listen(self, after: int, deadline: float) -> bool:
        import psycopg

        url = self._place.url.set(drivername="postgresql").render_as_string(hide_password=False)
        with closing(psycopg.connect(url, autocommit=True, connect_timeout=5)) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            while self._last() <= after:  # asked after LISTEN, so that nothing falls between
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                for _ in connection.notifies(timeout=left, stop_after=1):
                    pass
        return True
