"""A background thread that keeps the policies of a loop in step with the log, and their checkpoints fresh."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence

from learnloop.core.errors import LearnloopError
from learnloop.decisions import DecisionPoint

SYNC_SECONDS = 2.0
"""How often the log is looked at for rewards that other processes gave."""

Points = Callable[[], Sequence[DecisionPoint]]


class Keeper:
    """Syncs and checkpoints decision points until it is stopped, or until nobody holds it any more."""

    def __init__(self, points: Points) -> None:
        self.last_error: str | None = None
        self._points = points
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread, unless it runs."""
        if self._thread is None:
            work = weakref.WeakMethod(self.keep)
            self._thread = threading.Thread(target=_run, args=(work, self._stop), name="learnloop-keeper", daemon=True)
            self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """Ends the thread and waits for it, at most so long."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def keep(self) -> None:
        """Syncs each point once and saves those that have learned much; a failure is noted and tried again later."""
        for point in self._points():
            try:
                point.sync()
                if point.checkpoint_due():
                    point.checkpoint()
            except LearnloopError as error:  # the log has everything; the next turn tries again
                self.last_error = f"keeping {point.name}: {error}"


def _run(work: weakref.WeakMethod[Callable[[], None]], stop: threading.Event) -> None:
    while not stop.wait(SYNC_SECONDS):
        keep = work()
        if keep is None:
            return
        keep()
        del keep
