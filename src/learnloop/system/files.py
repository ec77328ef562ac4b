"""Files on the disk: written whole or not at all, by one process at a time, and read without following links.

What is written has a hidden name beside its place first, is flushed and renamed; then the folder is flushed. So
whatever ends the process or the machine leaves what was there before, or all of the new. What a killed process leaves
keeps its hidden name until ``remove_parts`` removes it. What the disk refuses becomes an error that names the place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from learnloop.core.errors import (
    ConflictError,
    CorruptError,
    LearnloopError,
    NotFoundError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
)
from learnloop.core.ids import new_id

FULL = "no space is left for {place}; free some, what was acknowledged is intact ({detail})"
READ_ONLY = "{place} cannot be written; check its permissions and those of its folder ({detail})"
PRIVATE = 0o600
"""The mode of a file that is its owner's alone."""
_ORDINARY = 0o666
"""The mode of a file for all whom the user's mask lets in."""
_PART = re.compile(r"\.(?:(.*)\.)?[0-9a-f-]{36}\.part|\.new-.+|\.\d{12}\.part")
"""The hidden names of now and, after the first bar, of earlier versions; the group is what they are to become."""
_NOT_WRITABLE = {
    *(errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP, errno.ENAMETOOLONG),
}
_LOCK_PAUSE_SECONDS = 0.01


# What the disk refuses --------------------------------------------------------------------------------------------


def from_disk(error: OSError, place: object) -> LearnloopError:
    """Returns the error of learnloop that a failed file operation at ``place`` is."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFullError(FULL.format(place=place, detail=error))
    if error.errno in _NOT_WRITABLE:
        return StoreReadOnlyError(READ_ONLY.format(place=place, detail=error))
    if error.errno == errno.ENOENT:
        return NotFoundError(f"{place} is not there ({error})")
    return StoreError(f"the disk failed under {place}: {error}")


@contextmanager
def writing(place: object) -> Iterator[None]:
    """Turns what the disk refuses within the block into an error that names ``place``.

    Raises:
        StoreFullError, StoreReadOnlyError, StoreError: the disk refuses.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise StoreReadOnlyError(READ_ONLY.format(place=place, detail=error)) from error
    except OSError as error:
        raise from_disk(error, place) from error


# Written whole ----------------------------------------------------------------------------------------------------


@contextmanager
def replacing(
    path: Path, *, mode: int = _ORDINARY, durable: bool = True, exclusive: bool = False
) -> Iterator[IO[bytes]]:
    """Gives a stream that becomes the file ``path`` when the block ends, unless something was raised.

    A link at ``path`` is replaced, not followed.

    Args:
        path: of the file; its folder must be there.
        mode: of the file, narrowed by the user's mask.
        durable: whether it must survive a power cut; False for what can be made again.
        exclusive: whether a file that is there already stays.

    Raises:
        ConflictError: ``exclusive`` and something is there.
        StoreFullError, StoreReadOnlyError, StoreError: the disk refuses.
    """
    part = _part_of(path)
    with writing(path):
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as stream:
                yield stream
                if durable:
                    stream.flush()
                    os.fsync(stream.fileno())
            if exclusive:
                _link(part, path)
            else:
                os.replace(part, path)
        except BaseException:
            with suppress(OSError):  # it may not even have been made; what went wrong is raised
                part.unlink()
            raise
        if durable:
            flush(path.parent)


def _link(part: Path, path: Path) -> None:
    """Gives ``part`` the name ``path``, if that is free, and takes its own."""
    try:
        os.link(part, path)
    except FileExistsError as error:
        raise ConflictError(f"{path} is there already; give another name or remove it") from error
    part.unlink()


def write_whole(
    path: Path, data: bytes, *, mode: int = _ORDINARY, durable: bool = True, exclusive: bool = False
) -> None:
    """Writes ``data`` as the file ``path``; as ``replacing``, and makes the folder where it is not there."""
    make_folder(path.parent, durable=durable)
    with replacing(path, mode=mode, durable=durable, exclusive=exclusive) as stream:
        stream.write(data)


@contextmanager
def output_file(path: Path) -> Iterator[IO[bytes]]:
    """Gives a stream to write what a user wants at ``path``, which is replaced when the block ends without an error.

    A link is followed, the mode of a file stays, and what is not a file, such as a device or a pipe, is written to.

    Raises:
        StoreFullError, StoreReadOnlyError, StoreError: it cannot be written.
    """
    with writing(path):
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                yield stream
            return
        target = Path(os.path.realpath(path))
        with replacing(target, durable=False) as stream:
            if target.exists():
                os.fchmod(stream.fileno(), stat.S_IMODE(target.stat().st_mode))
            yield stream
            stream.flush()
            os.fsync(stream.fileno())  # not the folder: an export of many files would take three times as long


