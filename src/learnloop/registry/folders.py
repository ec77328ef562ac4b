"""Version folders on the disk: written whole or not at all, one writer at a time, read without following links.

A version lies in ``<folder>/<content hash>/``.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from learnloop.core.errors import ConflictError, CorruptError, NotFoundError
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
from learnloop.system.files import locked, make_folder, read_plain, remove_folder, remove_parts, write_folder, writing

_HASH = re.compile(r"[0-9a-f]{64}")
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
            CorruptError: ``content_hash`` is not a content hash.
        """
        if not _HASH.fullmatch(content_hash):
            raise CorruptError(f"{content_hash[:80]!r} is not a content hash; a version has 64 hexadecimal digits")
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
            policy = decode_policy(read_plain(place / POLICY_FILE, MAX_POLICY_BYTES), content_hash)
        with _naming(place / WEIGHTS_FILE):
            tensors = decode_weights(read_plain(place / WEIGHTS_FILE, MAX_WEIGHTS_BYTES), policy)
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
        remove_folder(place)
        write_folder(place, {POLICY_FILE: files.policy, WEIGHTS_FILE: files.weights})
        return place

    def remove(self, content_hash: str) -> None:
        """Removes a version's folder: out of sight at once, then from the disk; call it under ``lock``."""
        remove_folder(self.path(content_hash))

    def sweep(self, known: Collection[str] | None = None) -> None:
        """Removes what killed writers left behind; call it under ``lock``.

        Args:
            known: the content hashes that have a version; folders of no version are removed when they are old enough.
                None: only unfinished folders are removed.
        """
        oldest = time.time() - _ORPHAN_SECONDS
        remove_parts(self.folder)
        with writing(self.folder):
            for entry in list(os.scandir(self.folder)):
                is_orphan = known is not None and entry.name not in known and _HASH.fullmatch(entry.name)
                if is_orphan and entry.stat(follow_symlinks=False).st_mtime < oldest:
                    self.remove(entry.name)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps all other writers of this folder out, in this process and others; makes the folder if need be.

        Raises:
            StoreLockedError: another one holds it for longer than 30 seconds.
            StoreFullError, StoreReadOnlyError: the disk refuses.
        """
        make_folder(self.folder)
        with locked(self.folder / _LOCK, wait_seconds=_LOCK_SECONDS):
            yield

    def _is_whole(self, content_hash: str) -> bool:
        try:
            self.load(content_hash)
        except CorruptError:
            return False
        return True


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Puts the file's path before the fault."""
    try:
        yield
    except (ConflictError, CorruptError, NotFoundError) as error:
        raise CorruptError(
            f"{path} is damaged: {error}; restore it from a backup or register the policy again"
        ) from error
