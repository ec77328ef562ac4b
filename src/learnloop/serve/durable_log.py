"""What is written before an answer goes out: the records of requests that come together share one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from learnloop.core.errors import ConflictError, LearnloopError, NotFoundError, UsageError
from learnloop.core.records import Record
from learnloop.store import Store

_FAULTS = (ConflictError, NotFoundError, UsageError)
"""Failures of a record, not of the place."""


class Waiting(NamedTuple):
    """What waits to be on the disk."""

    records: Sequence[Record]
    done: asyncio.Future[Any]
    result: Any
    """What whoever waits gets then."""


class DurableLog:
    """Writes records for coroutines of one event loop without a thread for each.

    What comes while a commit is under way is gathered and given to the writer as one: the busier the server is, the
    more requests share a commit, and the fewer times the two threads wake each other.

    Args:
        store: where they go.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._gathered: list[Waiting] = []
        self._is_sending = False

    async def keep(self, records: Sequence[Record]) -> None:
        """Returns when ``records`` are on the disk: all of them or none.

        Raises:
            LearnloopError: as ``Store.write``.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        self.add(Waiting(records, done, None))
        await done

    def add(self, waiting: Waiting) -> None:
        """Does as ``keep`` and returns at once: ``waiting.done`` is set to its result, or to what went wrong."""
        if not self._is_sending:
            self._is_sending = True
            self._loop.call_soon(self._send)  # whatever else comes within this turn of the loop goes with it
        self._gathered.append(waiting)

    @property
    def is_busy(self) -> bool:
        """Whether a commit is under way, or about to be."""
        return self._is_sending

    def _send(self) -> None:
        gathered, self._gathered = self._gathered, []
        self._is_sending = bool(gathered)
        if gathered:
            self._submit(gathered)

    def _submit(self, batch: list[Waiting]) -> None:
        try:
            written = self._store.submit([record for waiting in batch for record in waiting.records])
        except LearnloopError as error:  # the store is closed
            _settle(batch, error)
            self._send()
            return
        written.add_done_callback(lambda future: self._tell(batch, future))

    def _tell(self, batch: list[Waiting], written: Future[None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._written, batch, written)

    def _written(self, batch: list[Waiting], written: Future[None]) -> None:
        self._send()
        error = written.exception()
        if isinstance(error, _FAULTS) and len(batch) > 1:  # the fault of one of them
            for each in batch:
                self._submit([each])
            return
        _settle(batch, error)


def _settle(batch: list[Waiting], error: BaseException | None) -> None:
    for _, done, result in batch:
        if done.done():  # whoever waited is gone
            continue
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)
