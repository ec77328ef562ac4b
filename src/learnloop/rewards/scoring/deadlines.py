"""Calls of functions that others wrote: each under a deadline, in a thread of its own.

What it covers: a function that raises anything, that does not come back in time, or that forks. A function that hangs
is left behind as a daemon thread. What it does not cover: a function that holds Python's lock in C code (a regular
expression without an end) or changes this process; code that is not trusted belongs into ``learnloop.sandbox``.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")

_STATE = threading.local()


def _note_fork() -> None:
    _STATE.num_forks = getattr(_STATE, "num_forks", 0) + 1


os.register_at_fork(after_in_parent=_note_fork)


class Call(Generic[Result]):
    """One call of a function in a thread of its own.

    Attributes:
        problem: why there is no result; None: there is one, or it still runs.
        is_late: whether it did not come back in time.
    """

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self._ended = threading.Event()
        self._result: Result | None = None
        self.problem: str | None = None
        self.is_late = False

    def run(self, timeout_seconds: float) -> Result | None:
        """Returns what the function returned; None also where ``problem`` says that there is nothing.

        An interrupt of the user's reaches the caller; what the function raises, ``SystemExit`` included, does not.
        """
        try:
            threading.Thread(target=self._work, args=(os.getpid(),), name="learnloop-reward", daemon=True).start()
        except RuntimeError as error:  # the system has no more threads
            self.problem = f"could not be called: {error}"
            return None
        if not self._ended.wait(timeout_seconds):
            self.is_late = True
            self.problem = f"did not come back within {timeout_seconds:g} seconds"
            return None
        return self._result

    def _work(self, process: int) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - whatever another's function raises ends neither us nor the run
            self.problem = f"raised {''.join(traceback.format_exception_only(error)).strip()[:300]}"
        finally:
            if os.getpid() != process:
                os._exit(0)  # a child that the function forked must not go on in our code
            if getattr(_STATE, "num_forks", 0):
                self.problem = "forked this process; a reward function must not"
            self._ended.set()
