"""Waiting for events: a condition inside the process, LISTEN on PostgreSQL, polling for other processes on SQLite."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

from learnloop.store.engine import Place
from learnloop.store.insert import CHANNEL

_POLL_SECONDS = 0.1


class Feed:
    """Wakes those who wait for events.

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
