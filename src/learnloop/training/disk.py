"""Files of a training on the disk: in folders that one process writes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from learnloop.core.errors import ConflictError
from learnloop.system.files import locked, make_folder

LOCK_FILE = ".lock"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Holds ``folder`` for this process, until the end of the block or of the process.

    Raises:
        ConflictError: another one holds it.
        StoreError: the disk refuses.
    """
    make_folder(folder)
    busy = ConflictError(f"another process trains in {folder}; wait for it, or end it")
    with locked(folder / LOCK_FILE, wait_seconds=0.0, busy=busy):
        yield