def write_folder(place: Path, files: Mapping[str, bytes]) -> None:
    """Writes ``files``, by their names, as the new folder ``place``, durably.

    Raises:
        StoreFullError, StoreReadOnlyError, StoreError: the disk refuses, or something is there already.
    """
    make_folder(place.parent)
    part = _part_of(place)
    with writing(place):
        try:
            part.mkdir()
            for name, data in files.items():
                with (part / name).open("xb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
            flush(part)
            os.rename(part, place)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        flush(place.parent)


def remove_folder(place: Path) -> None:
    """Removes a folder, if it is there: out of sight at once, then from the disk.

    Raises:
        StoreReadOnlyError, StoreError: the disk refuses.
    """
    if os.path.lexists(place):
        part = _part_of(place)
        with writing(place):
            os.rename(place, part)
            flush(place.parent)
            _remove(part)


def make_folder(folder: Path, *, mode: int = 0o777, durable: bool = True) -> None:
    """Makes a folder, with a ``mode`` that the user's mask narrows, and those above it where they are not there.

    Raises:
        StoreFullError, StoreReadOnlyError, StoreError: the disk refuses.
    """
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent, durable=durable)
    with writing(folder):
        folder.mkdir(mode, exist_ok=True)
        if durable:
            flush(folder.parent)


def install(part: Path, path: Path) -> None:
    """Flushes the file ``part`` and moves it to ``path``, which lies on the same disk.

    Raises:
        StoreFullError, StoreReadOnlyError, StoreError: the disk refuses.
    """
    with writing(path):
        flush(part)
        os.replace(part, path)
        flush(path.parent)


def flush(place: Path) -> None:
    """Makes a file's content, or the names in a folder, survive a power cut.

    Raises:
        OSError: the disk refuses.
    """
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_parts(folder: Path, of: str | None = None) -> None:
    """Removes what killed writers left in ``folder``; nobody must be writing there.

    Args:
        folder: where.
        of: the name of what they wrote; None: whatever it was.

    Raises:
        StoreReadOnlyError, StoreError: the disk refuses.
    """
    with writing(folder):
        for entry in os.listdir(folder):
            found = _PART.fullmatch(entry)
            if found and (of is None or found.group(1) == of[:100]):
                _remove(folder / entry)


def _part_of(path: Path) -> Path:
    """Returns the hidden name that something has before it is ``path``; each is given once."""
    return path.with_name(f".{path.name[:100]}.{new_id()}.part")


def _remove(part: Path) -> None:
    if part.is_dir() and not part.is_symlink():
        shutil.rmtree(part)
    else:
        part.unlink(missing_ok=True)


# Read, and locked -------------------------------------------------------------------------------------------------


def read_plain(path: Path, max_bytes: int, *, alone: bool = False) -> bytes:
    """Returns the bytes of a file that is no link and not too large.

    Args:
        path: of the file.
        max_bytes: how large it may be.
        alone: whether it may have no other name either.

    Raises:
        NotFoundError: there is none.
        ConflictError: it is a link, a folder, a pipe or the like.
        CorruptError: it is too large.
        StoreError: it cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or (alone and found.st_nlink > 1):  # no name: replaced just now
                raise ConflictError(f"{path.name} is not a plain file with one name; remove it")
            if found.st_size > max_bytes:
                raise CorruptError(f"{path.name} has {found.st_size} bytes; at most {max_bytes} are read")
            with open(handle, "rb", closefd=False) as stream:
                return stream.read(max_bytes + 1)
        finally:
            os.close(handle)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"{path.name} is not there") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise ConflictError(f"{path.name} is a link or not a file; remove it") from error
        raise StoreError(f"{path} cannot be read: {error}") from error


@contextmanager
def locked(file: Path, *, wait_seconds: float | None = None, busy: LearnloopError | None = None) -> Iterator[None]:
    """Keeps all others out, threads and processes, that lock ``file``; it is made, and never removed.

    The lock ends with the block or with the process, however that ends.

    Args:
        file: the lock; its folder must be there.
        wait_seconds: how long another one's end is waited for; None: as long as it takes.
        busy: what is raised where another one holds it for longer; None: a ``StoreLockedError`` that names it.

    Raises:
        StoreReadOnlyError, StoreError: the disk refuses.
    """
    with writing(file):
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        if wait_seconds is None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        elif not _wait_for_lock(handle, wait_seconds):
            raise busy or StoreLockedError(f"another process holds {file} for over {wait_seconds:g} s; end it")
        yield
    finally:
        os.close(handle)


def _wait_for_lock(handle: int, seconds: float) -> bool:
    """Returns whether the lock was had in time."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(BlockingIOError):  # another one has it
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOCK_PAUSE_SECONDS)
