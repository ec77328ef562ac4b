"""Files that are made once, at some cost, and kept: whole, checked, and made by one process at a time."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from learnloop.core.errors import StoreReadOnlyError
from learnloop.system.files import locked, make_folder, remove_parts, write_whole

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
        StoreFullError, StoreReadOnlyError, StoreError: the disk refuses.
    """
    found = _whole(path)
    if found is not None:
        return found
    try:
        make_folder(path.parent)
        with locked(path.with_name(f".{path.name}.lock")):
            found = _whole(path)
            return found if found is not None else _make(path, make)
    except StoreReadOnlyError as error:
        raise StoreReadOnlyError(f"{path}: {error}; or name another folder, or set XDG_CACHE_HOME") from error


def _make(path: Path, make: Callable[[], bytes]) -> bytes:
    remove_parts(path.parent, path.name)
    remove_parts(path.parent, _digest_path(path).name)
    data = make()
    write_whole(path, data)
    write_whole(_digest_path(path), hashlib.sha256(data).hexdigest().encode())
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
    _log.warning("%s is not as it was written; it is made again", path)
    return None


def _digest_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
