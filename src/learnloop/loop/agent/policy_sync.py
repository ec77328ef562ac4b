"""A background thread that keeps the policies of a loop in step with the log, and their checkpoints fresh."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from learnloop.core.errors import LearnloopError
from learnloop.decisions import Policies

SYNC_SECONDS = 2.0
"""How often the log is looked at for rewards and settings that other processes gave."""


class PolicySync:
    """Keeps policies up to date until it is stopped, or until nobody holds it any more."""

    def __init__(self, policies: Policies) -> None:
        self.last_error: str | None = None
        """Why something was not learned or saved yet; None: all was, by the last look."""
        self._policies = policies
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread, unless it runs."""
        if self._thread is None:
            work = weakref.WeakMethod(self.keep)
            self._thread = threading.Thread(target=_run, args=(work, self._stop), name="policy-sync", daemon=True)
            self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """Ends the thread and waits for it, at most so long."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def keep(self) -> None:
        """Brings the policies up to date once; a failure is noted and tried again later."""
        try:
            self._policies.keep()
        except LearnloopError as error:  # the log has everything; the next turn tries again
            self.last_error = f"policies are not up to date: {error}"
        else:
            self.last_error = None


def _run(work: weakref.WeakMethod[Callable[[], None]], stop: threading.Event) -> None:
    while not stop.wait(SYNC_SECONDS):
        keep = work()
        if keep is None:
            return
        keep()
        del keep
