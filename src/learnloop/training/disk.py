"""Files of a training on the disk: errors in words, and folders that one process writes at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from learnloop.core.errors import ConflictError, StoreError
from learnloop.store.blobs import write_file

LOCK_FILE = ".lock"


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turns what the disk refuses into an error that names ``place``.

    Raises:
        StoreError: the disk refuses.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(f"{place} cannot be written ({error.strerror or error}); choose another --home") from error


def write_whole(path: Path, data: bytes) -> None:
    """Writes ``path`` so that it is there as a whole or not at all, also after a power cut.

    Raises:
        StoreError: the disk refuses.
    """
    with writing(path):
        write_file(path, data)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Holds ``folder`` for this process, until the end of the block or of the process.

    Raises:
        ConflictError: another one holds it.
        StoreError: the disk refuses.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConflictError(f"another process trains in {folder}; wait for it, or end it") from error
        yield
    finally:
        os.close(handle)
