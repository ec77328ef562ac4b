"""The one thread that writes: it takes what is queued, commits it as one transaction and then acknowledges."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection

from learnloop.core.errors import (
    AuthError,
    ConflictError,
    CorruptError,
    LearnloopError,
    StoreError,
    StoreLockedError,
    UnreachableError,
)
from learnloop.core.records import Record

_MAX_RECORDS = 8_192
"""How many records one transaction takes."""
_LINGER_SECONDS = 0.01
"""How long captured records wait for company; what is to be acknowledged does not wait."""
_LINGER_RECORDS = 1_024
_MIN_BACKOFF_SECONDS = 0.02
_MAX_BACKOFF_SECONDS = 0.5

_HOLDS = (UnreachableError, StoreError, AuthError, CorruptError)
"""Failures of the place, not of a record: captured records wait until it is well again."""


class WriteJob:
    """Work whose end somebody waits for: records to write, or a function to run in a transaction of its own."""

    __slots__ = ("function", "future", "records", "submitted")

    def __init__(self, records: Sequence[Record], function: Callable[[Connection], Any] | None = None) -> None:
        self.records = records
        self.function = function
        self.future: Future[Any] = Future()
        self.submitted = time.monotonic()


Item = Record | WriteJob
Insert = Callable[[Connection, Sequence[Record]], None]


class Patience(NamedTuple):
    """How long acknowledged work is tried again before it fails."""

    locked_seconds: float = 10.0
    unreachable_seconds: float = 30.0


class WriteTarget(NamedTuple):
    """What the writer writes to."""

    begin: Callable[[], AbstractContextManager[Connection]]
    """Gives a connection in a transaction that commits at the end."""
    insert: Insert
    translate: Callable[[BaseException], LearnloopError | None]
    committed: Callable[[], None]
    """Called after each commit."""
    insert_at_once: Callable[[Sequence[Record]], bool] | None = None
    """A shorter way for some batches: commits all of one and returns True, or does nothing and returns False."""


class StoreCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the records given to a store since it was opened."""

    num_offered: int
    """Records given to ``offer``."""
    num_dropped: int
    """Of these, those not taken: the queue was full, or the store closed."""
    num_written: int
    """Records that are durable, whether offered, written or submitted."""
    num_failed: int
    """Offered records that the database refused."""
    num_commits: int
    last_error: str | None
    """The last failure of an offered record or of the database."""


