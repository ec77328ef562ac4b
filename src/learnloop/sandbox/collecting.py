"""Brings files out of a sandbox after all of its processes have ended, so that nothing changes under our hands.

Nothing is followed: not a symbolic link, not a second name of a file; only regular files are read, as far as the limit.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MAX_DEPTH = 32
MAX_ENTRIES = 10_000
_WILD = frozenset("*?[")


@dataclass
class Collected:
    """What was found."""

    files: dict[str, bytes] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def collect(folder: int, wanted: Sequence[str], max_bytes: int) -> Collected:
    """Returns the wanted files under an open folder, at most ``max_bytes`` together.

    Args:
        folder: a descriptor of the folder.
        wanted: names and patterns.
        max_bytes: of all together.
    """
    found = Collected()
    if not any(_WILD & set(name) for name in wanted):
        for name in dict.fromkeys(wanted):
            _take_named(folder, name, found, max_bytes)
        return found
    for path, parent in _walk(folder, found):
        if any(path == name or fnmatch.fnmatchcase(path, name) for name in wanted):
            _take(parent, path, found, max_bytes)
    return found


def _take_named(folder: int, name: str, found: Collected, max_bytes: int) -> None:
    try:
        place = _open_below(folder, name.split("/")[:-1])
    except FileNotFoundError:
        return  # it was not made
    except OSError as error:
        found.left_out[name] = f"its folder cannot be opened: {error.strerror}"
        return
    try:
        _take(place, name, found, max_bytes)
    finally:
        os.close(place)


def _walk(folder: int, found: Collected) -> Iterator[tuple[str, int]]:
    """Yields the path of each entry that is no folder, with a descriptor of its folder, valid until the next."""
    waiting: list[list[str]] = [[]]
    num_seen = 0
    while waiting:
        above = waiting.pop()
        try:
            place = _open_below(folder, above)
        except OSError as error:
            found.left_out["/".join(above)] = f"the folder cannot be opened: {error.strerror}"
            continue
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    num_seen += 1
                    if num_seen > MAX_ENTRIES:
                        found.left_out["*"] = f"there are more than {MAX_ENTRIES:,} files and folders"
                        return
                    path = [*above, entry.name]
                    if not entry.is_dir(follow_symlinks=False):
                        yield "/".join(path), place
                    elif len(path) > MAX_DEPTH:
                        found.left_out["/".join(path)] = f"it lies deeper than {MAX_DEPTH} folders"
                    else:
                        waiting.append(path)
        finally:
            os.close(place)


def _open_below(folder: int, names: Sequence[str]) -> int:
    """Returns a descriptor of a folder below another, opened name by name so that no link is followed."""
    place = os.dup(folder)
    for name in names:
        try:
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
        finally:
            os.close(place)
        place = below
    return place


def _take(place: int, path: str, found: Collected, max_bytes: int) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        found.left_out[repr(path)] = "its name is not UTF-8"
        return
    name = path.rpartition("/")[2]
    try:
        about = os.stat(name, dir_fd=place, follow_symlinks=False)
        reason = _reason_against(about)
        left = max_bytes - sum(map(len, found.files.values()))
        if reason is None and about.st_size > left:
            reason = f"it has {about.st_size:,} bytes, and {left:,} are left of {max_bytes:,}"
        if reason is None:
            found.files[path] = _read(name, place, about.st_size)
        else:
            found.left_out[path] = reason
    except FileNotFoundError:
        return  # it was not made
    except OSError as error:
        found.left_out[path] = f"it cannot be read: {error.strerror}"


def _reason_against(about: os.stat_result) -> str | None:
    if stat.S_ISLNK(about.st_mode):
        return "it is a symbolic link, which is not followed"
    if not stat.S_ISREG(about.st_mode):
        return "it is not a regular file"
    return "it has more than one name (a hard link)" if about.st_nlink > 1 else None


def _read(name: str, place: int, size: int) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=place), "rb", buffering=0) as file:
        parts, left = [], size
        while left and (part := file.read(left)):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)
