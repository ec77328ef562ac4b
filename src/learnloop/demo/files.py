"""Real files of this machine, as a stream in which the kinds are mixed by published shares.

Looks below the standard library, the installed packages and the system's shared files. Reads only; follows no link.
Random bytes and, where a machine has too few, archives of standard-library sources are made once in the demo's folder.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from learnloop.core.errors import NotFoundError
from learnloop.core.seeding import generator
from learnloop.system.files import write_whole, writing

MIN_BYTES = 512
MAX_BYTES = 128 * 1024
SHARES: Mapping[str, float] = {
    "text": 0.26,
    "bytecode": 0.16,
    "binary": 0.26,
    "image": 0.10,
    "archive": 0.12,
    "random": 0.10,
}
"""How much of the stream each kind makes up."""

_NUM_RANDOM = 240
_MIN_ARCHIVES = 200
_MAX_PER_KIND = 2_000
_MAX_ENTRIES = 40_000
"""Per root: a system with millions of files is looked at in part, always the same part."""

_KINDS: Mapping[str, str] = {
    **dict.fromkeys(
        (".py", ".pyi", ".txt", ".md", ".rst", ".h", ".c", ".html", ".css", ".js", ".xml", ".json"), "text"
    ),
    ".pyc": "bytecode",
    **dict.fromkeys((".so", ".dylib", ".a", ".o", ".exe"), "binary"),
    **dict.fromkeys((".png", ".gif", ".jpg", ".jpeg", ".ico", ".webp"), "image"),
    **dict.fromkeys((".gz", ".xz", ".zip", ".whl", ".bz2", ".zst"), "archive"),
}


class FoundFile(NamedTuple):
    """A file that the agent may have to pack."""

    path: Path
    kind: str


FilesByKind = Mapping[str, list[Path]]
"""Each list in a fixed order."""


def find_files(folder: Path) -> FilesByKind:
    """Returns the files of this machine that are neither tiny nor large, and those made once in ``folder``.

    Raises:
        NotFoundError: fewer than two kinds of file were found, so there is nothing to learn.
        StoreFullError, StoreReadOnlyError, StoreError: ``folder`` cannot be written.
    """
    by_kind: dict[str, list[Path]] = {kind: [] for kind in SHARES}
    for root in _roots():
        _walk(root, by_kind)
    by_kind["random"] = _random_files(folder / "random")
    if len(by_kind["archive"]) < _MIN_ARCHIVES:
        by_kind["archive"] += _archives(folder / "archives", by_kind["text"][:_MIN_ARCHIVES])
    present = {kind: paths for kind, paths in by_kind.items() if len(paths) >= 10}
    if len(present) < 2:
        raise NotFoundError(f"found only {count_files(by_kind)} files to pack below {_roots()}")
    return present


def count_files(files: FilesByKind) -> dict[str, int]:
    """Returns how many files of each kind there are."""
    return {kind: len(paths) for kind, paths in files.items()}


def stream(files: FilesByKind, seed: int) -> Iterator[tuple[FoundFile, bytes]]:
    """Yields files with their content, kinds drawn by ``SHARES``, each content at most once, until none is left."""
    rng = generator(seed, "demo", "files")
    left = {kind: [paths[i] for i in rng.permutation(len(paths))] for kind, paths in files.items()}
    seen: set[bytes] = set()
    while left:
        kinds = list(left)
        shares = np.array([SHARES[kind] for kind in kinds])
        kind = kinds[int(rng.choice(len(kinds), p=shares / shares.sum()))]
        path = left[kind].pop()
        if not left[kind]:
            del left[kind]
        data = _read(path)
        digest = hashlib.sha256(data).digest()
        if len(data) >= MIN_BYTES and digest not in seen:
            seen.add(digest)
            yield FoundFile(path, kind), data


def _roots() -> list[Path]:
    places = [
        Path(sysconfig.get_path("stdlib")),
        Path(sysconfig.get_path("purelib")),
        Path(sys.base_prefix) / "bin",
        Path("/usr/share/icons"),
        Path("/usr/share/pixmaps"),
        Path("/usr/share/doc"),
        Path("/usr/share/man"),
        Path("/usr/bin"),
        Path("/usr/lib"),
    ]
    found: list[Path] = []
    for place in places:
        if place.is_dir() and not any(place.is_relative_to(other) for other in found):
            found.append(place)
    return found


def _walk(root: Path, by_kind: dict[str, list[Path]]) -> None:
    """Adds the files below ``root`` that fit; a kind that is full is not looked at any more."""
    num_entries = 0
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            num_entries += 1
            if num_entries > _MAX_ENTRIES:
                return
            kind = _kind(folder, name)
            if kind and len(by_kind[kind]) < _MAX_PER_KIND and _fits(os.path.join(folder, name)):
                by_kind[kind].append(Path(folder, name))


def _kind(folder: str, name: str) -> str | None:
    suffix = os.path.splitext(name)[1].lower()
    if suffix in _KINDS:
        return _KINDS[suffix]
    in_program_folder = os.path.basename(folder) in {"bin", "lib", "x86_64-linux-gnu", "aarch64-linux-gnu"}
    return "binary" if in_program_folder and (not suffix or ".so." in name) else None


def _fits(path: str | Path) -> bool:
    try:
        state = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(state.st_mode) and MIN_BYTES <= state.st_size <= MAX_BYTES


def _read(path: Path) -> bytes:
    """Returns the content, empty where it cannot be read: other people's files come and go."""
    try:
        return path.read_bytes()[:MAX_BYTES]
    except OSError:
        return b""


def _random_files(folder: Path) -> list[Path]:
    """Returns files of random bytes, made at the first call and kept."""
    paths = [folder / f"{i:03d}.bin" for i in range(_NUM_RANDOM)]
    sizes = np.geomspace(MIN_BYTES, MAX_BYTES // 2, _NUM_RANDOM).astype(int)
    for path, size in zip(paths, sizes, strict=True):
        _make(path, lambda size=size: os.urandom(int(size)))  # type: ignore[misc]
    return paths


def _archives(folder: Path, sources: list[Path]) -> list[Path]:
    """Returns gzip archives of ``sources``, made at the first call and kept."""
    paths = [folder / f"{i:03d}.gz" for i in range(len(sources))]
    for path, source in zip(paths, sources, strict=True):
        _make(path, lambda source=source: gzip.compress(_read(source), mtime=0))  # type: ignore[misc]
    return [path for path in paths if _fits(path)]


def _make(path: Path, content: Callable[[], bytes]) -> None:
    """Writes a file unless it is there; one that was cut off never gets its name."""
    with writing(path):
        if not path.exists():
            write_whole(path, content(), durable=False)