class Writer:
    """A thread with a queue; ``offer`` never waits, ``submit`` gives a future that is set after the commit."""

    def __init__(self, target: WriteTarget, *, queue_size: int, patience: Patience) -> None:
        self._target = target
        self._patience = patience
        self._queue: deque[Item] = deque()
        self._limit = queue_size
        """How long the queue may be when something is offered; -1: nothing is taken any more."""
        self._wake = threading.Event()
        self._idle = False
        self._lock = threading.Lock()
        self._closing = False
        self._end = float("inf")
        """When closing gives up, on the monotonic clock."""
        self._num_waiting = 0
        self._num_taken = self._num_dropped = self._num_written = self._num_failed = self._num_commits = 0
        self._last_error: LearnloopError | None = None
        self._unreported = 0
        self._backoff = _MIN_BACKOFF_SECONDS
        self.why_closed = "the store is closed; open it again"
        _writers.add(self)
        self._thread = threading.Thread(target=self._run, name="learnloop-writer", daemon=True)
        self._thread.start()

    def offer(self, record: Record) -> bool:
        """Queues ``record`` and returns True; False, counted, when the queue is full or closed."""
        queue = self._queue
        if len(queue) >= self._limit:
            with self._lock:
                self._num_dropped += 1
            return False
        queue.append(record)
        if self._idle:
            self._wake.set()
        return True

    def submit(self, job: WriteJob) -> Future[Any]:
        """Queues ``job`` and returns its future, which is set when its transaction is durable or has failed.

        Raises:
            ConflictError: the writer is closed.
        """
        with self._lock:
            if self._limit < 0:
                raise ConflictError(self.why_closed)
            self._queue.append(job)
            self._num_waiting += 1
        self._wake.set()
        return job.future

    def counters(self) -> StoreCounters:
        """Returns what became of the work so far."""
        queued = sum(1 for item in list(self._queue) if not isinstance(item, WriteJob))
        dropped = self._num_dropped
        if self._limit < 0 and not self._thread.is_alive():
            dropped += queued
        return StoreCounters(
            num_offered=self._num_taken + queued + self._num_dropped,
            num_dropped=dropped,
            num_written=self._num_written,
            num_failed=self._num_failed,
            num_commits=self._num_commits,
            last_error=None if self._last_error is None else str(self._last_error),
        )

    def take_refusals(self) -> tuple[int, LearnloopError | None]:
        """Returns how many captured records were refused since the last call, and the last reason."""
        with self._lock:
            number, self._unreported = self._unreported, 0
        return number, self._last_error

    def close(self, timeout_seconds: float) -> None:
        """Takes nothing more, writes what is queued, ends the thread; waits at most ``timeout_seconds``."""
        with self._lock:
            self._limit = -1
            self._closing = True
            self._end = time.monotonic() + timeout_seconds
        self._wake.set()
        self._thread.join(timeout_seconds + _MAX_BACKOFF_SECONDS)

    def abandon(self) -> None:
        """Forgets thread and queue: this is a forked child, and they belong to its parent."""
        self._queue = deque()
        self._limit = -1
        self._idle = False
        self._lock = threading.Lock()
        self.why_closed = "the store was opened in the parent process; open it again in this one"

    @property
    def is_abandoned(self) -> bool:
        """Whether this is a forked child's copy."""
        return self._limit < 0 and not self._closing

    def _run(self) -> None:
        while True:
            self._wait()
            items = self._take()
            if items:
                self._process(items)
            elif self._closing:
                return

    def _wait(self) -> None:
        """Returns when there is something to do; lingers where only captured records wait."""
        self._wake.clear()
        self._idle = True
        if not self._queue and not self._closing:
            self._wake.wait()
            self._wake.clear()
        self._idle = False
        if self._num_waiting == 0 and len(self._queue) < _LINGER_RECORDS and not self._closing:
            self._wake.wait(_LINGER_SECONDS)

    def _take(self) -> list[Item]:
        """Returns what the next transaction writes: records of any number, or one function alone."""
        queue = self._queue
        items: list[Item] = []
        size = 0
        while queue and size < _MAX_RECORDS:
            item = queue[0]
            if isinstance(item, WriteJob):
                if item.function is not None and items:
                    break
                queue.popleft()
                with self._lock:
                    self._num_waiting -= 1
                if item.future.done() or not (item.future.running() or item.future.set_running_or_notify_cancel()):
                    continue
                items.append(item)
                size += len(item.records)
                if item.function is not None:
                    break
            else:
                items.append(queue.popleft())
                size += 1
                self._num_taken += 1
        return items

    def _process(self, items: list[Item]) -> None:
        first = items[0]
        if isinstance(first, WriteJob) and first.function is not None:
            self._run_function(first, first.function)
            return
        try:
            failures = self._write(items)
        except LearnloopError as failure:
            self._postpone(items, failure)
            return
        self._backoff = _MIN_BACKOFF_SECONDS
        self._num_commits += 1
        self._settle(items, failures)
        self._target.committed()

    def _run_function(self, job: WriteJob, function: Callable[[Connection], Any]) -> None:
        entered = False
        try:
            with self._target.begin() as connection:
                entered = True
                result = function(connection)
        except BaseException as error:  # noqa: BLE001 - goes to the one who waits for it
            failure = self._target.translate(error)
            if isinstance(failure, _HOLDS) and not entered:
                self._postpone([job], failure)
            else:
                job.future.set_exception(failure or error)
            return
        self._backoff = _MIN_BACKOFF_SECONDS
        self._num_commits += 1
        job.future.set_result(result)
        self._target.committed()

    def _write(self, items: Sequence[Item]) -> dict[int, LearnloopError]:
        """Writes all in one transaction; returns what went wrong by the index of the item.

        Raises:
            LearnloopError: the place failed; nothing was written.
        """
        try:
            if self._target.insert_at_once is not None and self._target.insert_at_once(_records(items)):
                return {}
            with self._target.begin() as connection:
                self._target.insert(connection, _records(items))
            return {}
        except Exception as error:  # noqa: BLE001 - raised, or found again below and given to whom it belongs
            self._raise_if_place_failed(error)
        failures: dict[int, LearnloopError] = {}
        try:
            with self._target.begin() as connection:
                self._write_halves(connection, items, 0, failures)
        except Exception as error:
            self._raise_if_place_failed(error)
            raise UnreachableError(f"the writer failed: {error!r}") from error
        return failures

    def _write_halves(
        self, connection: Connection, items: Sequence[Item], start: int, failures: dict[int, LearnloopError]
    ) -> None:
        """Writes what can be written of ``items``, each by a savepoint, halving down to those that cannot."""
        try:
            with connection.begin_nested():
                self._target.insert(connection, _records(items))
            return
        except Exception as error:  # noqa: BLE001 - recorded for the one item that it comes from
            failure = self._raise_if_place_failed(error)
            if len(items) == 1:
                failures[start] = failure
                return
        middle = len(items) // 2
        self._write_halves(connection, items[:middle], start, failures)
        self._write_halves(connection, items[middle:], start + middle, failures)

    def _raise_if_place_failed(self, error: Exception) -> LearnloopError:
        failure = self._target.translate(error) or LearnloopError(f"{type(error).__name__}: {error}")
        if isinstance(failure, _HOLDS):
            raise failure from error
        return failure

    def _settle(self, items: Sequence[Item], failures: dict[int, LearnloopError]) -> None:
        """Tells everyone how it ended; runs after the commit."""
        for index, item in enumerate(items):
            failure = failures.get(index)
            if isinstance(item, WriteJob):
                if failure is None:
                    self._num_written += len(item.records)
                    item.future.set_result(None)
                else:
                    item.future.set_exception(failure)
            elif failure is None:
                self._num_written += 1
            else:
                self._refuse(failure)

    def _refuse(self, failure: LearnloopError) -> None:
        with self._lock:
            self._num_failed += 1
            self._unreported += 1
            self._last_error = failure

    def _postpone(self, items: Sequence[Item], failure: LearnloopError) -> None:
        """Puts items back in their order, except work whose time is over; then waits a little."""
        self._num_taken -= sum(1 for item in items if not isinstance(item, WriteJob))
        self._last_error = failure
        with self._lock:
            self._num_waiting += sum(1 for item in items if isinstance(item, WriteJob))
            self._queue.extendleft(reversed(items))
            if self._num_waiting:
                self._fail_overdue(failure)
            if self._closing and not self._num_waiting:
                self._give_up()
        time.sleep(self._backoff)
        self._backoff = min(2 * self._backoff, _MAX_BACKOFF_SECONDS)

    def _fail_overdue(self, failure: LearnloopError) -> None:
        """Takes work whose time is over out of the queue, also where it stands behind captured records."""
        kept: list[Item] = []
        for _ in range(len(self._queue)):
            item = self._queue.popleft()
            if not isinstance(item, WriteJob) or self._has_time(item, failure):
                kept.append(item)
                continue
            self._num_waiting -= 1
            if item.future.running() or item.future.set_running_or_notify_cancel():
                item.future.set_exception(failure)
        self._queue.extendleft(reversed(kept))

    def _give_up(self) -> None:
        """Drops what cannot be written before the end; the last flush has told so."""
        self._num_dropped += len(self._queue)
        self._queue.clear()

    def _has_time(self, job: WriteJob, failure: LearnloopError) -> bool:
        if time.monotonic() >= self._end:
            return False
        waited = time.monotonic() - job.submitted
        if isinstance(failure, StoreLockedError):
            return waited < self._patience.locked_seconds
        return isinstance(failure, UnreachableError) and waited < self._patience.unreachable_seconds


def _records(items: Sequence[Item]) -> list[Record]:
    records: list[Record] = []
    for item in items:
        if isinstance(item, WriteJob):
            records.extend(item.records)
        else:
            records.append(item)
    return records


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()
_orphans: list[Writer] = []
"""In a forked child: copies whose connections must not be closed here."""


def _abandon_all() -> None:
    for writer in list(_writers):
        writer.abandon()
        _orphans.append(writer)


os.register_at_fork(after_in_child=_abandon_all)
