"""Checkpoints that clients save and load by name: in one folder alone, whole or not there, checked when they are read.

Two files each: ``NAME.SHA256.safetensors``, and ``NAME.json``, which says which one counts, and has its own checksum in
its first line. It is replaced last, so that a kill leaves the checkpoint before. No link is followed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from learnloop.core.errors import ConflictError, CorruptError, NotFoundError, StoreReadOnlyError
from learnloop.core.ids import new_id
from learnloop.core.names import check_name
from learnloop.system.files import from_disk

MAX_HEAD_BYTES = 16 << 20
_PLACE = "the folder of checkpoints"
_PART = re.compile(r"\.[0-9a-f-]{36}\.part")
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

Tensors = dict[str, NDArray[Any]]


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    sha256: str
    size: int
    empty: dict[str, tuple[str, list[int]]]
    """The type and the shape of each array without numbers, which safetensors does not keep."""
    values: dict[str, Any]


class Saved(NamedTuple):
    """What a checkpoint holds."""

    tensors: Tensors
    values: dict[str, Any]


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

    def save(self, name: str, saved: Saved) -> None:
        """Writes a checkpoint durably in the place of the one of this name.

        Raises:
            UsageError: the name cannot be one; nothing was written.
            StoreError: the disk refuses; the checkpoint before is whole.
        """
        check_name("a checkpoint", name)
        data = save({key: np.asarray(value, order="C") for key, value in saved.tensors.items() if value.size})
        head = {
            "format": self._format,
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": len(data),
            "empty": {
                key: [value.dtype.name, list(value.shape)] for key, value in saved.tensors.items() if not value.size
            },
            "values": saved.values,
        }
        body = json.dumps(head, allow_nan=False).encode()
        with self._opened(create=True) as folder:
            after = f"{name}.{head['sha256']}.safetensors"
            _write(folder, after, data)
            _write(folder, f"{name}.json", hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            _sweep(folder, name, after)

    def load(self, name: str) -> Saved:
        """Returns a checkpoint.

        Raises:
            UsageError: the name cannot be one.
            NotFoundError: there is none of this name.
            ConflictError: in its place lies a link, or what is no file.
            CorruptError: it is not what was written, or of another format.
        """
        check_name("a checkpoint", name)
        with self._opened(create=False) as folder:
            head = self._head(folder, name)
            if head.format != self._format:
                raise CorruptError(f"the checkpoint {name!r} has the format {head.format!r}, not {self._format!r}")
            try:
                data = _read(folder, f"{name}.{head.sha256}.safetensors", self._max_bytes)
            except FileNotFoundError as error:
                raise CorruptError(f"the tensors of the checkpoint {name!r} are gone; load another one") from error
        if len(data) != head.size or hashlib.sha256(data).hexdigest() != head.sha256:
            raise CorruptError(f"the tensors of the checkpoint {name!r} were changed or cut; load another one")
        return Saved(_tensors(data, head, name), head.values)

    def _head(self, folder: int, name: str) -> _Head:
        try:
            data = _read(folder, f"{name}.json", MAX_HEAD_BYTES)
        except FileNotFoundError as error:
            raise NotFoundError(f"no checkpoint is called {name!r}") from error
        seal, _, body = data.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != seal:
            raise CorruptError(f"the checkpoint {name!r} was changed or cut; load another one")
        try:
            head = msgspec.convert(json.loads(body), _Head)
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise CorruptError(f"the checkpoint {name!r} cannot be read: {error}") from error
        if len(head.sha256) != 64 or not set(head.sha256) <= set("0123456789abcdef"):
            raise CorruptError(f"the checkpoint {name!r} names no checksum of its tensors")
        return head

    @contextmanager
    def _opened(self, *, create: bool) -> Iterator[int]:
        """Gives the folder's descriptor, so that nothing outside can be meant by a name; who saves has it alone."""
        try:
            if create:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise NotFoundError("no checkpoint was saved yet") from error
        except (NotADirectoryError, FileExistsError) as error:
            raise StoreReadOnlyError(f"{_PLACE} is a link or no folder; put a folder in its place") from error
        except OSError as error:
            raise from_disk(error, _PLACE) from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX if create else fcntl.LOCK_SH)
            yield folder
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise from_disk(error, _PLACE) from error
        finally:
            os.close(folder)


def _sweep(folder: int, name: str, kept: str) -> None:
    """Removes the tensors of a checkpoint but those that count, and what a save that was killed has left."""
    tensors = re.compile(rf"{re.escape(name)}\.[0-9a-f]{{64}}\.safetensors")
    for found in os.listdir(folder):
        if (tensors.fullmatch(found) and found != kept) or _PART.fullmatch(found):
            with suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(found, dir_fd=folder)


def _tensors(data: bytes, head: _Head, name: str) -> Tensors:
    try:
        tensors: Tensors = {key: value.copy() for key, value in load(data).items()}
        tensors |= {key: np.zeros(shape, dtype=dtype) for key, (dtype, shape) in head.empty.items() if 0 in shape}
    except (SafetensorError, ValueError, TypeError, MemoryError) as error:
        raise CorruptError(f"the tensors of the checkpoint {name!r} cannot be read: {error}") from error
    for key, value in tensors.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise CorruptError(f"the checkpoint {name!r} holds numbers in {key} that are not finite")
    return tensors


def _read(folder: int, name: str, max_bytes: int) -> bytes:
    """Returns a file of ``folder`` that is a plain one, with one name, and not too large."""
    try:
        descriptor = os.open(name, os.O_RDONLY | _SAFE, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise ConflictError(f"{name} is a link or no file; remove it") from error
        raise
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise ConflictError(f"{name} is no plain file, or has another name too; remove it")
        if found.st_size > max_bytes:
            raise CorruptError(f"{name} has {found.st_size:,} bytes; a checkpoint here has {max_bytes:,} at most")
        return stream.read(max_bytes + 1)


def _write(folder: int, name: str, data: bytes) -> None:
    """Replaces a file of ``folder`` whole and durably; a link there is replaced, not followed."""
    part = f".{new_id()}.part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise
