"""Sortable ids: UUID version 7 as text, unique in a process and in order of their making."""

from __future__ import annotations

import os
import random
import re
import threading
import time

from learnloop.core.errors import UsageError

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VARIANT = 0b10 << 62
_lock = threading.Lock()
_last_tick = 0
_random = random.Random()  # its own: a program that seeds the global one must not repeat our ids
os.register_at_fork(after_in_child=_random.seed)


def new_id() -> str:
    """Returns a new UUIDv7 as 36 characters of text.

    Ids of one process sort in the order of their making, also within a millisecond: the 12 bits after the version
    carry the fraction of the millisecond and are counted up when the clock stands still or goes back.

    Source: RFC 9562, section 5.7 and section 6.2, method 3 (replace leftmost random bits with increased clock
    precision).
    """
    global _last_tick
    tick = (time.time_ns() << 12) // 1_000_000  # milliseconds in the high bits, 12 bits of fraction below
    with _lock:
        if tick <= _last_tick:
            tick = _last_tick + 1
        _last_tick = tick
    time_text = f"{tick:015x}"  # 48 bits of milliseconds, 12 bits of fraction
    random_text = f"{_VARIANT | _random.getrandbits(62):016x}"
    return f"{time_text[:8]}-{time_text[8:12]}-7{time_text[12:]}-{random_text[:4]}-{random_text[4:]}"


def check_cursor(after: str | None) -> None:
    """Refuses a cursor that is not an id, so that no page gave it: it would be answered with a page of anything.

    Raises:
        UsageError: it is not an id of learnloop.
    """
    if after is not None and not _ID.fullmatch(after):
        raise UsageError("after is not a cursor; take next_cursor of the page before as it is")
