"""Answers kept in a folder under the hash of what was asked."""

from __future__ import annotations

import hashlib
from pathlib import Path

from learnloop.core.errors import StoreError, UsageError
from learnloop.system.files import PRIVATE, write_whole


class AnswerCache:
    """A folder with one file for each address and request; threads and processes may share it.

    Neither headers nor keys are part of what is kept.
    """

    def __init__(self, folder: str) -> None:
        """Makes nothing yet."""
        self._folder = Path(folder)

    def path(self, name: str, body: bytes) -> Path:
        """Returns where the answer to a request to the address ``name`` is kept, or would be."""
        digest = hashlib.sha256(name.encode() + b"\n" + body).hexdigest()
        return self._folder / f"{digest}.json"

    def get(self, path: Path) -> bytes | None:
        """Returns the answer that is kept at ``path``; None where none is.

        Raises:
            UsageError: there is one that cannot be read.
        """
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UsageError(f"the kept answer {path} cannot be read ({error.strerror or error})") from error

    def put(self, path: Path, answer: bytes) -> None:
        """Writes an answer whole or not at all; others may write the same one.

        Raises:
            UsageError: the folder cannot be written.
        """
        try:
            write_whole(path, answer, mode=PRIVATE, durable=False)
        except StoreError as error:
            raise UsageError(f"the answer cannot be kept: {error}") from error
