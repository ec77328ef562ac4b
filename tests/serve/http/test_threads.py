"""Calls that block: bounded, and never on the event loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from learnloop.serve.http.problems import Problem
from learnloop.serve.http.threads import Threads
from tests.waiting import PATIENCE_SECONDS


def test_results_and_errors_come_back() -> None:
    async def main() -> None:
        threads = Threads(2, 10, "tiny")
        threads.start()
        names = await asyncio.gather(*(threads.call(lambda: threading.current_thread().name) for _ in range(8)))
        assert all(name.startswith("tiny-") for name in names)
        assert await threads.call(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await threads.call(divmod, 1, 0)
        threads.close(1.0)

    asyncio.run(main())


def test_more_than_can_wait_is_refused() -> None:
    async def main() -> None:
        threads, gate = Threads(1, 2), threading.Event()
        threads.start()
        waiting = [asyncio.ensure_future(threads.call(gate.wait, PATIENCE_SECONDS)) for _ in range(3)]
        await asyncio.sleep(0)  # each has a place now
        with pytest.raises(Problem) as raised:
            await threads.call(gate.wait, PATIENCE_SECONDS)
        assert (raised.value.status, raised.value.headers) == (503, {"retry-after": "1"})
        waiting[2].cancel()
        gate.set()
        assert await asyncio.gather(*waiting[:2]) == [True, True]
        assert await threads.call(gate.wait, PATIENCE_SECONDS)
        threads.close(1.0)

    asyncio.run(main())


def test_a_call_that_hangs_is_left_behind(tmp_path: Path) -> None:
    async def main() -> None:
        threads = Threads(1, 1)
        threads.start()
        begun = threading.Event()
        waiting = asyncio.ensure_future(threads.call(lambda: begun.set() or threading.Event().wait(30)))  # type: ignore[func-returns-value]
        while not begun.is_set():
            await asyncio.sleep(0.001)
        threads.close(0.1)
        waiting.cancel()

    asyncio.run(main())
