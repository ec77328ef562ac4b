"""Votes of a judge that are kept, so that the same question costs once and has the same answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from learnloop.core.decoding import decode_json
from learnloop.core.errors import UsageError
from learnloop.core.records import Record
from learnloop.models.answer_cache import AnswerCache

MAX_IN_MEMORY = 10_000
"""Votes; the oldest go first."""


class KeptVote(Record, frozen=True, kw_only=True):
    """What a judge said once, before anybody reads it."""

    text: str | None
    """None: it answered with something else than a text."""
    finish_reason: str | None = None
    model: str | None = None
    """As the endpoint names what answered."""


class _Flight:
    """A question that somebody asks at the moment, and those who wait for its answer."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.num_threads = 0


class VoteCache:
    """Votes under their keys, in memory and, where a folder is given, there. For any number of threads.

    Processes may share the folder; two of them may ask the same question at the same time.
    """

    def __init__(self, folder: str | None) -> None:
        """Makes nothing yet."""
        self._files = None if folder is None else AnswerCache(folder)
        self._lock = threading.Lock()
        self._kept: dict[str, KeptVote] = {}
        self._flights: dict[str, _Flight] = {}

    @contextmanager
    def claim(self, key: str, deadline: float) -> Iterator[bool]:
        """Holds a key until the end of the ``with``, so that a question is asked once.

        Gives False where others held it until ``deadline``, which is a reading of ``time.monotonic``.
        """
        with self._lock:
            flight = self._flights.setdefault(key, _Flight())
            flight.num_threads += 1
        is_ours = False
        try:
            is_ours = flight.lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
            yield is_ours
        finally:
            if is_ours:
                flight.lock.release()
            with self._lock:
                flight.num_threads -= 1
                if flight.num_threads == 0:
                    del self._flights[key]

    def get(self, key: str) -> KeptVote | None:
        """Returns a vote; None where none is kept.

        Raises:
            UsageError: there is a file that cannot be read, or holds something else.
        """
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None or self._files is None:
            return kept
        path = self._files.path("judge", key.encode())
        data = self._files.get(path)
        if data is None:
            return None
        kept = decode_json(data, f"the kept vote {path} is damaged", KeptVote, hint="; remove it to ask again")
        self._remember(key, kept)
        return kept

    def put(self, key: str, vote: KeptVote) -> str | None:
        """Keeps a vote; returns why it could not be kept in the folder, or None. It is in memory in any case."""
        self._remember(key, vote)
        if self._files is None:
            return None
        try:
            self._files.put(self._files.path("judge", key.encode()), msgspec.json.encode(vote))
        except UsageError as error:  # the answer is paid for and counts; only the next process asks again
            return str(error)
        return None

    def _remember(self, key: str, vote: KeptVote) -> None:
        with self._lock:
            self._kept[key] = vote
            while len(self._kept) > MAX_IN_MEMORY:
                del self._kept[next(iter(self._kept))]
