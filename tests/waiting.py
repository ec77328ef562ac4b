"""Waiting for other threads and processes on a machine however busy, and what work costs on it.

A test waits for what it wants to see, never for a time. Deadlines here are no claims: they only end a test that fails.
What a test says of cost is said in seconds of the processor, which others that run do not use up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
"""How long is waited for what a machine with nothing else to do has ready in a moment."""


def eventually(check: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """Returns what ``check`` returns as soon as that is true, and what it returned last where it never was."""
    deadline = time.monotonic() + seconds
    while not (found := check()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def settled(read: Callable[[], T], quiet_seconds: float = 0.5) -> T:
    """Returns what ``read`` returns once it has returned nothing else for so long."""
    last = read()
    since = begun = time.monotonic()
    while time.monotonic() - since < quiet_seconds and time.monotonic() - begun < PATIENCE_SECONDS:
        time.sleep(0.02)
        if (found := read()) != last:
            last, since = found, time.monotonic()
    return last


def _processor_seconds() -> float:
    """Returns the time of this process, and of its children that have ended."""
    return time.process_time() + sum(os.times()[2:4])


@contextmanager
def costs_at_most(seconds: float) -> Iterator[None]:
    """Fails where what is inside takes more than so many seconds of processor time, of its child processes too."""
    began = _processor_seconds()
    yield
    spent = _processor_seconds() - began
    assert spent < seconds, f"{spent:.2f} s of the processor, not {seconds:g}"


def is_running(process_id: int) -> bool:
    """Returns whether there is such a process, other than one that ended and was not asked about yet (a zombie)."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
