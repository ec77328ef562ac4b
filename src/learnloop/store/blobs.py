"""Content-addressed files: a blob's name is the SHA-256 of its bytes, so it is written once and never changes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from learnloop.core.errors import CorruptError, NotFoundError, UsageError
from learnloop.system.files import PRIVATE, from_disk, write_whole, writing

_ADDRESS = re.compile(r"[0-9a-f]{64}")


class BlobStore:
    """Blobs in a folder, two levels deep: ``ab/abcdef...``. Any number of processes may write at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def put(self, data: bytes) -> str:
        """Returns the address of ``data``, which is on the disk when this returns.

        Writing it again changes nothing, but a file that was damaged is written again.

        Raises:
            StoreFullError: no space is left; nothing half-written remains.
            StoreReadOnlyError: the folder cannot be written.
        """
        address = hashlib.sha256(data).hexdigest()
        target = self.path(address)
        with writing(target):
            if not _holds(target, data):
                write_whole(target, data, mode=PRIVATE)
        return address

    def get(self, address: str) -> bytes:
        """Returns the bytes at ``address``.

        Raises:
            UsageError: it is not an address.
            NotFoundError: there is no such blob.
            CorruptError: the file is not what was written.
        """
        target = self.path(address)
        try:
            data = target.read_bytes()
        except FileNotFoundError as error:
            raise NotFoundError(f"there is no blob {address} in {self.folder}") from error
        except OSError as error:
            raise from_disk(error, target) from error
        if hashlib.sha256(data).hexdigest() != address:
            raise CorruptError(f"{target} is damaged: its bytes do not have the checksum in its name; restore a backup")
        return data

    def remove(self, address: str) -> None:
        """Removes the blob at ``address``, if it is there. Nothing may refer to it any more.

        Raises:
            UsageError: ``address`` is not an address.
            StoreReadOnlyError: the folder cannot be written.
        """
        target = self.path(address)
        with writing(target):
            target.unlink(missing_ok=True)

    def path(self, address: str) -> Path:
        """Returns where the blob lies or would lie.

        Raises:
            UsageError: ``address`` is not 64 hexadecimal digits.
        """
        if not _ADDRESS.fullmatch(str(address)):
            raise UsageError(f"{address!r} is not a blob's address; allowed are 64 digits of 0-9 and a-f")
        return self.folder / address[:2] / address

    def addresses(self) -> Iterator[str]:
        """Yields the address of each blob, sorted."""
        if not self.folder.is_dir():
            return
        for path in sorted(self.folder.glob("??/*")):
            if _ADDRESS.fullmatch(path.name):
                yield path.name


def _holds(target: Path, data: bytes) -> bool:
    """Returns whether ``data`` is what ``target`` holds; the size is looked at first."""
    try:
        return target.stat().st_size == len(data) and target.read_bytes() == data
    except FileNotFoundError:
        return False
