"""The conversations of an episode: which part of a call's messages was not said before."""

from __future__ import annotations

import threading
from collections.abc import Sequence

_MAX_CONVERSATIONS = 64
"""Of one episode, those that went on last: a call may go on with any of them."""


class Conversations:
    """Remembers what was said in each, by fingerprints. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: list[list[str]] = []
        """The fingerprints of each, the one that went on last at the end."""

    def begin(self, marks: Sequence[str]) -> int:
        """Returns how many of a call's messages were said before, in the conversation that it goes on with.

        Args:
            marks: the fingerprint of each message of the call.
        """
        with self._lock:
            best, shared = None, 0
            for known in self._known:
                common = _num_common(known, marks)
                if common > shared or (common and common == shared and best and len(known) < len(best)):
                    best, shared = known, common
            if best is not None and shared == len(best):
                self._known.remove(best)  # it goes on; else this call branches off
            return shared

    def resume(self, num_known: int) -> list[str]:
        """Returns what was said before a call that is known to have added its messages to so many of the last ones."""
        with self._lock:
            if not self._known:
                return []
            last = self._known[-1]
            if num_known >= len(last):
                self._known.pop()
            return last[:num_known]

    def end(self, marks: Sequence[str], answer: str | None) -> None:
        """Notes what was said in a call: all its messages, and the answer, None where there is none."""
        with self._lock:
            self._known.append([*marks] if answer is None else [*marks, answer])
            del self._known[:-_MAX_CONVERSATIONS]


def _num_common(known: Sequence[str], marks: Sequence[str]) -> int:
    """Returns how many messages two conversations have in common from their start."""
    number = 0
    for one, other in zip(known, marks, strict=False):
        if one != other:
            break
        number += 1
    return number
