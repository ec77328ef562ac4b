"""Files that are made once, at some cost, and kept: whole, checked, and made by one process at a time."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from learnloop.core.errors import StoreReadOnlyError
from learnloop.core.ids import new_id

_log = logging.getLogger(__name__)
_MAX_DIGEST_BYTES = 200


def default_cache_folder() -> Path:
    """Returns ``learnloop`` in the user's cache folder: ``XDG_CACHE_HOME``, or ``~/.cache`` where that is not set.

    Source: the XDG Base Directory Specification 0.8 (a path that is not absolute is ignored).
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(named) if os.path.isabs(named) else Path.home() / ".cache"
    return root / "learnloop"


def made_file(path: Path, make: Callable[[], bytes]) -> bytes:
    """Returns the bytes of ``path``; where it is missing or damaged, ``make`` makes them and they are kept.

    The file's SHA-256 lies beside it, in a file of its name and ``.sha256``. Of several processes one makes it and the
    others wait; one that is killed leaves nothing that is taken for whole.

    Raises:
        StoreReadOnlyError: the folder cannot be written.
    """
    found = _whole(path)
    if found is not None:
        return found
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path):
            found = _whole(path)
            return found if found is not None else _make(path, make)
    except OSError as error:
        raise StoreReadOnlyError(
            f"{path} cannot be written ({error.strerror or error}); name a folder that can be, or set XDG_CACHE_HOME"
        ) from error


def _make(path: Path, make: Callable[[], bytes]) -> bytes:
    _remove_parts(path)
    data = make()
    _write(path, data)
    _write(_digest_path(path), hashlib.sha256(data).hexdigest().encode())
    return data


def _whole(path: Path) -> bytes | None:
    """Returns the bytes of a file that is as it was written; None where it is not, or not there."""
    try:
        data = path.read_bytes()
        with _digest_path(path).open("rb") as stream:
            digest = stream.read(_MAX_DIGEST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreReadOnlyError(f"{path} cannot be read ({error.strerror or error})") from error
    if hashlib.sha256(data).hexdigest().encode() == digest:
        return data
    _log.warning("%s is not as it was written; it is made anew", path)
    return None


def _digest_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{new_id()}.part")
    try:
        with part.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):  # it may not even have been made; what went wrong is raised
            part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _remove_parts(path: Path) -> None:
    """Removes what killed processes left; nobody else writes, since the lock is held."""
    for name in (path.name, _digest_path(path).name):
        for part in path.parent.glob(f".{name}.*.part"):
            part.unlink(missing_ok=True)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Holds the lock of ``path`` among processes and threads; it ends with its process."""
    with path.with_name(f".{path.name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
