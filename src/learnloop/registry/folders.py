"""Version folders on the disk: written whole or not at all, one writer at a time, read without following links.

A version lies in ``<folder>/<content hash>/``. It is made under a hidden name beside it, flushed to the disk, and
renamed, so that whatever ends the process leaves a whole folder or one that nothing looks at.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from learnloop.core.errors import CorruptError, LearnloopError, StoreError, StoreLockedError
from learnloop.core.protocols import PolicyArtifact
from learnloop.registry.artifacts import (
    MAX_POLICY_BYTES,
    MAX_WEIGHTS_BYTES,
    POLICY_FILE,
    WEIGHTS_FILE,
    ArtifactFiles,
    decode_policy,
    decode_weights,
)
from learnloop.store.failures import from_disk

_HASH = re.compile(r"[0-9a-f]{64}")
_HIDDEN = ".new-"
_LOCK = ".lock"
_LOCK_SECONDS = 30.0
_ORPHAN_SECONDS = 3600.0
"""A folder without a version is kept so long: its row may still be on its way to the database."""


class VersionFolders:
    """The folders of all versions under ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def path(self, content_hash: str) -> Path:
        """Returns where a version lies.

        Raises:
            CorruptError: ``content_hash`` is none.
        """
        if not _HASH.fullmatch(content_hash):
            raise CorruptError(f"{content_hash[:80]!r} is no content hash; a version has 64 hexadecimal digits")
        return self.folder / content_hash

    def load(self, content_hash: str) -> PolicyArtifact:
        """Returns the policy under ``content_hash`` once every byte of it is known to be what was written.

        Raises:
            CorruptError: it is not; the message names the file and the fault.
            StoreError: a file cannot be read.
        """
        place = self.path(content_hash)
        try:
            mode = os.lstat(place).st_mode
        except OSError as error:
            raise CorruptError(f"{place} is missing: {error.strerror}; restore it from a backup") from error
        if not stat.S_ISDIR(mode):
            raise CorruptError(f"{place} is not a folder; a version is never a link or a file")
        with _naming(place / POLICY_FILE):
            policy = decode_policy(_read(place / POLICY_FILE, MAX_POLICY_BYTES), content_hash)
        with _naming(place / WEIGHTS_FILE):
            tensors = decode_weights(_read(place / WEIGHTS_FILE, MAX_WEIGHTS_BYTES), policy)
        return PolicyArtifact(policy.algorithm, policy.config, tensors)

    def write(self, files: ArtifactFiles) -> Path:
        """Returns the folder of ``files``, which are on the disk when this returns; call it under ``lock``.

        A folder that is there already is left alone when it is whole and replaced when it is damaged.

        Raises:
            StoreFullError, StoreReadOnlyError, StoreError: the disk refuses; nothing half-written remains visible.
        """
        place = self.path(files.content_hash)
        if self._is_whole(files.content_hash):
            os.utime(place)  # young again: no sweep takes it before its row is written
            return place
        with self._disk():
            hidden = Path(tempfile.mkdtemp(prefix=_HIDDEN, dir=self.folder))
            try:
                _write_flushed(hidden / POLICY_FILE, files.policy)
                _write_flushed(hidden / WEIGHTS_FILE, files.weights)
                os.chmod(hidden, 0o755)
                _flush_folder(hidden)
                if os.path.lexists(place):
                    os.rename(place, Path(tempfile.mkdtemp(prefix=_HIDDEN, dir=self.folder)) / "damaged")
                os.rename(hidden, place)
            except BaseException:
                shutil.rmtree(hidden, ignore_errors=True)
                raise
            _flush_folder(self.folder)
        return place

    def remove(self, content_hash: str) -> None:
        """Removes a version's folder: out of sight at once, then from the disk; call it under ``lock``."""
        place = self.path(content_hash)
        if not os.path.lexists(place):
            return
        with self._disk():
            hidden = Path(tempfile.mkdtemp(prefix=_HIDDEN, dir=self.folder))
            os.rename(place, hidden / "removed")
            _flush_folder(self.folder)
            shutil.rmtree(hidden)

    def sweep(self, known: Collection[str] | None = None) -> None:
        """Removes what killed writers left behind; call it under ``lock``.

        Args:
            known: the content hashes that have a version; folders of no version are removed when they are old enough.
                None: only unfinished folders are removed.
        """
        oldest = time.time() - _ORPHAN_SECONDS
        with self._disk():
            for entry in list(os.scandir(self.folder)):
                if entry.name.startswith(_HIDDEN):
                    shutil.rmtree(entry.path)
                elif known is None or entry.name in known or not _HASH.fullmatch(entry.name):
                    continue
                elif entry.stat(follow_symlinks=False).st_mtime < oldest:
                    self.remove(entry.name)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps all other writers of this folder out, in this process and others; makes the folder if need be.

        Raises:
            StoreLockedError: another one holds it for longer than 30 seconds.
            StoreFullError, StoreReadOnlyError: the disk refuses.
        """
        with self._disk():
            if not self.folder.is_dir():
                self.folder.mkdir(parents=True, exist_ok=True)
                _flush_folder(self.folder.parent)
            handle = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            with self._disk():
                _wait_for_lock(handle, self.folder / _LOCK)
            yield
        finally:
            os.close(handle)

    def _is_whole(self, content_hash: str) -> bool:
        try:
            self.load(content_hash)
        except CorruptError:
            return False
        return True

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise from_disk(error, str(self.folder)) from error


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Puts the file's path before the fault."""
    try:
        yield
    except CorruptError as error:
        raise CorruptError(
            f"{path} is damaged: {error}; restore it from a backup or register the policy again"
        ) from error


def _read(path: Path, limit: int) -> bytes:
    """Returns the bytes of a plain file of at most ``limit`` bytes."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise CorruptError("it is not a plain file")
        if status.st_size > limit:
            raise CorruptError(f"it has {status.st_size} bytes; at most {limit} are read")
        with open(handle, "rb", closefd=False) as file:
            return file.read(limit + 1)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    finally:
        os.close(handle)


def _unreadable(path: Path, error: OSError) -> LearnloopError:
    if error.errno == errno.ELOOP:
        return CorruptError("it is a symbolic link; a version's files are never links")
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENXIO):
        return CorruptError(f"it is missing or no plain file ({error.strerror})")
    return StoreError(f"{path} cannot be read: {error}")


def _write_flushed(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """Makes names in ``folder`` durable: without it a crash can undo a rename."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _wait_for_lock(handle: int, path: Path) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise StoreLockedError(f"another process holds {path} for over {_LOCK_SECONDS:g} s; end it") from error
            time.sleep(0.01)
        else:
            return
