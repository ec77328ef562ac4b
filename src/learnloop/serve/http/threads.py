"""A bounded number of threads for calls that block, so that the event loop never does.

Daemon threads: a call that hangs in a database does not keep the server from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from learnloop.serve.http.problems import Problem

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Threads that run what they are given, in its order.

    Args:
        num_threads: how many calls run at once.
        num_waiting: how many more may wait.
        name: what the names of the threads begin with.
    """

    def __init__(self, num_threads: int, num_waiting: int, name: str = "threads") -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._limit = num_threads + num_waiting
        self._num_pending = 0
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(num_threads)
        ]

    def start(self) -> None:
        """Begins to work."""
        for thread in self._threads:
            thread.start()

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns what ``function`` returns, called in one of the threads.

        Raises:
            Problem: 503, too many calls wait already.
        """
        if self._num_pending >= self._limit:
            raise Problem(503, "the server is busy; try again later", kind="busy")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._num_pending += 1
        self._queue.put(partial(self._work, loop, future, partial(function, *args, **kwargs)))
        return await future

    def close(self, timeout_seconds: float) -> None:
        """Ends the threads when they have done what waits; those that take longer are left behind."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout_seconds / len(self._threads))

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work()

    def _work(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], function: Callable[[], T]) -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - goes to the one who waits for it
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._settle, future, result, failure)

    def _settle(self, future: asyncio.Future[T], result: T, failure: BaseException | None) -> None:
        self._num_pending -= 1
        if future.cancelled():
            return
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
