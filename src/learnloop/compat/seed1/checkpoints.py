"""Checkpoints that clients save and load by name: one file each, in one folder alone; no link is followed."""

from __future__ import annotations

import glob
from pathlib import Path

import numpy as np

from learnloop.core.checks import check_name
from learnloop.core.errors import CorruptError, NotFoundError, StoreReadOnlyError
from learnloop.system.files import PRIVATE, locked, make_folder, read_plain, remove_parts, write_whole
from learnloop.system.state_file import SUFFIX, State, decode_pair, decode_state, encode_state

_LOCK = ".lock"
_MAX_HEAD_BYTES = 16 << 20


class NamedCheckpoints:
    """The checkpoints of one folder, which is made when the first one is saved.

    Args:
        folder: where they lie.
        format: what they are; others are refused.
        max_bytes: how large one may be.
    """

    def __init__(self, folder: Path, format: str, max_bytes: int) -> None:
        self._folder = folder
        self._format = format
        self._max_bytes = max_bytes

    def save(self, name: str, state: State) -> None:
        """Writes a checkpoint durably in the place of the one of this name.

        Raises:
            UsageError: the name cannot be one; nothing was written.
            StoreError: the disk refuses; the checkpoint before is whole.
        """
        check_name("a checkpoint", name)
        self._check_folder()
        make_folder(self._folder, mode=0o700)
        with locked(self._folder / _LOCK):
            remove_parts(self._folder)
            write_whole(self._folder / f"{name}{SUFFIX}", encode_state(self._format, state), mode=PRIVATE)
            self._remove_pair(name)

    def load(self, name: str) -> State:
        """Returns a checkpoint.

        Raises:
            UsageError: the name cannot be one.
            NotFoundError: there is none of this name.
            ConflictError: in its place lies a link, or what is not a file.
            CorruptError: it is not what was written, or of another format.
        """
        check_name("a checkpoint", name)
        self._check_folder()
        what = f"the checkpoint {name!r}"
        try:
            data = read_plain(self._folder / f"{name}{SUFFIX}", self._max_bytes, alone=True)
        except NotFoundError:
            state = self._pair(name, what)
        else:
            state = decode_state(data, self._format, what=what)
        for key, value in state.tensors.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise CorruptError(f"{what} holds numbers in {key} that are not finite")
        return state

    def _check_folder(self) -> None:
        if self._folder.is_symlink():
            raise StoreReadOnlyError("the folder of checkpoints is a link; put a folder in its place")

    # As they were until there was one format of state: NAME.json says which NAME.SHA256.safetensors counts.

    def _pair(self, name: str, what: str) -> State:
        try:
            head = read_plain(self._folder / f"{name}.json", _MAX_HEAD_BYTES, alone=True)
        except NotFoundError as error:
            raise NotFoundError(f"no checkpoint is called {name!r}") from error
        try:
            return decode_pair(head, lambda digest: self._tensors(name, digest), self._format, what)
        except NotFoundError as error:
            raise CorruptError(f"the tensors of {what} are gone; load another one") from error

    def _tensors(self, name: str, digest: str) -> bytes:
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise CorruptError(f"the checkpoint {name!r} names no checksum of its tensors")
        return read_plain(self._folder / f"{name}.{digest}{SUFFIX}", self._max_bytes, alone=True)

    def _remove_pair(self, name: str) -> None:
        """Removes the checkpoint of an earlier version that was replaced."""
        head = self._folder / f"{name}.json"
        if head.exists():
            for tensors in self._folder.glob(f"{glob.escape(name)}.{'[0-9a-f]' * 64}{SUFFIX}"):
                tensors.unlink()
            head.unlink()
