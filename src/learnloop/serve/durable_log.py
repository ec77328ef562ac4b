"""What is written before an answer goes out: the records of requests that come together share one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future

from learnloop.core.errors import ConflictError, LearnloopError, NotFoundError, UsageError
from learnloop.core.records import Record
from learnloop.store import Store

_FAULTS = (ConflictError, NotFoundError, UsageError)
"""Failures of a record, not of the place."""

Waiting = tuple[Sequence[Record], asyncio.Future[None]]


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
        if not self._is_sending:
            self._is_sending = True
            self._loop.call_soon(self._send)  # whatever else comes within this turn of the loop goes with it
        done: asyncio.Future[None] = self._loop.create_future()
        self._gathered.append((records, done))
        await done

    def _send(self) -> None:
        gathered, self._gathered = self._gathered, []
        self._is_sending = bool(gathered)
        if gathered:
            self._submit(gathered)

    def _submit(self, batch: list[Waiting]) -> None:
        try:
            written = self._store.submit([record for records, _ in batch for record in records])
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
    for _, done in batch:
        if done.done():  # whoever waited is gone
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
