"""The conversations of an episode: which part of a call's messages was not said before."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

MAX_KNOWN = 65_536
"""Beginnings of conversations that are remembered of one episode, those that were said last."""


class Conversations:
    """Remembers each beginning of what was said, by a hash of its messages' fingerprints.

    A call costs time in proportion to its own messages, however many conversations there are. Safe to use from several
    threads, and by the garbage collector in the middle of a call: it may end a stream that was forgotten.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._known: OrderedDict[int, None] = OrderedDict()
        """The hashes, those that were said last at the end."""
        self._last: list[int] = []
        """Of the conversation that went on last: the hash after each message."""

    def begin(self, marks: Sequence[str]) -> int:
        """Returns how many of a call's messages were said before, in the conversation that it goes on with.

        Args:
            marks: the fingerprint of each message of the call.
        """
        hashes = _hashes(0, marks)
        with self._lock:
            for number in range(len(hashes), 0, -1):
                if hashes[number - 1] in self._known:
                    return number
        return 0

    def end(self, marks: Sequence[str], answer: str | None) -> None:
        """Notes what was said in a call: all its messages, and the answer, None where there is none."""
        hashes = _hashes(0, marks if answer is None else [*marks, answer])
        with self._lock:
            self._last = hashes
            self._remember(hashes)

    def go_on(self, num_known: int, marks: Sequence[str], answer: str | None) -> None:
        """Notes a call that is known to have added ``marks`` to so many messages of the conversation before it."""
        with self._lock:
            last = self._last
            del last[num_known:]
            added = _hashes(last[-1] if last else 0, marks if answer is None else [*marks, answer])
            last.extend(added)
            self._remember(added)

    def _remember(self, hashes: Iterable[int]) -> None:
        for each in hashes:
            self._known[each] = None
            self._known.move_to_end(each)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


def _hashes(before: int, marks: Iterable[str]) -> list[int]:
    """Returns the hash of a conversation after each message of ``marks``, which go on after the hash ``before``."""
    hashes = []
    for mark in marks:
        before = hash((before, mark))
        hashes.append(before)
    return hashes
