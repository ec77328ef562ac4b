"""SQLite's checkpoints, which move the write-ahead log into the database, beside the commits.

Left to itself SQLite does it within a commit, and all who wait for that wait tens of milliseconds longer. Here another
thread does most of it while commits go on (PASSIVE), and then, with the write lock, the few pages that came meanwhile
(FULL), so that the log begins again and does not grow.

Source: https://sqlite.org/c3ref/wal_checkpoint_v2.html; of the log's file, https://sqlite.org/walformat.html.
"""

from __future__ import annotations

import bisect
import logging
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

from learnloop.store.engine import Place

MAX_PAGES = 2_000
"""From so many pages in the log on there is a checkpoint."""
LOOK_SECONDS = 0.05
"""So often the log is looked at, at the most."""
_REST = 4
"""Checkpoints rest so many times as long as they took: where a reader holds the log, they bring nothing."""
_FULL_TRIES = 20
_RETRY_SECONDS = 0.002
_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24

_log = logging.getLogger(__name__)


class WalCheckpoints:
    """Makes checkpoints when there is something to move, in a thread that begins with the first one.

    Args:
        place: a database file of SQLite.
    """

    def __init__(self, place: Place) -> None:
        self._uri = place.file_uri
        self._wal = Path(f"{place.absolute_path}-wal")
        self._next_look = 0.0
        self._is_due = threading.Event()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def committed(self) -> None:
        """Says that this process has just written; called by one thread, which it does not hold up."""
        moment = time.monotonic()
        if moment < self._next_look or self._is_closing:
            return
        self._next_look = moment + LOOK_SECONDS
        try:
            if num_frames(self._wal) < MAX_PAGES:
                return
        except OSError as error:  # such as no file handle left; what was written is on the disk all the same
            _log.warning("the write-ahead log %s cannot be looked at: %s", self._wal, error)
            return
        self._is_due.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="learnloop-checkpoints", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ends the thread; a checkpoint that is under way is waited for."""
        self._is_closing = True
        self._is_due.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._is_due.wait()
            self._is_due.clear()  # first: ``close`` may set it again at any time
            if self._is_closing:
                return
            began = time.monotonic()
            try:
                self._make()
            except sqlite3.Error as error:  # commits make their own when the log has grown further
                _log.warning("the write-ahead log %s could not be moved into its database: %s", self._wal, error)
            ended = time.monotonic()
            self._next_look = ended + max(LOOK_SECONDS, _REST * (ended - began))

    def _make(self) -> None:
        with closing(sqlite3.connect(self._uri, uri=True, isolation_level=None, timeout=0)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            for _ in range(_FULL_TRIES):
                is_busy = connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()[0]
                if not is_busy or self._is_closing:
                    return
                time.sleep(_RETRY_SECONDS)  # between two commits


def num_frames(wal: Path) -> int:
    """Returns how many pages are in a write-ahead log; 0 where there is none.

    The file does not shrink when the log begins again: frames of before, behind the last one, have another salt.
    """
    try:
        file = os.open(wal, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        header = os.pread(file, _HEADER_BYTES, 0)
        if len(header) < _HEADER_BYTES:
            return 0
        salt = header[16:24]
        frame_bytes = _FRAME_HEADER_BYTES + int.from_bytes(header[8:12], "big")
        most = (os.fstat(file).st_size - _HEADER_BYTES) // frame_bytes

        def is_older(number: int) -> bool:
            return os.pread(file, 8, _HEADER_BYTES + number * frame_bytes + 8) != salt

        return bisect.bisect_left(range(most), True, key=is_older)
    finally:
        os.close(file)
